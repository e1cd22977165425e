"""Reading /proc: the one place that knows its formats.

Every reader has the same three answers: a value, ``None`` (the process is gone) or
``OSError`` (it exists and cannot be read; ``PermissionError``: may not be read).
Callers must never take the third for the second: "I may not look" is not "there is
nothing". And with ``hidepid=2`` a process that may not be read looks as if it were
gone, so ``None`` alone proves no death: see :func:`exists`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Container, Iterator
from typing import NamedTuple

CLOCK_TICKS: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_SIZE: int = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)
_TCP_LISTEN = b"0A"
_EXITING = 0x4  # PF_EXITING in the flags column of a stat line
# A row's own port, the state, and the inode five columns on.
_LISTENER = re.compile(rb":([0-9A-F]{4}) [0-9A-F]+:0000 0A \S+ \S+ +\S+ +\d+ +\d+ +(\d+)")
_UNIX_ACCEPTING = 0x10000  # __SO_ACCEPTCON in the flags column of /proc/net/unix


class Stat(NamedTuple):
    """One line of /proc/PID/stat, the columns that are used here.

    ``start_ticks`` is the start time in clock ticks since boot: with the pid and the
    boot id it names one process for ever, whatever is done to the wall clock.
    """

    pid: int
    name: str
    state: str
    ppid: int
    pgrp: int
    session: int
    start_ticks: int
    cpu_ticks: int
    rss_pages: int
    threads: int

    @property
    def alive(self) -> bool:
        """False for a zombie (Z) and for a process being removed (X).

        A process whose main thread has left shows Z while its other threads run on.
        """
        return self.state not in "ZX" or self.threads > 1


def parse_stat(raw: bytes) -> Stat:
    """Parse one stat line. The name may hold spaces, brackets and newlines."""
    opening, closing = raw.index(b"("), raw.rindex(b")")
    rest = raw[closing + 2 :].split()
    return Stat(
        pid=int(raw[:opening]),
        name=raw[opening + 1 : closing].decode("utf-8", "replace"),
        state=rest[0].decode("ascii"),
        ppid=int(rest[1]),
        pgrp=int(rest[2]),
        session=int(rest[3]),
        start_ticks=int(rest[19]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        rss_pages=int(rest[21]),
        threads=int(rest[17]),
    )


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks: list[bytes] = []
            while True:
                chunk = os.read(fd, 65536)
                if not chunk:
                    return b"".join(chunks)
                chunks.append(chunk)
        finally:
            os.close(fd)
    except _GONE:
        return None


def stat(pid: int) -> Stat | None:
    """The process's stat line; None when it is gone; OSError when it cannot be read."""
    raw = _read(f"/proc/{pid}/stat")
    if raw is None:
        return None
    try:
        return parse_stat(raw)
    except (ValueError, IndexError):
        raise OSError(errno.EIO, "not a stat line", f"/proc/{pid}/stat") from None


def exists(pid: int) -> bool | None:
    """Whether any process has the number, asked without /proc; None when not to be told.

    Anybody may ask for the group of any process, also of one that /proc hides.
    """
    if not hasattr(os, "getpgid"):
        return None
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return None
    return True


def is_ending(pid: int) -> bool:
    """Whether every thread of the process is on its way out; False when that cannot be told.

    A process that is killed closes its files one by one before others see its end: on a
    machine with much to do that may take seconds.
    """
    folder = f"/proc/{pid}/task"
    try:
        raw = [_read(f"{folder}/{task}/stat") for task in os.listdir(folder)]
        return all(int(one[one.rindex(b")") + 2 :].split()[6]) & _EXITING for one in raw if one)
    except (OSError, ValueError, IndexError):
        return False


def pid_of(pidfd: int) -> int | None:
    """The number of the process that a pidfd stands for; None when it has been reaped."""
    for line in (_read(f"/proc/self/fdinfo/{pidfd}") or b"").splitlines():
        name, _, value = line.partition(b":")
        if name == b"Pid":
            return int(value) if int(value) > 0 else None
    return None


