"""Who belongs to a kernel: core or detached, and which process is the kernel itself."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Callable, NamedTuple

from . import listening, procfs
from .procfs import Stat

# Far more than an exec takes; a process may have wiped its vector, and is not waited for.
_LOOKS_DURING_EXEC = 20
_EXEC_PAUSE = 0.002


class Split(NamedTuple):
    """The processes of one launch. Every descendant is in exactly one of the two."""

    core: dict[int, Stat]
    detached: dict[int, Stat]


class Looks(NamedTuple):
    """How a process shows what it runs: its executable and its argument vector."""

    executable: str | None
    argv: tuple[str, ...]


def looks(pid: int) -> Looks:
    """What the process runs; empty when it is gone or may not be read.

    In the middle of an exec there is a program, but no argument vector yet: a kernel that
    was just then looked at would be taken for something else. So that is looked at again.
    """
    try:
        for _ in range(_LOOKS_DURING_EXEC):
            seen = Looks(procfs.executable(pid), procfs.cmdline(pid) or ())
            if seen.argv or seen.executable is None:
                break
            time.sleep(_EXEC_PAUSE)
    except PermissionError:
        return Looks(None, ())
    return seen


def _depth(entry: Stat, processes: dict[int, Stat]) -> int:
    depth = 0
    while entry.ppid in processes and depth < len(processes):
        entry = processes[entry.ppid]
        depth += 1
    return depth


def kernel_process(
    processes: dict[int, Stat],
    connection_file: str,
    look: Callable[[int], Looks] = looks,
) -> Stat | None:
    """The deepest process that has the connection file's path as an argument.

    Wrappers such as ``conda run`` or ``sudo`` carry the path too, hence the deepest. A
    process that looks like its nearest ancestor with the path is a fork of it without
    exec (a worker of a pool, say) and never the kernel. None when nothing has the path.
    """
    if not connection_file:
        return None
    bearing = {}
    for pid, entry in processes.items():
        if entry.alive:
            seen = look(pid)
            if connection_file in seen.argv:
                bearing[pid] = seen
    found: list[tuple[int, int, int]] = []
    for pid in bearing:
        above = processes[pid].ppid
        steps = 0
        while above in processes and above not in bearing and steps < len(processes):
            above = processes[above].ppid
            steps += 1
        if above in bearing and bearing[above] == bearing[pid]:
            continue
        found.append((-_depth(processes[pid], processes), processes[pid].start_ticks, pid))
    return processes[min(found)[2]] if found else None


class Facts:
    """What is known of one launch and stays true after its kernel is gone."""

    def __init__(
        self, connection_file: str = "", ports: Iterable[int] = (), kill_detached: bool = False
    ) -> None:
        self.connection_file = connection_file
        self.ports: frozenset[int] = frozenset(ports)
        self.kill_detached = kill_detached
        self.sessions: set[int] = set()
        self.launched: int | None = None
        """The keeper's own child, until it is reaped: it has no session of its own yet, perhaps."""
        self.listeners: set[int] = set()
        self.kernel: Stat | None = None
        self._kernel_looks: Looks | None = None
        self._settled = False

    def learn(
        self, processes: dict[int, Stat], settle: bool = False, listeners: bool = True
    ) -> Stat | None:
        """Look for the kernel process and what it listens on; remember both.

        Called while the kernel lives, since afterwards neither can be read any more.
        With ``settle`` (the kernel is up, no user code has run yet) the answer is kept:
        a console that a cell starts with the same connection file is not the kernel.
        ``listeners`` false leaves out what it listens on: up to 10 ms where /proc has to
        be read for it, too much for each of several looks in a row.
        """
        if not self._settled:
            kernel = kernel_process(processes, self.connection_file)
            if kernel is not None:
                self.kernel = kernel
                self._kernel_looks = looks(kernel.pid)
                self.sessions.add(kernel.session)
            self._settled = settle and kernel is not None
        if listeners and self.ports and not self.listeners and processes:
            # Of the kernel's own network namespace, should a wrapper have made one.
            where = self.kernel or next(iter(processes.values()))
            for inodes in listening.tcp_listeners(where.pid, self.ports).values():
                self.listeners |= inodes
        return self.kernel

    def is_fork_of_kernel(self, pid: int) -> bool:
        """A fork without exec: it would keep the kernel's ports or pose as the kernel."""
        seen = looks(pid)
        if self._kernel_looks is not None:
            # Two that show nothing do not look alike.
            if seen.argv and seen == self._kernel_looks:
                return True
        elif self.connection_file and self.connection_file in seen.argv:
            return True
        if not self.listeners:
            return False
        try:
            return not self.listeners.isdisjoint(procfs.socket_inodes(pid))
        except PermissionError:
            return False

    def split(self, processes: dict[int, Stat]) -> Split:
        """Sort living descendants of the launch into core and detached."""
        core: dict[int, Stat] = {}
        detached: dict[int, Stat] = {}
        for pid, entry in processes.items():
            if not entry.alive:
                continue
            belongs = pid == self.launched or entry.session in self.sessions
            belongs = belongs or self.is_fork_of_kernel(pid)
            (core if belongs else detached)[pid] = entry
        return Split(core, detached)

    def doomed(self, processes: dict[int, Stat]) -> list[Stat]:
        """What must end when the launch is retired, by its policy."""
        core, detached = self.split(processes)
        ending = list(core.values())
        return [*ending, *detached.values()] if self.kill_detached else ending
