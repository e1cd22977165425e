"""Reading /proc: the one place that knows its formats.

Every reader has the same three answers: a value, ``None`` (the process is gone) or
``PermissionError`` (it exists and may not be read). Callers must never take the
third for the second: "I may not look" is not "there is nothing".
"""

from __future__ import annotations

import os
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple

CLOCK_TICKS: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_SIZE: int = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)
_TCP_LISTEN = "0A"
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

    @property
    def alive(self) -> bool:
        """False for a zombie (Z) and for a process being removed (X)."""
        return self.state not in "ZX"


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
    )


def _read(path: str) -> Optional[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks = []
            while True:
                chunk = os.read(fd, 65536)
                if not chunk:
                    return b"".join(chunks)
                chunks.append(chunk)
        finally:
            os.close(fd)
    except _GONE:
        return None


def stat(pid: int) -> Optional[Stat]:
    """The process's stat line; None when it is gone; PermissionError when hidden."""
    raw = _read("/proc/%d/stat" % pid)
    return parse_stat(raw) if raw else None


def pids() -> Iterator[int]:
    """The numbers of all processes that /proc shows at this moment."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def table() -> Tuple[Dict[int, Stat], Set[int]]:
    """All processes by pid, and the pids whose stat line may not be read."""
    found: Dict[int, Stat] = {}
    hidden: Set[int] = set()
    for pid in pids():
        try:
            entry = stat(pid)
        except PermissionError:
            hidden.add(pid)
            continue
        if entry is not None:
            found[pid] = entry
    return found, hidden


def cmdline(pid: int) -> Optional[Tuple[str, ...]]:
    """The argument vector; empty for a zombie or a kernel thread, None when gone."""
    raw = _read("/proc/%d/cmdline" % pid)
    if raw is None:
        return None
    if not raw:
        return ()
    if raw.endswith(b"\0"):
        raw = raw[:-1]
    return tuple(os.fsdecode(part) for part in raw.split(b"\0"))


def environ(pid: int) -> Optional[Dict[str, str]]:
    """The environment that the process was executed with. Never log or store it."""
    raw = _read("/proc/%d/environ" % pid)
    if raw is None:
        return None
    pairs = (os.fsdecode(part).partition("=") for part in raw.split(b"\0") if part)
    return {name: value for name, _, value in pairs}


def executable(pid: int) -> Optional[str]:
    """What /proc/PID/exe points to; None when gone."""
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except _GONE:
        return None


def uid(pid: int) -> Optional[int]:
    """The effective user id; None when gone."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except _GONE:
        return None


def children(pid: int) -> Optional[List[int]]:
    """Direct children by way of /proc/PID/task/*/children.

    Reads one small file per thread instead of the whole process table. May miss one
    while siblings end, so callers that need certainty walk again until nothing
    changes. None when the process is gone; OSError when the system has no such file.
    """
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except _GONE:
        return None
    found: List[int] = []
    for task in tasks:
        raw = _read("/proc/%d/task/%s/children" % (pid, task))
        if raw:
            found.extend(int(number) for number in raw.split())
    return found


def has_children_files() -> bool:
    """Whether the kernel was built with the per-thread list of children."""
    return os.path.exists("/proc/self/task/%d/children" % os.getpid())


def descendants(root: int, snapshot: Optional[Dict[int, Stat]] = None) -> Dict[int, Stat]:
    """Every process below ``root`` (itself left out), zombies included.

    With a ``snapshot`` of the whole table the links are taken from it, else from the
    lists of children.
    """
    found: Dict[int, Stat] = {}
    if snapshot is not None:
        below: Dict[int, List[int]] = {}
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
        entry = stat(pid)
        if entry is None:
            continue
        found[pid] = entry
        pending.extend(children(pid) or ())
    return found


def socket_inodes(pid: int) -> FrozenSet[int]:
    """Inode numbers of the sockets that the process has open; empty when gone."""
    folder = "/proc/%d/fd" % pid
    inodes: Set[int] = set()
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


def tcp_listeners(pid: int = 0) -> Dict[int, Set[int]]:
    """Port to inodes of the TCP sockets that listen in the process's network namespace.

    The kernel prints listening sockets first, so reading stops at the first row that
    is in another state: on a machine with a large connection table the rest costs
    milliseconds.
    """
    found: Dict[int, Set[int]] = {}
    who = str(pid) if pid else "self"
    for name in ("tcp", "tcp6"):
        try:
            stream = open("/proc/%s/net/%s" % (who, name), encoding="ascii", errors="replace")
        except _GONE:
            continue
        with stream:
            next(stream, None)
            for line in stream:
                columns = line.split()
                if len(columns) < 10 or columns[3] != _TCP_LISTEN:
                    break
                port = int(columns[1].rpartition(":")[2], 16)
                found.setdefault(port, set()).add(int(columns[9]))
    return found


def unix_listeners(pid: int = 0) -> Dict[str, int]:
    """Path to inode of the Unix sockets that accept connections."""
    found: Dict[str, int] = {}
    raw = _read("/proc/%s/net/unix" % (str(pid) if pid else "self"))
    for line in (raw or b"").splitlines()[1:]:
        columns = line.split(None, 7)
        if len(columns) == 8 and int(columns[3], 16) & _UNIX_ACCEPTING:
            found[os.fsdecode(columns[7])] = int(columns[6])
    return found


def listening_inodes(pid: int) -> FrozenSet[int]:
    """Inodes of the listening sockets, TCP and Unix, that the process has open."""
    own = socket_inodes(pid)
    if not own:
        return own
    listening: Set[int] = set(unix_listeners(pid).values())
    for inodes in tcp_listeners(pid).values():
        listening |= inodes
    return own & frozenset(listening)


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


def host() -> str:
    """The name of this host as the system says it."""
    return os.uname().nodename