def pids() -> Iterator[int]:
    """The numbers of all processes that /proc shows at this moment."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def table() -> tuple[dict[int, Stat], set[int]]:
    """All processes by pid, and the pids whose stat line may not be read."""
    found: dict[int, Stat] = {}
    hidden: set[int] = set()
    for pid in pids():
        try:
            entry = stat(pid)
        except OSError:
            hidden.add(pid)
            continue
        if entry is not None:
            found[pid] = entry
    return found, hidden


def cmdline(pid: int) -> tuple[str, ...] | None:
    """The argument vector; empty for a zombie or a kernel thread, None when gone."""
    raw = _read(f"/proc/{pid}/cmdline")
    if raw is None:
        return None
    if not raw:
        return ()
    if raw.endswith(b"\0"):
        raw = raw[:-1]
    return tuple(os.fsdecode(part) for part in raw.split(b"\0"))


def environ(pid: int) -> dict[str, str] | None:
    """The environment that the process was executed with. Never log or store it."""
    raw = _read(f"/proc/{pid}/environ")
    if raw is None:
        return None
    pairs = (os.fsdecode(part).partition("=") for part in raw.split(b"\0") if part)
    return {name: value for name, _, value in pairs}


def executable(pid: int) -> str | None:
    """What /proc/PID/exe points to; None when gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except _GONE:
        return None


def uid(pid: int) -> int | None:
    """The effective user id; None when gone."""
    # The folder itself, unlike the files in it, is the user's even for a process that must
    # not be dumped.
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except _GONE:
        return None


def children(pid: int) -> list[int] | None:
    """Direct children by way of /proc/PID/task/*/children.

    Reads one small file per thread instead of the whole process table. May miss one
    while siblings end, so callers that need certainty walk again until nothing
    changes. None when the process is gone; OSError when the system has no such file.
    """
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except _GONE:
        return None
    found: list[int] = []
    for task in tasks:
        raw = _read(f"/proc/{pid}/task/{task}/children")
        if raw:
            found.extend(int(number) for number in raw.split())
    return found


def has_children_files() -> bool:
    """Whether the kernel was built with the per-thread list of children."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def descendants(root: int, snapshot: dict[int, Stat] | None = None) -> dict[int, Stat]:
    """Every process below ``root`` (itself left out), zombies included.

    With a ``snapshot`` of the whole table the links are taken from it, else from the
    lists of children. A process that /proc hides from this user is left out: it is
    another user's, and could not be signalled either.
    """
    found: dict[int, Stat] = {}
    if snapshot is not None:
        below: dict[int, list[int]] = {}
        for entry in snapshot.values():
            below.setdefault(entry.ppid, []).append(entry.pid)
        pending = list(below.get(root, ()))
        while pending:
            pid = pending.pop()
            if pid in found or pid == root:
                continue
            found[pid] = snapshot[pid]
            pending.extend(below.get(pid, ()))
        return found
    pending = children(root) or []
    while pending:
        pid = pending.pop()
        if pid in found or pid == root:
            continue
        try:
            seen = stat(pid)
            if seen is not None:
                found[pid] = seen
                pending.extend(children(pid) or ())
        except PermissionError:
            continue
    return found


def proportional_memory(pid: int) -> int | None:
    """Bytes of memory, shared pages divided among their users; None when gone or not told.

    The system adds up page by page: 0.3 ms for a small process.
    """
    for line in (_read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def socket_inodes(pid: int) -> frozenset[int]:
    """Inode numbers of the sockets that the process has open; empty when gone."""
    folder = f"/proc/{pid}/fd"
    inodes: set[int] = set()
    try:
        names = os.listdir(folder)
    except _GONE:
        return frozenset()
    for name in names:
        try:
            target = os.readlink(folder + "/" + name)
        except _GONE:
            continue
        if target.startswith("socket:["):
            inodes.add(int(target[8:-1]))
    return frozenset(inodes)


def tcp_listeners(pid: int = 0, wanted: Container[int] | None = None) -> dict[int, set[int]]:
    """Port to inodes of the TCP sockets that listen in the process's network namespace.

    All of them, or those of the ports that are ``wanted``. In bytes and with one pattern:
    with a thousand listeners on the machine (some 170 kernels) a look in lines of text takes
    7 ms of processor time, this 2. Who looks often asks :mod:`.listening`.
    """
    found: dict[int, set[int]] = {}
    for name in ("tcp", "tcp6"):
        rows = _listening_rows(f"/proc/{pid or 'self'}/net/{name}")
        for port_in_hex, inode in _LISTENER.findall(rows):
            port = int(port_in_hex, 16)
            if wanted is None or port in wanted:
                found.setdefault(port, set()).add(int(inode))
    return found


def _listening_rows(path: str) -> bytes:
    """The rows up to the first that is in another state.

    The kernel prints listening sockets first: on a machine with a large connection table
    the rest costs milliseconds.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except _GONE:
        return b""
    chunks = []
    try:
        while True:
            chunk = os.read(fd, 65536)
            chunks.append(chunk)
            # The system hands out whole rows, of 150 bytes each.
            last = chunk[-400:].rstrip().rpartition(b"\n")[2].split(None, 4)
            if not chunk or (len(last) == 5 and last[3] not in (_TCP_LISTEN, b"st")):
                return b"".join(chunks)
    finally:
        os.close(fd)


