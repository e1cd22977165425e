"""Connection files of kernels, and the files that servers leave beside them.

The only module that removes any (a keeper removes its own launch's, with the same
primitive). It never gives out what is secret in them: only ports and numbers leave it.

What may be removed: a regular file of this user, no link, that lies directly in a
Jupyter runtime folder under a name that Jupyter gives, or that a journal names. With it go
the Unix sockets that it names (:mod:`.runtime.sockets`); those whose file is gone are files
of their own. Whether anything uses it is asked in three ways (:func:`has_listener`,
:func:`users_of`, and the journals of living owners, which the caller knows); each may answer
"unknown".
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import socket
import stat
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from .runtime import files, sockets
from .runtime.files import FileIdentity, Removal, identity_of
from .runtime.sockets import Ports, ports_of

__all__ = [
    "Answer",
    "Candidate",
    "FileIdentity",
    "Listing",
    "Mentions",
    "Ports",
    "Removal",
    "Server",
    "Users",
    "candidates",
    "cut_short",
    "has_listener",
    "identity_of",
    "in_use",
    "ports_of",
    "remove",
    "server_of",
    "sockets_of",
    "users_of",
]

# DOTALL: a name may hold newlines.
_KERNEL = re.compile(r"kernel-.+\.json", re.DOTALL)
_SERVER = re.compile(r"jpserver-([0-9]{1,10})(\.json|-open\.html)")
# As jupyter_client names them after the connection file.
_SOCKET = re.compile(r"(kernel-.+)-ipc-[0-9]{1,5}", re.DOTALL)


class Answer(enum.Enum):
    """To "does something use it?". Only NO allows a removal."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Candidate(NamedTuple):
    """A file that might be removed, as it was when it was listed."""

    path: str
    file: FileIdentity
    uid: int
    modified_at: float
    """Time of day in seconds."""
    server_pid: int | None = None
    """For a server's file: the number in its name, of whatever host and time."""
    named: str = ""
    """The path that users know it by, when a removal that was cut short has renamed it.

    For a socket that of the connection file that named it.
    """
    is_socket: bool = False

    @property
    def known_as(self) -> str:
        """The path under which a kernel, a client or a journal would name it."""
        return self.named or self.path


class Listing(NamedTuple):
    """The files found, oldest first, and the folders that could not be read."""

    files: list[Candidate]
    unreadable: list[str]


class Server(NamedTuple):
    """The harmless part of a server's file."""

    pid: int
    port: int | None


class Users(NamedTuple):
    """Who may be using a file."""

    answer: Answer
    pids: tuple[int, ...] = ()
    reason: str = ""


class Mentions(Protocol):
    """What :func:`users_of` asks of a look at all processes (mechanism: Snapshot)."""

    @property
    def incomplete(self) -> str:
        """Why processes may be missing; empty when none are."""

    def mentioned_by(self, path: str) -> frozenset[int]:
        """Living processes, of any user, that name the file in an argument."""

    @property
    def open_names(self) -> tuple[frozenset[str], str]:
        """Names of files that the user's processes have open; why some may be missing."""


def candidates(runtime_dirs: Iterable[str]) -> Listing:
    """``kernel-*.json`` and server files directly in these folders; regular files only.

    Also those that a removal has renamed and a crash kept from being removed, and Unix
    sockets of kernels whose connection file is gone.

    The folder may be a link; a folder that is given twice, or by two paths, counts once.
    """
    found: list[Candidate] = []
    unreadable: list[str] = []
    seen: set[tuple[int, int]] = set()
    for folder in runtime_dirs:
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                found += filter(None, map(_candidate, entries))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unreadable.append(f"{folder}: {error.strerror or error}")
    found.sort(key=lambda one: (one.modified_at, one.path))
    return Listing(found, unreadable)


def cut_short(runtime_dirs: Iterable[str], known_as: Collection[str]) -> list[Candidate]:
    """Those of these files that a removal has renamed before a crash."""
    found: list[Candidate] = []
    for folder in runtime_dirs:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            asides = [one for one in entries if files.name_before(one.name)]
            found += filter(None, map(_candidate, asides))
    return [one for one in found if one.named in known_as]


def _candidate(entry: os.DirEntry[str]) -> Candidate | None:
    before = files.name_before(entry.name)
    name = before or entry.name
    server, of_kernel = _SERVER.fullmatch(name), _SOCKET.fullmatch(name)
    if server is None and of_kernel is None and before != "" and not _KERNEL.fullmatch(name):
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    identity = FileIdentity.from_stat(status)
    # It may be the wrong one, which was to be put back: its age counts from the rename.
    since = status.st_mtime if before is None else max(status.st_mtime, status.st_ctime)
    folder = os.path.dirname(entry.path)
    if of_kernel is not None and stat.S_ISSOCK(status.st_mode):
        file = os.path.join(folder, f"{of_kernel.group(1)}.json")
        if os.path.lexists(file):  # It goes with that.
            return None
        return Candidate(entry.path, identity, status.st_uid, since, None, file, True)
    if not stat.S_ISREG(status.st_mode) or (of_kernel is not None and server is None):
        return None
    pid = int(server.group(1)) if server else None
    known = "" if before is None else os.path.join(folder, name)
    return Candidate(entry.path, identity, status.st_uid, since, pid, known)


