"""What a launch has left behind, by positive proof only, and ending it.

A process is the launch's when its environment bears the launch's mark, when it bears
the owner's mark and is in a session on record, when it is a recorded process itself, or
when it was started, in such a session, by a process that is proven now. A session
number alone proves nothing, and neither does a name.

Used by start-up recovery, by the doctor, and by a living owner whose keeper was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

from ..models import LaunchRecord, Survivor
from ..runtime import procfs
from ..runtime.procfs import Stat
from ..runtime.retire import Leftover, Retirement, Target, run
from . import look as processes_look
from .snapshot import Snapshot

# A walk over the whole table for each of 200 kernels that end one by one would cost
# seconds: in between only the processes already found are looked at.
_FULL_LOOK = 0.05

Find = Callable[[], Iterable[Stat]]
"""Looks afresh and names what must end; see :func:`retire_all`."""


@dataclass(frozen=True)
class Left:
    """The living processes of one launch that are proven to be its own."""

    core: tuple[Stat, ...]
    detached: tuple[Stat, ...]

    def doomed(self, record: LaunchRecord) -> tuple[Stat, ...]:
        """What must end with the launch, by its policy."""
        kill = record.detached_policy == "kill"
        return (*self.core, *self.detached) if kill else self.core


def left_of(
    record: LaunchRecord,
    owner_id: str,
    table: Snapshot,
    spared: Collection[int] = (),
    marks: bool = True,
    learned: set[int] | None = None,
) -> Left:
    """What of a launch is alive, as core and detached.

    ``spared`` (processes that belong to a living owner), the caller and its ancestors
    are in neither. ``marks=False`` looks at recorded processes only, which reads no
    environment: enough where the keeper itself has reported what it left. ``learned``
    keeps, from one look to the next, sessions that are not on record: those of a kernel
    that a crash kept off it, which is gone when the next look finds what it has started.
    """
    untouchable = table.own_line.union(spared)
    core: dict[int, Stat] = {}
    detached: dict[int, Stat] = {}
    main = [
        entry
        for entry in (table.running(record.process), table.running(record.kernel))
        if entry is not None
    ]
    core.update((entry.pid, entry) for entry in main)
    sessions = _sessions(record, table).union(entry.session for entry in main)
    for survivor in record.survivors:
        entry = table.running(_identity(record, survivor))
        if entry is not None:
            (detached if survivor.reason == "detached" else core)[entry.pid] = entry
    if marks:
        launches, owners = table.marked
        marked = [table.processes[pid] for pid in launches.get(record.launch_id, ())]
        for pid in owners.get(owner_id, ()):
            if table.processes[pid].session in sessions:
                core[pid] = table.processes[pid]
        if not record.sessions:
            found = {one.session for one in marked if _names_file(record, table, one.pid)}
            sessions |= found if learned is None else (learned | found)
            if learned is not None:
                learned |= found
        for entry in marked:
            belongs = entry.session in sessions or _names_file(record, table, entry.pid)
            (core if belongs else detached)[entry.pid] = entry
    for pid in untouchable.intersection(core):
        del core[pid]
    _follow(core, sessions, table, untouchable)
    return Left(
        tuple(core.values()),
        tuple(
            entry for pid, entry in detached.items() if pid not in core and pid not in untouchable
        ),
    )


def _identity(record: LaunchRecord, survivor: Survivor) -> Any:
    # Survivors are named in the world of the keeper that reported them.
    named = record.keeper or record.process or record.kernel
    return survivor.identity(named.world) if named is not None else None


def _sessions(record: LaunchRecord, table: Snapshot) -> set[int]:
    """The sessions on record that can still be the launch's.

    While a member lives the number stays taken. When its leader lives and is not the
    process that made the session for this launch, the number was given away.
    """
    makers = {one.pid: one for one in (record.process, record.kernel) if one is not None}
    sessions = set()
    for session in record.sessions:
        maker = makers.get(session)
        leader = table.processes.get(session)
        if leader is None or maker is None or leader.start_ticks == maker.start_ticks:
            sessions.add(session)
    return sessions


def _names_file(record: LaunchRecord, table: Snapshot, pid: int) -> bool:
    """Whether a marked process has the connection file as an argument.

    The kernel itself, where a crash came before its session was on record: then that is
    the launch's session. Or a fork of it without exec, which would hold its ports.
    """
    return bool(record.connection_file) and record.connection_file in table.argv(pid)


def _follow(
    core: dict[int, Stat],
    sessions: Collection[int],
    table: Snapshot,
    untouchable: Collection[int],
) -> None:
    """Add what proven processes have started in the launch's sessions.

    Also with a clean environment: that it is the child of a proven process is a fact.
    """
    pending = list(core)
    while pending:
        for pid in table.children.get(pending.pop(), ()):
            entry = table.processes[pid]
            if pid in core or pid in untouchable or entry.session not in sessions:
                continue
            if entry.alive:
                core[pid] = entry
                pending.append(pid)


def orphans(
    record: LaunchRecord,
    owner_id: str,
    table: Snapshot,
    spared: Collection[int] = (),
    learned: set[int] | None = None,
) -> list[Stat]:
    """What must end of a launch whose owner or keeper is gone; empty when nothing must."""
    return list(left_of(record, owner_id, table, spared, learned=learned).doomed(record))


@dataclass(frozen=True)
class Ended:
    """What became of the processes that were to be ended."""

    ended: frozenset[Target]
    killed: frozenset[Target]
    """Those of ``ended`` that needed SIGKILL."""
    leftovers: tuple[Leftover, ...]

    def leftover(self, target: Target) -> Leftover | None:
        """Why that process is still there; None when it is not."""
        return next((left for left in self.leftovers if left.target == target), None)


class _Finder:
    """The ``find`` of a retirement over any number of launches.

    What was proven once stays proven, by its own identity: a child without a mark loses
    its proof when its parent ends before it.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._next_look = 0.0
        self.seen: dict[Target, Stat] = {}

    def __call__(self) -> list[Stat]:
        running = {target: entry for target in self.seen for entry in _running(target)}
        if not running or time.monotonic() >= self._next_look:
            found = {target_of(entry): entry for entry in self._find()}
            self.seen.update(found)
            running.update(found)
            self._next_look = time.monotonic() + _FULL_LOOK
        return list(running.values())