def unix_listeners(pid: int = 0) -> dict[str, int]:
    """Path to inode of the Unix sockets that accept connections."""
    rows = _unix_rows(str(pid) if pid else "self") or ()
    return {path: inode for path, inode, flags in rows if flags & _UNIX_ACCEPTING}


def unix_names() -> set[str] | None:
    """Paths to which sockets are bound, listening or not; None where that is not told."""
    rows = _unix_rows("self")
    return None if rows is None else {path for path, _, _ in rows}


def _unix_rows(pid: str) -> list[tuple[str, int, int]] | None:
    raw = _read(f"/proc/{pid}/net/unix")
    if raw is None:
        return None
    rows = []
    # By bytes: a name may hold any but NUL. What it has after a line's end is no row.
    for line in raw.split(b"\n")[1:]:
        columns = line.split(None, 7)
        if len(columns) == 8:
            with contextlib.suppress(ValueError):
                rows.append((os.fsdecode(columns[7]), int(columns[6]), int(columns[3], 16)))
    return rows


def boot_id() -> str:
    """Random id of this boot; empty where the system does not tell."""
    raw = _read("/proc/sys/kernel/random/boot_id")
    return raw.decode("ascii").strip() if raw else ""


def pid_namespace(pid: int = 0) -> int:
    """Inode of the pid namespace of a process (0: the caller); 0 where unknown."""
    try:
        return os.stat("/proc/%s/ns/pid" % (str(pid) if pid else "self")).st_ino
    except OSError:
        return 0


def is_own_view() -> bool:
    """Whether the numbers and times in /proc are those of the caller's own namespaces.

    In a new pid namespace under an old /proc (unshare without a fresh mount) our pid
    names another process there; in a time namespace start times are shifted by an offset
    that other processes do not see. Nothing can be proven from either.
    """
    for line in (_read("/proc/self/status") or b"").splitlines():
        if line.startswith(b"NSpid:"):
            if line.split()[1:] != [b"%d" % os.getpid()]:
                return False
            break
    else:
        try:
            if os.readlink("/proc/self") != str(os.getpid()):
                return False
        except OSError:
            return False
    for line in (_read("/proc/self/timens_offsets") or b"").splitlines():
        if line.split()[0] == b"boottime" and line.split()[1:] != [b"0", b"0"]:
            return False
    return True


def host() -> str:
    """The name of this host as the system says it."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