def server_of(path: str) -> Server | None:
    """What a ``jpserver-*.json`` says, without its token; None when it says nothing."""
    info = sockets.load(path)
    if info is None or type(info.get("pid")) is not int:
        return None
    port = info.get("port")
    return Server(info["pid"], port if type(port) is int else None)


def sockets_of(path: str, ports: Ports | None) -> list[str]:
    """The Unix sockets that a connection file names, and that would go with it."""
    return sockets.of(path, ports)


def in_use(paths: Collection[str]) -> bool:
    """Whether something may have one of these Unix sockets bound. Asks the system now."""
    return bool(paths) and sockets.are_used(paths)


def has_listener(ports: Ports | None, listeners: tuple[Collection[int], Collection[str]]) -> Answer:
    """Whether something accepts connections where the kernel would.

    ``listeners``: TCP ports and Unix socket paths, from one look that serves a whole
    scan. UNKNOWN where that cannot be told: no ports in the file yet, a kernel on another
    machine.
    """
    if ports is None or not any(ports.ports):
        return Answer.UNKNOWN
    tcp, unix = listeners
    if ports.transport == "ipc":
        # A relative path is listed as it was bound: the name at its end must do.
        names = {os.path.basename(f"{ports.ip}-{port}") for port in ports.ports if port}
        used = any(os.path.basename(path) in names for path in unix)
        return Answer.YES if used else Answer.NO
    if ports.transport != "tcp":
        return Answer.UNKNOWN
    if any(port in tcp for port in ports.ports if port):
        return Answer.YES
    return Answer.NO if _is_this_machine(ports.ip) else Answer.UNKNOWN


def _is_this_machine(ip: str) -> bool:
    if ip in ("localhost", "127.0.0.1", "0.0.0.0", "*", "", "::", "::1"):
        return True
    # An address can be bound exactly where it belongs to this machine. No name is looked up.
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        socket.inet_pton(family, ip)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True


def users_of(path: str, table: Mentions, *, unheard: bool = False) -> Users:
    """Which living processes name the file in their arguments or have it open.

    By the file's name: the folder may go by several paths. A kernel that was forked from
    a template does neither; its owner's journal speaks for it. ``unheard``: nothing accepts
    connections where the file says. Then NO does not need the open files of everybody, and
    ``reason`` says what could not be seen: who has only the file open can read it on when
    it is gone.
    """
    pids = table.mentioned_by(path)
    if pids:
        return Users(Answer.YES, tuple(sorted(pids)), "a running process names it")
    names, blind = table.open_names
    if os.path.basename(path) in names:
        return Users(Answer.YES, (), "a running process has it open")
    if table.incomplete or (blind and not unheard):
        return Users(Answer.UNKNOWN, (), table.incomplete or blind)
    return Users(Answer.NO, (), blind)


def remove(
    path: str,
    *,
    expected: FileIdentity,
    runtime_dirs: Iterable[str] = (),
    recorded: bool = False,
) -> Removal:
    """Remove one connection file with its sockets, a socket, or a server file; never raises.

    ``expected`` is the file that the decision was about: written again, or swapped for
    another, it stays. It must lie directly in one of ``runtime_dirs`` and be named as
    Jupyter names such files, or be ``recorded`` in a journal as a connection file; then
    it may lie elsewhere, and must look like one.
    """
    folder, name = os.path.split(path)
    if not os.path.isabs(path):
        return Removal("refused", "not a full path")
    before = files.name_before(name)
    shown = before or name
    is_there = any(_same_folder(folder, one) for one in runtime_dirs)
    if is_there and _SOCKET.fullmatch(shown):
        return sockets.remove(path, expected)
    named = before == "" or bool(_KERNEL.fullmatch(shown) or _SERVER.fullmatch(shown))
    if not (named and is_there):
        if not recorded:
            return Removal("refused", "not a connection file in a Jupyter runtime folder")
        if identity_of(path) == expected and not _may_be_connection_file(path):
            return Removal("refused", "it does not look like a connection file")
    return sockets.remove_file(path, expected)


def _may_be_connection_file(path: str) -> bool:
    try:
        empty = os.stat(path, follow_symlinks=False).st_size == 0
    except OSError:
        return True  # gone or hidden: the removal itself says so
    return empty or ports_of(path) is not None


def _same_folder(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
