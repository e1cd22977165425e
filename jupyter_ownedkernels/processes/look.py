"""Taking a snapshot of this machine, and saying what it may lack."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from .. import identity
from ..marks import MARKS, PARENT_VARIABLE, PREFIX
from ..runtime import procfs
from . import adopter
from .snapshot import Snapshot

_CAP_SYS_PTRACE = 19
_PREFIXES = (PREFIX.encode(), PARENT_VARIABLE.encode())


class _ProcReader:
    """The late facts of this machine."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = pids
        self._adopter: int | None = None

    def marks(self, pid: int) -> Mapping[str, str] | None:
        # Not procfs.environ(): decoding every variable of 5,000 processes takes 0.3 s, and
        # what is not looked at cannot be given away.
        try:
            fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            return None
        try:
            raw = b""
            while part := os.read(fd, 1 << 16):
                raw += part
        except ProcessLookupError:
            return None
        finally:
            os.close(fd)
        if not any(mark in raw for mark in _PREFIXES):
            return {}
        found = [part for part in raw.split(b"\0") if part.startswith(_PREFIXES)]
        pairs = (os.fsdecode(part).partition("=") for part in found)
        return {name: value for name, _, value in pairs if name in MARKS}

    def open_files(self, pid: int) -> list[str] | None:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, ProcessLookupError):
            return None
        found = []
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if target.startswith("/"):
                found.append(target)
        return found

    def exists(self, pid: int) -> bool | None:
        return procfs.exists(pid)

    def uid(self, pid: int) -> int | None:
        return procfs.uid(pid)

    def pid_namespace(self, pid: int) -> int:
        return procfs.pid_namespace(pid)

    def listeners(self) -> tuple[frozenset[int], frozenset[str]]:
        ports: set[int] = set(procfs.tcp_listeners())
        paths: set[str] = set(procfs.unix_listeners())
        seen = {_network(0)}
        for pid in self._pids:
            # Containers: few, and most machines have none.
            network = _network(pid)
            if network is not None and network not in seen:
                seen.add(network)
                try:
                    ports.update(procfs.tcp_listeners(pid))
                    paths.update(procfs.unix_listeners(pid))
                except OSError:
                    continue
        return frozenset(ports), frozenset(paths)

    def adopts(self, pid: int) -> bool:
        if self._adopter is None:
            self._adopter = adopter.of_this_process()
        return self._adopter == pid


def _network(pid: int) -> int | None:
    """Tells network namespaces apart: by a file that each has one of.

    Unlike the link in ns/ it may be looked at, and read, for every process.
    """
    try:
        return os.stat(f"/proc/{pid or 'self'}/net/tcp").st_ino
    except OSError:
        return None


def take() -> Snapshot:
    """Look at this machine now. About 30 µs a process. OSError without /proc."""
    processes, hidden = procfs.table() if os.path.isdir("/proc") else ({}, set())
    if os.getpid() not in processes:
        raise OSError("there is no /proc here: the processes of this machine cannot be seen")
    uids: dict[int, int] = {}
    argvs: dict[int, tuple[str, ...]] = {}
    for pid, entry in processes.items():
        try:
            # procfs.uid() reads a second file for each of root's: 0.1 s for 5,000 of them.
            uids[pid] = os.stat(f"/proc/{pid}").st_uid
        except (FileNotFoundError, ProcessLookupError):
            continue
        if entry.alive:
            try:
                argv = procfs.cmdline(pid)
            except OSError:
                hidden.add(pid)
                continue
            if argv:
                argvs[pid] = argv
    return Snapshot(
        world=identity.this_world(),
        uid=os.geteuid(),
        self_pid=os.getpid(),
        now=time.time(),
        uptime=time.clock_gettime(time.CLOCK_BOOTTIME),
        processes=processes,
        uids=uids,
        argvs=argvs,
        reader=_ProcReader(processes),
        hidden=frozenset(hidden),
        incomplete=_why_incomplete(hidden),
    )


def _why_incomplete(hidden: set[int]) -> str:
    if hidden:
        return f"{len(hidden)} processes may not be looked at"
    return hiding_option()


def hiding_option(mountinfo: str = "/proc/self/mountinfo") -> str:
    """Which mount option of /proc hides processes from this user; empty when none does."""
    try:
        with open(mountinfo, encoding="utf-8", errors="replace") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return "the mount options of /proc cannot be read"
    options = ""
    for fields in lines:
        if len(fields) > 9 and fields[4] == "/proc" and "proc" in fields[fields.index("-") + 1 :]:
            # The last mount over the folder is the one that is seen.
            options = fields[-1]
    settings = dict(part.partition("=")[::2] for part in options.split(","))
    if "subset" in settings:
        return "/proc is mounted with subset=pid"
    if settings.get("hidepid", "0") in ("0", "off") or sees_everything():
        return ""
    if settings.get("gid", "").isdigit() and int(settings["gid"]) in os.getgroups():
        return ""
    return "/proc is mounted with hidepid: other users' processes cannot be seen"


def sees_everything() -> bool:
    """Whether hidepid hides nothing from this process: it may trace every other one."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as stream:
            fields = dict(line.partition(":")[::2] for line in stream)
        with open("/proc/self/uid_map", encoding="ascii") as stream:
            mapping = stream.read().split()
    except OSError:
        return False
    capable = int(fields.get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1
    # The root of a user namespace is not exempt from what belongs to the one above.
    return bool(capable) and mapping == ["0", "0", "4294967295"]
