"""Every owner on record, and whether it lives: who may be acted on, and who is spared.

Pure: journals and the table of processes are passed in.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from .identity import Verdict
from .journal import journal
from .journal.journal import JournalView, Lock
from .models import LaunchRecord, OwnerRecord
from .processes import look as processes_look
from .processes.orphans import Left, left_of
from .processes.snapshot import Snapshot


class Standing(enum.Enum):
    """What is known of an owner. Only ``DEAD`` ever allows anything."""

    ALIVE = "alive"
    DEAD = "dead"
    HELD = "held"
    """Dead by its identity, but somebody holds the lock on its journal."""
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KnownOwner:
    """One journal, and how its owner stands."""

    view: JournalView
    standing: Standing
    reason: str

    @property
    def record(self) -> OwnerRecord:
        assert self.view.owner is not None
        return self.view.owner

    def summary(self) -> dict[str, object] | None:
        """The owner as findings show it."""
        owner = self.view.owner
        if owner is None:
            return None
        pid = owner.identity.pid if owner.identity else None
        return {
            "owner_id": owner.owner_id,
            "pid": pid,
            "host": owner.host,
            "url": owner.url,
            "user": owner.user,
        }


def standing_of(view: JournalView, lock: Lock, table: Snapshot) -> tuple[Standing, str]:
    """How the owner of a journal stands, and why in words."""
    if view.owner is None or view.owner.identity is None:
        return Standing.UNKNOWN, "the journal does not name its owner's process"
    recorded = view.owner.identity
    verdict = table.verdict(recorded)
    if verdict is Verdict.FOREIGN:
        return Standing.FOREIGN, _other_world(view.owner, table)
    former = verdict is Verdict.SAME and journal.is_former_self(view.owner)
    if verdict is Verdict.SAME and not former:
        return Standing.ALIVE, f"its owner, process {recorded.pid}, runs"
    if verdict is Verdict.UNKNOWN:
        return Standing.UNKNOWN, f"its owner, process {recorded.pid}, cannot be looked at"
    if lock is Lock.LOCKED:
        return Standing.HELD, "its journal is locked: a clean-up is at work, or the owner lives"
    if former:
        return Standing.DEAD, f"its owner, process {recorded.pid}, is another program now"
    if view.over:
        return Standing.DEAD, "this machine was started again since its owner ran"
    if verdict is Verdict.DIFFERENT:
        return Standing.DEAD, f"its owner is dead: process number {recorded.pid} is another's now"
    return Standing.DEAD, f"its owner, process {recorded.pid}, is dead"


def _other_world(owner: OwnerRecord, table: Snapshot) -> str:
    assert owner.identity is not None
    recorded = owner.identity.world
    if recorded.host != table.world.host:
        return f"recorded on the host {recorded.host}"
    if recorded.boot_id != table.world.boot_id:
        return "recorded before this machine, or one of the same name, was started"
    return "recorded in another container (pid namespace)"


class Owners:
    """All owners on record for this user, judged by one look at the processes."""

    def __init__(
        self,
        views: Iterable[JournalView],
        table: Snapshot,
        is_locked: Callable[[str], Lock],
        problems: Iterable[str] = (),
        learned: dict[str, set[int]] | None = None,
    ) -> None:
        self.table = table
        self._learned: dict[str, set[int]] = {} if learned is None else learned
        self._spared: dict[str, frozenset[int]] = {}
        self.known = [
            KnownOwner(view, *standing_of(view, is_locked(view.path), table)) for view in views
        ]
        self.problems = list(problems)
        """Journals that could not be read: what they name may run."""

    def left_of(self, owner: KnownOwner, launch: LaunchRecord) -> Left:
        """What of a launch is alive: for a living owner's only what is on record."""
        marks = launch.open and owner.standing is Standing.DEAD
        return left_of(
            launch,
            owner.record.owner_id,
            self.table,
            self._spared_for(owner.record),
            marks=marks,
            learned=self._learned.setdefault(launch.launch_id, set()),
        )

    @property
    def dead(self) -> list[KnownOwner]:
        return self.having(Standing.DEAD)

    def having(self, standing: Standing) -> list[KnownOwner]:
        return [owner for owner in self.known if owner.standing is standing]

    @cached_property
    def incomplete(self) -> str:
        """Why a launch may be missing from what was read; empty when none may."""
        reasons = list(self.problems)
        reasons += [
            f"{owner.view.path}: {owner.view.reason}"
            for owner in self.known
            if not owner.view.complete and owner.standing is not Standing.DEAD
        ]
        return "; ".join(reasons)

    @cached_property
    def protected_names(self) -> frozenset[str]:
        """Names of connection files that an owner not proven dead has on record."""
        return frozenset(
            os.path.basename(launch.connection_file)
            for owner in self.known
            if owner.standing is not Standing.DEAD
            for launch in owner.view.launches.values()
            if launch.connection_file
        )

    @cached_property
    def recorded_names(self) -> frozenset[str]:
        """Names of all connection files that are on any record."""
        return frozenset(
            os.path.basename(launch.connection_file)
            for owner in self.known
            for launch in owner.view.launches.values()
            if launch.connection_file
        )

    @cached_property
    def recorded_pids(self) -> frozenset[int]:
        """Living processes that some journal names: no stray without a journal."""
        table = self.table
        found: set[int] = set()
        for owner in self.known:
            for launch in owner.view.launches.values():
                for one in (launch.keeper, launch.process, launch.kernel):
                    if one is not None and one.pid in table.processes and table.running(one):
                        found.add(one.pid)
            found.update(
                one.pid for _, _, one in owner.view.survivors() if table.running(one) is not None
            )
        return frozenset(found)

    @cached_property
    def _trees(self) -> list[tuple[int, OwnerRecord, frozenset[int]]]:
        found = []
        for owner in self.having(Standing.ALIVE):
            identity = owner.record.identity
            assert identity is not None
            found.append((identity.start_ticks, owner.record, self.table.below(identity.pid)))
        return found

    def _spared_for(self, owner: OwnerRecord) -> frozenset[int]:
        """Processes that bear an owner's marks, perhaps, but belong to a living one.

        A server that was started inside a kernel, and all below it, has inherited the
        kernel's environment. An owner that is older than this one cannot be inside it:
        it has only adopted what this one left.
        """
        if owner.owner_id not in self._spared:
            spared: set[int] = set()
            since = owner.identity.start_ticks if owner.identity else 0
            for started, living, tree in self._trees:
                if living.owner_id == owner.owner_id:
                    spared |= self._running_launches(owner)
                elif started >= since:
                    spared |= tree
            self._spared[owner.owner_id] = frozenset(spared)
        return self._spared[owner.owner_id]

    def _running_launches(self, owner: OwnerRecord) -> set[int]:
        """A living owner itself, its keepers, and all below those."""
        found: set[int] = set()
        if owner.identity is not None:
            found.add(owner.identity.pid)
        for known in self.known:
            if known.view.owner is not None and known.view.owner.owner_id == owner.owner_id:
                for launch in known.view.open:
                    keeper = self.table.running(launch.keeper)
                    if keeper is not None:
                        found |= self.table.below(keeper.pid)
        return found


def gather(
    folders: Iterable[str],
    look: Callable[[], Snapshot] = processes_look.take,
    mine: Collection[str] = (),
    learned: dict[str, set[int]] | None = None,
) -> Owners:
    """Read every journal in these folders, then look at the processes, and judge.

    In that order: an owner that is dead in the later look is dead. ``mine`` are journals
    whose lock the caller holds; ``learned`` is kept by a caller that looks several times.
    Takes about 1 ms a journal and what the look takes.
    """
    paths, unread = journal.search(folders)
    views, problems = journal.read_all(paths)
    locks = {
        view.path: Lock.FREE if view.path in mine else journal.is_locked(view.path)
        for view in views
    }
    return Owners(views, look(), locks.__getitem__, unread + problems, learned)
