"""From the lines of a journal to what they mean, and back to the fewest lines.

Applying a record twice changes nothing, and a launch never goes back to an earlier
state: a keeper and a recovery may both write an end, and a record that met a
compaction may stand twice.

Events: ``owner`` · ``launching`` ``running`` ``kernel`` ``retiring`` ``ended`` (one
launch each) · ``launch`` (one launch in one line, as a compaction or the history file
has it) · ``detached`` and ``cleaned`` (one survivor more or fewer) · ``recovered``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..identity import Identity, World
from ..models import EndedBy, Exit, HistoryEntry, LaunchRecord, OwnerRecord, State, Survivor
from ..runtime import records

Record = dict[str, Any]
StillThere = Callable[[Identity], bool]
"""Whether a recorded process may still run; True in doubt."""

_PORTION = 1000

_RANK = {State.LAUNCHING: 0, State.RUNNING: 1, State.UNWATCHED: 1, State.UNJOURNALED: 1}
_RANK |= {State.RETIRING: 2, State.ENDED: 3}


class Fold:
    """The meaning of the records applied so far."""

    def __init__(self) -> None:
        self.owner: OwnerRecord | None = None
        self.launches: dict[str, LaunchRecord] = {}
        self.notes: dict[str, Record] = {}
        """``recovered`` and ``cleaned`` records: they matter to the history only."""
        self.strange: dict[str, Record] = {}
        """Records that this version does not understand. Kept as they are."""

    def apply(self, record: Mapping[str, Any]) -> None:
        """Take one record in. Never raises: what makes no sense is ``strange``."""
        try:
            if record.get("v", 1) != 1:
                raise ValueError("unknown version")
            _STEPS[record["event"]](self, record)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            self.strange[repr(record)] = dict(record)

    def absorb(self, other: Fold) -> None:
        """Add what another reading of the same journal knows more."""
        self.owner = self.owner or other.owner
        for launch_id, theirs in other.launches.items():
            ours = self.launches.get(launch_id)
            self.launches[launch_id] = theirs if ours is None else _merged(ours, theirs)
        self.notes.update(other.notes)
        self.strange.update(other.strange)

    def copy(self) -> Fold:
        """The same knowledge, apart from what is applied to this one later."""
        other = Fold()
        other.owner = self.owner
        other.launches = dict(self.launches)
        other.notes = dict(self.notes)
        other.strange = dict(self.strange)
        return other

    @property
    def world(self) -> World | None:
        return self.owner.identity.world if self.owner and self.owner.identity else None

    def world_is_over(self) -> None:
        """The owner's world has ended, and with it every process that was recorded in it."""
        world = self.world
        if self.owner is None or world is None:
            return
        ended = replace(world, over=True)

        def moved(one: Identity | None) -> Identity | None:
            return replace(one, world=ended) if one is not None and one.world == world else one

        self.owner = replace(self.owner, identity=moved(self.owner.identity))
        for launch_id, launch in self.launches.items():
            self.launches[launch_id] = replace(
                launch,
                keeper=moved(launch.keeper),
                process=moved(launch.process),
                kernel=moved(launch.kernel),
            )

    def matters(self, launch: LaunchRecord, still_there: StillThere) -> bool:
        """Whether something of the launch may run: never forget such a one."""
        world = self.world
        return launch.open or any(
            world is None or still_there(survivor.identity(world)) for survivor in launch.survivors
        )

    def forget(self, history_limit: int, still_there: StillThere) -> None:
        """Keep what matters and the newest ``history_limit`` of what has ended."""
        idle = [one for one in self.launches.values() if not self.matters(one, still_there)]
        idle.sort(key=_when)
        for launch in idle[: max(0, len(idle) - history_limit)]:
            del self.launches[launch.launch_id]
        for key in list(self.notes)[: max(0, len(self.notes) - history_limit)]:
            del self.notes[key]

    def dump(self) -> list[Record]:
        """The fewest records that mean the same."""
        lines: list[Record] = []
        if self.owner is not None:
            lines.append({"event": "owner", **self.owner.to_json()})
        for launch in self.launches.values():
            # A line has a bound. Said again, a launch only gains survivors.
            lines.extend(
                {"event": "launch", **replace(launch, survivors=part).to_json()}
                for part in portions(launch.survivors)
            )
        return [*lines, *self.notes.values(), *self.strange.values()]

    def history(self, owner_id: str) -> list[HistoryEntry]:
        """What has ended, in no particular order. Launches that never ran are left out."""
        entries = [
            HistoryEntry(
                at=_when(launch),
                event="ended",
                owner_id=owner_id,
                kernel_id=launch.kernel_id,
                launch_id=launch.launch_id,
                generation=launch.generation,
                kernel_name=launch.kernel_name,
                cause=launch.exit.cause if launch.exit else None,
                exit=launch.exit,
                survivors=launch.survivors,
                by=launch.ended_by,
            )
            for launch in self.launches.values()
            if not launch.open and (launch.exit or launch.process)
        ]
        for note in self.notes.values():
            of = self.launches.get(note.get("launch_id", ""))
            entries.append(
                HistoryEntry(
                    at=note["at"],
                    event=note["event"],
                    owner_id=owner_id,
                    kernel_id=of.kernel_id if of else None,
                    launch_id=note.get("launch_id"),
                    generation=of.generation if of else None,
                    kernel_name=of.kernel_name if of else None,
                    count=note.get("count"),
                    message=note.get("message"),
                )
            )
        return entries

    # -- one step per event ----------------------------------------------------------

    def _owner(self, record: Mapping[str, Any]) -> None:
        self.owner = OwnerRecord.from_json(record)

    def _launch(self, record: Mapping[str, Any]) -> None:
        found = LaunchRecord.from_json(record)
        ours = self.launches.get(found.launch_id)
        self.launches[found.launch_id] = found if ours is None else _merged(ours, found)

    def _launching(self, record: Mapping[str, Any]) -> None:
        blank = {"state": "launching", "sessions": [], "survivors": []}
        self._launch({**blank, **record})

    def _running(self, record: Mapping[str, Any]) -> None:
        launch = self._known(record)
        mode = record.get("launch_mode") or launch.launch_mode
        self._put(
            replace(
                launch,
                launch_mode=mode,
                state=_later(launch, State.UNWATCHED if mode == "stock" else State.RUNNING),
                keeper=_identity(record, "keeper") or launch.keeper,
                process=_identity(record, "process") or launch.process,
                sessions=_sessions(launch, record),
                running_at=float(record["at"]),
                provisioner=record.get("provisioner") or launch.provisioner,
            )
        )

    def _kernel(self, record: Mapping[str, Any]) -> None:
        launch = self._known(record)
        found = _identity(record, "kernel") or launch.kernel
        self._put(replace(launch, kernel=found, sessions=_sessions(launch, record)))

    def _retiring(self, record: Mapping[str, Any]) -> None:
        launch = self._known(record)
        self._put(replace(launch, state=_later(launch, State.RETIRING)))

    def _ended(self, record: Mapping[str, Any]) -> None:
        launch = self._known(record)
        first = launch.open
        self._put(
            replace(
                launch,
                state=State.ENDED,
                exit=launch.exit or _exit(record),
                survivors=_union(
                    launch.survivors, (Survivor.from_json(one) for one in record["survivors"])
                ),
                ended_at=float(record["at"]) if first else launch.ended_at,
                ended_by=_by(record) if first else launch.ended_by,
            )
        )

    def _detached(self, record: Mapping[str, Any]) -> None:
        launch = self._known(record)
        found = Survivor.from_json(record["survivor"])
        self._put(replace(launch, survivors=_union(launch.survivors, (found,))))

    def _cleaned(self, record: Mapping[str, Any]) -> None:
        launch = self._known(record)
        gone = (int(record["pid"]), int(record["start_ticks"]))
        left = tuple(one for one in launch.survivors if (one.pid, one.start_ticks) != gone)
        self._put(replace(launch, survivors=left))
        self._note(record)

    def _note(self, record: Mapping[str, Any]) -> None:
        if not isinstance(record["at"], (int, float)):
            raise ValueError("a note without its time")
        note = {"v": records.VERSION, **record}
        self.notes[repr(note)] = note

    def _known(self, record: Mapping[str, Any]) -> LaunchRecord:
        launch_id = record["launch_id"]
        if not isinstance(launch_id, str):
            raise ValueError("a launch id is a text")
        # Its first line may be damaged: what is known of its processes still counts.
        return self.launches.get(launch_id) or LaunchRecord(launch_id, "", 0, "", "")

    def _put(self, launch: LaunchRecord) -> None:
        self.launches[launch.launch_id] = launch


