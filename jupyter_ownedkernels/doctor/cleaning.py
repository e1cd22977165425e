"""Acting on findings: everything is looked at again, and each item gets an outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import cast

from .. import connections
from ..connections import Removal
from ..journal.visit import Visit
from ..models import CleanResult, FindingKind, Outcome
from ..owners import Owners
from ..processes.orphans import Ended, retire_all, target_of
from ..processes.snapshot import Snapshot
from ..runtime.procfs import Stat
from ..runtime.retire import Leftover, Target
from .estate import Estates
from .examination import Examination, Progress, Scope, default_scope, examine, examine_processes
from .findings import Item, is_id, target_in

Results = dict[str, CleanResult]
_CHOSEN_BY_KIND_ONLY = frozenset({"detached"})


def clean(
    ids: Sequence[str] | None = None,
    kinds: Collection[FindingKind] | None = None,
    *,
    dry_run: bool = True,
    scope: Scope | None = None,
    grace: float = 1.0,
    timeout: float = 5.0,
    history_limit: int | None = None,
    progress: Progress | None = None,
) -> list[CleanResult]:
    """End and remove findings, by ``ids``, by ``kinds``, or all that are so by default.

    A dry run only says what would be done. ``kinds`` may name ``detached``, which is
    never chosen otherwise; foreign and unknown findings are refused in any case. An id
    that is not found any more is answered with what became of it. Blocks, at most about
    ``2 * grace + timeout + 1`` seconds.
    """
    chosen_scope = scope or default_scope()
    before = examine(chosen_scope, progress=progress)
    chosen = list(dict.fromkeys(_choose(before, ids, kinds)))
    results: Results = {}
    for finding_id in chosen:
        item = before.by_id.get(finding_id)
        if not is_id(finding_id):
            results[finding_id] = CleanResult(finding_id, None, "refused", "no scan gives such ids")
        elif item is None:
            results[finding_id] = _vanished(finding_id, before.owners.table)
        elif item.finding.action is None:
            results[finding_id] = _result(item, "refused", _why_shown_only(item))
        elif dry_run:
            verb = "ended" if item.finding.action == "terminate" else "removed"
            results[finding_id] = _result(item, "kept", f"dry run: it would be {verb}")
    items = {one: before.by_id[one] for one in chosen if one not in results}
    if items:
        _act(items, results, chosen_scope, grace, timeout, history_limit)
    return [results[finding_id] for finding_id in chosen]


def _choose(
    found: Examination, ids: Sequence[str] | None, kinds: Collection[FindingKind] | None
) -> Iterable[str]:
    if ids is not None:
        return ids
    return [
        item.finding.id
        for item in found.items
        if (kinds is None or item.finding.kind in kinds)
        and (item.finding.by_default or (kinds and item.finding.kind in _CHOSEN_BY_KIND_ONLY))
    ]


def _why_shown_only(item: Item) -> str:
    if item.finding.kind == "foreign":
        return "it belongs to another machine, boot or container"
    return "nothing proves that it may be ended: it is only shown"


def _vanished(finding_id: str, table: Snapshot, kind: FindingKind | None = None) -> CleanResult:
    """What to say about an id that the newest look does not give."""
    target = target_in(finding_id)
    if target is None:
        return CleanResult(finding_id, kind, "already-gone", "it is not found any more")
    entry = table.processes.get(target.pid)
    if entry is None or not entry.alive:
        return CleanResult(finding_id, kind, "already-gone", "the process has ended", target.pid)
    if entry.start_ticks != target.start_ticks:
        reason = "the process has ended, its number is another's now"
        return CleanResult(finding_id, kind, "identity-changed", reason, target.pid)
    reason = "it is no stray any more, or stands under another name now: scan again"
    return CleanResult(finding_id, kind, "kept", reason, target.pid)


def _result(item: Item, outcome: Outcome, reason: str) -> CleanResult:
    finding = item.finding
    return CleanResult(finding.id, finding.kind, outcome, reason, finding.pid)


def _act(
    items: dict[str, Item],
    results: Results,
    scope: Scope,
    grace: float,
    timeout: float,
    history_limit: int | None,
) -> None:
    with Estates(scope.journal_dirs, scope.runtime_dirs, scope.look) as estates:
        _claim(items, results, estates)
        launches = {item.launch.launch_id for item in items.values() if item.launch}
        estates.wait_for_keepers(launches, grace + 1.0)
        ended = _end(items, results, scope, estates, grace, timeout)
        _put_on_record(items, results, estates, ended)
        _remove(items, results, scope, estates)
        estates.settle(ended, launches)
        for result in estates.give_up(history_limit):
            if result.outcome == "refused" and result.id in items:
                results[result.id] = result


def _claim(items: dict[str, Item], results: Results, estates: Estates) -> None:
    """Take the journals of dead owners; what belongs to one that cannot be had is kept."""
    for finding_id, item in items.items():
        if item.owner is None or item.owner.standing.value != "dead":
            continue
        path = item.owner.view.path
        if path in estates.claimed or (path not in estates.refused and estates.claim(path)):
            continue
        results[finding_id] = _result(item, "kept", estates.refused[path])


def _end(
    items: dict[str, Item],
    results: Results,
    scope: Scope,
    estates: Estates,
    grace: float,
    timeout: float,
) -> Ended:
    wanted = {
        finding_id
        for finding_id, item in items.items()
        if finding_id not in results and item.finding.action == "terminate"
    }
    if not wanted:
        return Ended(frozenset(), frozenset(), ())
    doomed: dict[str, set[Target]] = {finding_id: set() for finding_id in wanted}
    last: list[Owners] = []

    def find() -> list[Stat]:
        owners = estates.look()
        last[:] = [owners]
        found = examine_processes(scope, owners)
        entries: list[Stat] = []
        for finding_id in wanted & set(found):
            item = found[finding_id]
            entries.extend(item.doomed)
            doomed[finding_id].update(target_of(entry) for entry in item.doomed)
        return entries

    ended = retire_all(find, grace, timeout)
    for finding_id in wanted:
        item = items[finding_id]
        if not doomed[finding_id]:
            gone = _vanished(finding_id, last[0].table, item.finding.kind)
            results[finding_id] = _by_its_keeper(item, gone, estates, last[0])
            continue
        results[finding_id] = result_of(item, doomed[finding_id], ended)
        if item.owner is not None and item.owner.view.path in estates.claimed:
            estate = estates.claimed[item.owner.view.path]
            estate.ended.update(doomed[finding_id] & ended.ended)
    return ended


def _by_its_keeper(item: Item, gone: CleanResult, estates: Estates, now: Owners) -> CleanResult:
    """A keeper that still lived has ended it before anybody else could: say so.

    One that was stopped did it because it was woken here.
    """
    launch = item.launch
    if launch is None or launch.launch_id not in estates.finished or gone.outcome == "kept":
        return gone
    if not estates.finished[launch.launch_id]:
        return replace(gone, outcome="already-gone", reason="its keeper has ended it meanwhile")
    record = next(
        (
            one.view.launches[launch.launch_id]
            for one in now.known
            if launch.launch_id in one.view.launches
        ),
        launch,
    )
    killed = record.exit is not None and record.exit.signal == "SIGKILL"
    reason = "by its keeper, which had been stopped and was continued"
    return replace(gone, outcome="killed" if killed else "terminated", reason=reason)


def _put_on_record(
    items: dict[str, Item], results: Results, estates: Estates, ended: Ended
) -> None:
    """Processes that were left of a kernel, and are gone by a person's wish.

    Of a living owner too: its journal is its own, but takes a record from others.
    """
    for finding_id, item in items.items():
        if item.launch is None or item.owner is None or item.launch.open:
            continue
        path = item.owner.view.path
        estate = estates.claimed.get(path)
        writer = estate.claim if estate is not None else Visit(path)
        for survivor in item.launch.survivors:
            target = Target(survivor.pid, survivor.start_ticks)
            if target not in ended.ended or target not in map(target_of, item.doomed):
                continue
            how = "killed" if target in ended.killed else "terminated"
            if not writer.cleaned(item.launch.launch_id, survivor, how):
                result = results[finding_id]
                note = "it could not be put on record"
                reason = f"{result.reason}; {note}" if result.reason else note
                results[finding_id] = replace(result, reason=reason)
            elif estate is not None:
                estate.ended.discard(target)  # no need to tell it twice


def result_of(item: Item, doomed: set[Target], ended: Ended) -> CleanResult:
    """What to say about an item after its processes were to be ended."""
    main = item.target
    assert main is not None
    left = [one for one in map(ended.leftover, doomed) if one is not None]
    own = next((one for one in left if one.target == main), None)
    if own is not None:
        denied = own.reason == "not-permitted"
        return _result(item, "not-permitted" if denied else "kept", _words(own))
    others = len(doomed) - 1 - len(left)
    notes = [f"with {others} more process{'es' if others > 1 else ''}"] if others else []
    notes += [f"process {one.target.pid} is left: {_words(one)}" for one in left]
    outcome: Outcome = "killed" if main in ended.killed else "terminated"
    if outcome == "killed":
        notes.insert(0, "it did not end at SIGTERM")
    return _result(item, outcome, "; ".join(notes))


def _words(left: Leftover) -> str:
    return {
        "not-permitted": "it may not be signalled",
        "uninterruptible": "it is in an uninterruptible state (D), waiting for a device or disk",
    }.get(left.reason, "it did not end in time")


def _remove(items: dict[str, Item], results: Results, scope: Scope, estates: Estates) -> None:
    """Remove stale files, each looked at again after the processes have ended.

    With a kernel that no journal knows goes its connection file, where that is stale now.
    """
    wanted = {
        finding_id: item
        for finding_id, item in items.items()
        if finding_id not in results and item.finding.action == "remove"
    }
    ended = {
        item.finding.path: finding_id
        for finding_id, item in items.items()
        if item.launch is None
        and item.finding.kind == "stray_kernel"
        and results[finding_id].outcome in ("terminated", "killed")
    }
    if not wanted and not ended:
        return
    now = examine(scope, mine=estates.claimed)
    for finding_id, item in wanted.items():
        again = now.by_id.get(finding_id)
        if again is None or again.file is None:
            results[finding_id] = _kept_file(item, now)
            continue
        removal = _remove_file(again, scope)
        results[finding_id] = _result(item, cast(Outcome, removal.outcome), removal.reason)
    for item in now.items:
        finding_id = ended.get(item.finding.path, "")
        if finding_id and item.file is not None and _remove_file(item, scope).removed:
            result = results[finding_id]
            note = "its connection file was removed"
            reason = f"{result.reason}; {note}" if result.reason else note
            results[finding_id] = replace(result, reason=reason)


def _remove_file(item: Item, scope: Scope) -> Removal:
    path, file = item.finding.path, item.file
    assert path is not None
    assert file is not None
    return connections.remove(
        path, expected=file, runtime_dirs=scope.runtime_dirs, recorded=item.launch is not None
    )


def _kept_file(item: Item, now: Examination) -> CleanResult:
    assert item.finding.path is not None
    found = connections.identity_of(item.finding.path)
    if found is None:
        return _result(item, "already-gone", "the file is not there any more")
    if found != item.file:
        return _result(item, "identity-changed", "the file was written again or replaced")
    if not now.report.complete:
        return _result(item, "kept", f"not everything can be read: {now.report.incomplete_reason}")
    return _result(item, "kept", "something may use it now")
