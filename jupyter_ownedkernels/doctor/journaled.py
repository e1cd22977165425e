"""What the journals prove: strays of dead owners, detached processes, other worlds.

Pure functions of the owners on record and one look at the processes.
"""

from __future__ import annotations

from ..models import LaunchRecord
from ..owners import KnownOwner, Owners, Standing
from ..processes.orphans import Left
from ..processes.snapshot import Snapshot
from ..runtime.procfs import Stat
from .findings import Item, of_process, shown_only


def journaled(owners: Owners) -> list[Item]:
    """Findings about launches on record; each process in one of them at most."""
    found: list[Item] = []
    for owner in owners.known:
        if owner.standing is Standing.FOREIGN:
            found.extend(_foreign(owner))
        elif owner.standing is Standing.DEAD:
            for launch in owner.view.launches.values():
                found.extend(_of_dead_owner(owner, launch, owners))
        elif owner.standing is Standing.ALIVE:
            for launch in owner.view.launches.values():
                if launch.survivors and not launch.open:
                    found.extend(_of_living_owner(owner, launch, owners))
        else:
            found.extend(_undecided(owner, owners.table))
    return _once(found)


def _once(items: list[Item]) -> list[Item]:
    """A process that bears the marks of two launches: the stronger finding stands."""
    weight = {"stray_kernel": 0, "stray_process": 1, "detached": 2}
    claimed: set[int] = set()
    kept = []
    for item in sorted(items, key=lambda item: weight.get(item.finding.kind, 3)):
        pid = item.finding.pid
        if pid is None or pid not in claimed:
            kept.append(item)
            claimed.update(entry.pid for entry in item.doomed)
    return kept


def _foreign(owner: KnownOwner) -> list[Item]:
    return [
        shown_only("foreign", [owner.reason, "never touched from here"], owner=owner, launch=launch)
        for launch in owner.view.open
    ]


def _undecided(owner: KnownOwner, table: Snapshot) -> list[Item]:
    """An owner that is neither proven dead nor proven alive."""
    running = [
        launch
        for launch in owner.view.open
        if any(table.running(one) for one in (launch.process, launch.kernel, launch.keeper))
    ]
    if owner.standing is Standing.HELD and not running:
        return []
    if owner.view.owner is None and not owner.view.open:
        return [shown_only("unknown", [owner.reason], path=owner.view.path)]
    return [
        shown_only(
            "unknown",
            [owner.reason],
            owner=owner,
            launch=launch,
            pid=_pid_of(launch, table),
        )
        for launch in (running or owner.view.open)
    ]


def _pid_of(launch: LaunchRecord, table: Snapshot) -> int | None:
    entry = table.running(launch.kernel) or table.running(launch.process)
    return entry.pid if entry is not None else None


def _of_dead_owner(owner: KnownOwner, launch: LaunchRecord, owners: Owners) -> list[Item]:
    if not launch.open and not launch.survivors:
        return []
    table = owners.table
    left = owners.left_of(owner, launch)
    keeper = table.running(launch.keeper)
    if keeper is not None and keeper.pid in table.own_line:
        keeper = None
    return [
        *_core(owner, launch, left, keeper, table),
        *_detached(owner, launch, left, table),
    ]


def _core(
    owner: KnownOwner, launch: LaunchRecord, left: Left, keeper: Stat | None, table: Snapshot
) -> list[Item]:
    doomed = left.doomed(launch)
    kernel = _kernel(launch, doomed, table)
    policy = ["detached processes of this kernel are to end with it"]
    proofs = [owner.reason, *(policy if len(doomed) > len(left.core) else [])]
    if kernel is not None:
        with_it = (*doomed, keeper) if keeper is not None else doomed
        return [
            of_process(
                "stray_kernel",
                kernel,
                table,
                [*proofs, _proof(launch, kernel, table)],
                owner=owner,
                launch=launch,
                with_it=with_it,
                by_default=True,
            )
        ]
    items = [(entry, _proof(launch, entry, table)) for entry in doomed]
    if keeper is not None:
        items.append((keeper, "it is the keeper on record, and its owner is gone"))
    return [
        of_process(
            "stray_process",
            entry,
            table,
            [*proofs, proof],
            owner=owner,
            launch=launch,
            by_default=True,
        )
        for entry, proof in items
    ]


def _kernel(launch: LaunchRecord, doomed: tuple[Stat, ...], table: Snapshot) -> Stat | None:
    """The process that makes it a stray kernel rather than some stray processes."""
    by_pid = {entry.pid: entry for entry in doomed}
    for identity in (launch.kernel, launch.process):
        entry = table.running(identity)
        if entry is not None and entry.pid in by_pid:
            return entry
    bearing = [
        entry
        for entry in doomed
        if launch.connection_file and launch.connection_file in table.argv(entry.pid)
    ]
    return min(bearing, key=lambda entry: entry.start_ticks, default=None)


def _proof(launch: LaunchRecord, entry: Stat, table: Snapshot) -> str:
    for name, identity in (("kernel", launch.kernel), ("launched", launch.process)):
        if table.running(identity) == entry:
            return f"it is the {name} process on record (pid and start time are the same)"
    for survivor in launch.survivors:
        if (survivor.pid, survivor.start_ticks) == (entry.pid, entry.start_ticks):
            return f"it is on record as left when the kernel ended: {survivor.reason}"
    if entry.pid in table.marked[0].get(launch.launch_id, ()):
        return "its environment bears the mark of this launch"
    if entry.session in launch.sessions:
        return "it bears the owner's mark, or was started by such a process, in its session"
    return "it was started by a process of this launch"


def _detached(owner: KnownOwner, launch: LaunchRecord, left: Left, table: Snapshot) -> list[Item]:
    if launch.detached_policy == "kill":
        return []
    return [_detached_item(owner, launch, entry, table) for entry in left.detached]


def _detached_item(owner: KnownOwner, launch: LaunchRecord, entry: Stat, table: Snapshot) -> Item:
    return of_process(
        "detached",
        entry,
        table,
        ["it left the kernel's session on purpose", _proof(launch, entry, table)],
        owner=owner,
        launch=launch,
    )


def _of_living_owner(owner: KnownOwner, launch: LaunchRecord, owners: Owners) -> list[Item]:
    """What an ended launch of a living owner left: by the keeper's report alone."""
    table = owners.table
    left = owners.left_of(owner, launch)
    stray = [
        of_process(
            "stray_process",
            entry,
            table,
            ["its kernel has ended", _proof(launch, entry, table)],
            owner=owner,
            launch=launch,
            by_default=True,
        )
        for entry in left.core
    ]
    return [*stray, *(_detached_item(owner, launch, entry, table) for entry in left.detached)]