_STEPS: dict[str, Callable[[Fold, Mapping[str, Any]], None]] = {
    "owner": Fold._owner,
    "launch": Fold._launch,
    "launching": Fold._launching,
    "running": Fold._running,
    "kernel": Fold._kernel,
    "retiring": Fold._retiring,
    "ended": Fold._ended,
    "detached": Fold._detached,
    "cleaned": Fold._cleaned,
    "recovered": Fold._note,
}


def _when(launch: LaunchRecord) -> float:
    return launch.at if launch.ended_at is None else launch.ended_at


def portions(survivors: Sequence[Survivor]) -> Iterator[tuple[Survivor, ...]]:
    """The survivors in parts that fit into one line each; one empty part for none."""
    for start in range(0, max(1, len(survivors)), _PORTION):
        yield tuple(survivors[start : start + _PORTION])


def _merged(ours: LaunchRecord, theirs: LaunchRecord) -> LaunchRecord:
    if not ours.kernel_id and theirs.kernel_id:
        ours, theirs = theirs, ours
    further = theirs if _RANK[theirs.state] > _RANK[ours.state] else ours
    return replace(
        ours,
        state=further.state,
        keeper=ours.keeper or theirs.keeper,
        process=ours.process or theirs.process,
        kernel=ours.kernel or theirs.kernel,
        sessions=tuple(dict.fromkeys((*ours.sessions, *theirs.sessions))),
        survivors=_union(ours.survivors, theirs.survivors),
        exit=ours.exit or theirs.exit,
        running_at=ours.running_at or theirs.running_at,
        ended_at=further.ended_at,
        ended_by=further.ended_by,
        provisioner=ours.provisioner or theirs.provisioner,
    )


def _later(launch: LaunchRecord, state: State) -> State:
    return state if _RANK[state] > _RANK[launch.state] else launch.state


def _sessions(launch: LaunchRecord, record: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*launch.sessions, *(int(one) for one in record["sessions"]))))


def _union(known: Iterable[Survivor], more: Iterable[Survivor]) -> tuple[Survivor, ...]:
    # A list may only grow: whether one still runs is asked of the process table, and two
    # looks at what was left need not be in the order of their records.
    return tuple({(one.pid, one.start_ticks): one for one in (*known, *more)}.values())


def _by(record: Mapping[str, Any]) -> EndedBy:
    if record["by"] not in ("owner", "keeper", "recovery"):
        raise ValueError("ended by whom?")
    return cast(EndedBy, record["by"])


def _identity(record: Mapping[str, Any], name: str) -> Identity | None:
    found = record.get(name)
    return None if found is None else Identity.from_json(found)


def _exit(record: Mapping[str, Any]) -> Exit | None:
    try:
        return Exit.from_json(record["exit"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # That it ended counts; how is for the history.