def target_of(entry: Stat) -> Target:
    """The process as the retirement knows it."""
    return Target(entry.pid, entry.start_ticks)


def _running(target: Target) -> list[Stat]:
    try:
        entry = procfs.stat(target.pid)
    except OSError:
        return []
    if entry is None or entry.start_ticks != target.start_ticks or not entry.alive:
        return []
    return [entry]


def retire_all(
    find: Find, grace: float, timeout: float, is_wanted: Callable[[], bool] | None = None
) -> Ended:
    """End everything that ``find`` names, calling it until nothing is left.

    Blocks at most :func:`.runtime.retire.bound` seconds: call it in a thread. Raises GivenUp soon
    after ``is_wanted`` has said no.
    """
    finder = _Finder(find)
    retirement = Retirement(finder, grace, timeout)
    leftovers = run(retirement, is_wanted)
    left = {leftover.target for leftover in leftovers}
    ended = frozenset(target for target in finder.seen if target not in left)
    return Ended(ended, ended.intersection(retirement.killed), tuple(leftovers))


def retire_orphans(
    record: LaunchRecord, owner_id: str, grace: float, timeout: float
) -> tuple[Ended, tuple[Survivor, ...]]:
    """End what a launch has left; for an owner whose keeper died, in a thread of its own.

    The answer is what was ended, and the survivors for the journal: what could not be
    ended and what was left on purpose.
    """
    learned: set[int] = set()

    def find() -> list[Stat]:
        return orphans(record, owner_id, processes_look.take(), learned=learned)

    ended = retire_all(find, grace, timeout)
    left = left_of(record, owner_id, processes_look.take(), learned=learned)
    return ended, survivors_of(left, ended)


def survivors_of(left: Left, ended: Ended) -> tuple[Survivor, ...]:
    """What still runs after a launch was retired, with the reason, for the journal."""
    found = []
    for entry in (*left.core, *left.detached):
        leftover = ended.leftover(target_of(entry))
        reason = leftover.reason if leftover is not None else "detached"
        found.append(Survivor(entry.pid, entry.start_ticks, entry.session, cast(Any, reason)))
    return tuple(found)
