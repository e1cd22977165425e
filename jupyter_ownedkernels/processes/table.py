"""The process table, looked at again and again for the sake of a few processes in it.

A look at 600 processes takes 10 ms, most of it in the system. But what is no descendant of
a kernel's keeper never becomes one: only what was one in the look before, and what is new,
is read. The rest is known to be the same process by its inode in /proc, which comes with
the list of the names for nothing and is another one when a number is used again. For
figures only; a signal needs a proof.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..runtime import procfs
from ..runtime.procfs import Stat

Top = tuple[int, int, bool]
"""Pid and start ticks of a process whose descendants matter, and whether itself does."""


@dataclass(frozen=True)
class Table:
    """All processes at one moment, with the links from parent to child.

    Of those below ``tops`` all is true at that moment; of others only what stays the same.
    """

    at: float
    """On the monotonic clock."""
    processes: Mapping[int, Stat]
    children: Mapping[int, list[int]]
    tops: frozenset[Top] = frozenset()
    inodes: Mapping[int, int] = field(default_factory=dict, repr=False)
    watched: frozenset[int] = field(default_factory=frozenset, repr=False)

    @classmethod
    def take(cls, tops: Iterable[Top] = (), before: Table | None = None) -> Table:
        """Look at the processes below ``tops``. Call it off the event loop.

        ``before`` is an earlier look, with which this one takes a third of the time.
        """
        wanted = frozenset(tops)
        if before is not None and not before.can_follow(wanted):
            before = None
        processes: dict[int, Stat] = {}
        inodes: dict[int, int] = {}
        for pid, inode in _numbers():
            seen = _seen_before(pid, inode, before) or _read(pid)
            if seen is not None:
                processes[pid] = seen
                inodes[pid] = inode
        at = time.monotonic()
        children: dict[int, list[int]] = {}
        for one in processes.values():
            children.setdefault(one.ppid, []).append(one.pid)
        table = cls(at, processes, children, wanted, inodes)
        watched = {pid for top in wanted for pid in table.below(top)}
        watched |= {top[0] for top in wanted if top[2]}
        return cls(at, processes, children, wanted, inodes, frozenset(watched))

    def below(self, top: Top) -> dict[int, Stat]:
        """The descendants of a process; empty when it is gone."""
        entry = self.processes.get(top[0])
        if entry is None or entry.start_ticks != top[1]:
            return {}
        found: dict[int, Stat] = {}
        pending = list(self.children.get(top[0], ()))
        while pending:
            pid = pending.pop()
            if pid not in found:
                found[pid] = self.processes[pid]
                pending.extend(self.children.get(pid, ()))
        return found

    def can_follow(self, tops: Collection[Top]) -> bool:
        """Whether a look at these may leave out what this one has seen."""
        return all(top in self.tops or top[0] not in self.processes for top in tops)


def _numbers() -> Iterator[tuple[int, int]]:
    """Pid and inode of everything in /proc; nothing where there is none."""
    if os.path.isdir("/proc"):
        with os.scandir("/proc") as entries:
            for entry in entries:
                if entry.name.isdigit():
                    yield int(entry.name), entry.inode()


def _seen_before(pid: int, inode: int, before: Table | None) -> Stat | None:
    if before is None or pid in before.watched or before.inodes.get(pid) != inode:
        return None
    return before.processes[pid]


def _read(pid: int) -> Stat | None:
    try:
        return procfs.stat(pid)
    except OSError:
        return None
