"""Where a kernel listens, by its connection file; and removing the file with its Unix sockets.

With the transport ipc a kernel binds Unix sockets: the file's ``ip``, a dash, a port. The
system leaves such a name behind when the process ends. Nobody can listen on it again, since
whoever binds makes a new socket: it only has to be certain that nobody does now.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import PORT_NAMES, files, procfs
from .files import FileIdentity, Removal
from .lock import READ_FLAGS

_LARGEST = 64 << 10
_LIST = "/proc/self/net/unix"


class Ports(NamedTuple):
    """Where a kernel listens. ``ip`` is the path's beginning when transport is ipc."""

    transport: str
    ip: str
    ports: tuple[int, ...]


def ports_of(path: str, expected: FileIdentity | None = None) -> Ports | None:
    """Where the kernel of a connection file listens; None when the file does not tell."""
    info = load(path, expected)
    if info is None:
        return None
    transport, ip = info.get("transport", "tcp"), info.get("ip")
    ports = tuple(info[name] for name in PORT_NAMES if type(info.get(name)) is int)
    if not isinstance(transport, str) or not isinstance(ip, str) or not ports:
        return None
    return Ports(transport, ip, ports)


def load(path: str, expected: FileIdentity | None = None) -> dict[str, Any] | None:
    """A small JSON object in a regular file, no link; of another than ``expected`` nothing."""
    try:
        fd = os.open(path, READ_FLAGS)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            if expected is not None and FileIdentity.from_stat(status) != expected:
                return None
            data = os.read(fd, _LARGEST + 1)
        finally:
            os.close(fd)
        info = json.loads(data) if len(data) <= _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    return info if isinstance(info, dict) else None


def of(path: str, ports: Ports | None) -> list[str]:
    """The Unix sockets of this user that a connection file names and that lie beside it.

    Those elsewhere, or named from a folder that the file does not tell, are not looked for;
    nor are any where the system does not list who has bound them.
    """
    if ports is None or ports.transport != "ipc" or not os.path.isabs(ports.ip):
        return []
    try:
        beside = os.path.samefile(os.path.dirname(path), os.path.dirname(ports.ip))
        if not beside or not os.path.exists(_LIST):
            return []
        # As the kernel has bound them: by way of a link a path may be short enough for that.
        names = sorted({f"{ports.ip}-{port}" for port in ports.ports if port > 0})
        return [name for name in names if _is_ours(name)]
    except (OSError, ValueError):
        return []


def _is_ours(path: str) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()


def are_used(paths: Iterable[str]) -> bool:
    """Whether a process has one of these sockets bound, or may have: in doubt it has."""
    try:
        bound = procfs.unix_names()
        if bound is None:
            return True
        # A relative path is listed as it was bound: the name at its end must do.
        names = {os.path.basename(one) for one in bound}
        return any(os.path.basename(path) in names or not _refuses(path) for path in paths)
    except OSError:
        return True


def _refuses(path: str) -> bool:
    """The list is that of this network namespace alone; the file is the same in all of them."""
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            # By way of the folder: the whole path may be longer than an address may be.
            probe.connect(f"/proc/self/fd/{fd}/{name}")
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def remove(path: str, expected: FileIdentity) -> Removal:
    """Remove one socket of this user that nobody uses; never raises.

    ``expected`` was looked at before: what is bound since then is another file.
    """
    if files.identity_of(path) == expected and are_used([path]):
        return Removal("refused", "something may use it")
    return files.remove(path, expected, socket=True)


def remove_file(path: str, expected: FileIdentity | None = None) -> Removal:
    """Remove a connection file as :func:`.files.remove` does, its sockets before it.

    If one of those may be in use, or changes meanwhile, the file stays too: by it whoever
    uses them is found.
    """
    looked_at = {one: files.identity_of(one) for one in of(path, ports_of(path, expected))}
    if looked_at and are_used(looked_at):
        return Removal("refused", "something may use its sockets")
    removed = 0
    for one, identity in looked_at.items():
        if identity is not None:
            removal = files.remove(one, identity, socket=True)
            if removal.outcome not in ("removed", "already-gone"):
                return Removal(removal.outcome, f"one of its sockets: {removal.reason}")
            removed += removal.removed
    removal = files.remove(path, expected)
    if removal.removed and removed:
        return Removal("removed", f"with {removed} socket{'s' if removed > 1 else ''}")
    return removal
