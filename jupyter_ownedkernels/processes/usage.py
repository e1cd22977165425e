"""What the kernels' processes use: one pass over the process table for all kernels."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ..identity import Identity
from ..runtime import procfs
from ..runtime.procfs import Stat
from .table import Table, Top
from .tree import Process, tree

# A clock tick is 10 ms: over one second the share of a processor is told to 1 %.
_NEAREST_LOOK = 1.0
# Farther back than this an average says nothing about now.
_FARTHEST_LOOK = 300.0
_LOOKS_APART = 0.5


# Named tuples: they are made anew for each kernel and request, in a fifth of the time.


class Group(NamedTuple):
    """Where the processes of one launch are found."""

    key: str
    """Names the launch among all that are looked at."""
    top: Identity
    """Its keeper; without one, the launched process."""
    top_belongs: bool
    """Whether ``top`` is one of them: not when it is a keeper."""
    sessions: tuple[int, ...]
    connection_file: str

    @property
    def key_of_top(self) -> Top:
        return (self.top.pid, self.top.start_ticks, self.top_belongs)


class Load(NamedTuple):
    """What the processes of one launch use together."""

    cpu_s: float
    cpu_percent: float | None
    """Of one processor, since an earlier look; None when there was none."""
    rss_bytes: int
    process_count: int
    detached_count: int


def members_of(group: Group, table: Table) -> dict[int, Stat] | None:
    """The group's living processes; None when its top is gone."""
    top = table.processes.get(group.top.pid)
    if top is None or top.start_ticks != group.top.start_ticks:
        return None
    found = table.below(group.key_of_top)
    if group.top_belongs:
        found[top.pid] = top
    return {pid: entry for pid, entry in found.items() if entry.alive}


def processes_of(group: Group, members: Mapping[int, Stat]) -> list[Process]:
    """The group's processes as a tree, parents before their children."""
    # Links are taken from the parents' numbers: a root that no process can be.
    root = -1
    table = dict(members)
    for pid, entry in members.items():
        if entry.ppid not in members:
            table[pid] = entry._replace(ppid=root)
    found = tree(root, group.connection_file, group.sessions, table)
    return [replace(one, ppid=members[one.pid].ppid) for one in found]


class Meter:
    """Remembers earlier looks, so that the use of processors can be told. Thread-safe."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[float, dict[tuple[int, int], int]]]] = {}
        self._lock = threading.Lock()

    def read(self, table: Table, groups: Iterable[Group]) -> dict[str, Load]:
        """The loads by key; a launch whose top is gone has none.

        Reads more of /proc only for kernels with processes outside their sessions.
        """
        loads: dict[str, Load] = {}
        ticks: dict[str, dict[tuple[int, int], int]] = {}
        for group in groups:
            members = members_of(group, table)
            if members is None:
                continue
            own = {(pid, one.start_ticks): one.cpu_ticks for pid, one in members.items()}
            ticks[group.key] = own
            loads[group.key] = Load(
                cpu_s=sum(own.values()) / procfs.CLOCK_TICKS,
                cpu_percent=self._percent(group.key, table.at, own),
                rss_bytes=sum(one.rss_pages for one in members.values()) * procfs.PAGE_SIZE,
                process_count=len(members),
                detached_count=_detached(group, members),
            )
        self._remember(table.at, ticks)
        return loads

    def _percent(self, key: str, now: float, ticks: Mapping[tuple[int, int], int]) -> float | None:
        with self._lock:
            looks = list(self._looks.get(key, ()))
        for at, before in reversed(looks):
            if _NEAREST_LOOK <= now - at <= _FARTHEST_LOOK:
                # A process that is new since then has used all of its time since then.
                used = sum(spent - before.get(one, 0) for one, spent in ticks.items())
                return round(100.0 * used / procfs.CLOCK_TICKS / (now - at), 1)
        return None

    def _remember(self, now: float, ticks: dict[str, dict[tuple[int, int], int]]) -> None:
        with self._lock:
            for key, own in ticks.items():
                looks = self._looks.setdefault(key, deque(maxlen=8))
                if not looks or now - looks[-1][0] >= _LOOKS_APART:
                    looks.append((now, own))
            for key in [
                one for one, looks in self._looks.items() if now - looks[-1][0] > _FARTHEST_LOOK
            ]:
                del self._looks[key]


def _detached(group: Group, members: Mapping[int, Stat]) -> int:
    if all(entry.session in group.sessions for entry in members.values()):
        return 0
    return sum(one.detached for one in processes_of(group, members))
