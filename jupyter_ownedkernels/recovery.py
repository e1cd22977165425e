"""Start-up recovery: ending what proven-dead owners of this user left on this machine.

Called once, in a background thread, when an owner starts; safe beside other recoveries,
doctors and starting servers. Bounded by ``patience`` and :func:`.runtime.retire.bound`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .doctor.estate import Estates, Look, counted
from .errors import JournalError
from .journal import journal
from .journal.place import has_sure_locks
from .journal.retention import outdated
from .owners import KnownOwner, Owners, Standing, gather
from .processes import look as processes_look
from .processes.orphans import Ended, retire_all, target_of
from .runtime.procfs import Stat
from .runtime.retire import GivenUp, Target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovery:
    """What a recovery did, or would do (``mode`` report)."""

    mode: Literal["clean", "report"]
    owners: int
    """Dead owners that left something open, or a journal to be removed."""
    kernels: tuple[str, ...]
    """Kernel ids of launches that were open."""
    processes: int
    """Ended, or to be ended."""
    killed: int
    """Those of them that needed SIGKILL."""
    files: tuple[str, ...]
    """Removed: connection files, and those of servers."""
    doubts: dict[str, str]
    """Connection files that stay since something may use them: path and reason."""
    leftovers: tuple[dict[str, Any], ...]
    """What could not be ended: pid and reason."""
    skipped: tuple[str, ...]
    """Journals that another clean-up was at work on, or that could not be claimed."""

    @property
    def did_something(self) -> bool:
        return bool(self.kernels or self.processes or self.files)

    @property
    def message(self) -> str:
        """One sentence for a person."""
        if not self.did_something:
            in_use = counted(len(self.doubts), "file")
            what = f"{in_use} that may be in use" if self.doubts else "nothing"
            return f"{what} was left by servers that have died"
        done = "ended" if self.mode == "clean" else "found"
        text = (
            f"{done} {counted(self.processes, 'process', 'processes')} of "
            f"{counted(len(self.kernels), 'kernel')} whose "
            f"{'owner has' if self.owners == 1 else 'owners have'} died"
        )
        if self.files:
            text += f", removed {counted(len(self.files), 'file')}"
        if self.leftovers:
            text += f"; {len(self.leftovers)} could not be ended"
        if self.doubts:
            text += f"; {counted(len(self.doubts), 'file')} may be in use"
        return text

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "message": self.message}


def recover(
    folders: Iterable[str],
    runtime_dirs: Iterable[str],
    *,
    mode: Literal["clean", "report"] = "clean",
    grace: float = 1.0,
    timeout: float = 5.0,
    patience: float | None = None,
    history_limit: int | None = None,
    look: Look = processes_look.take,
    is_wanted: Callable[[], bool] | None = None,
) -> Recovery:
    """Find what dead owners left and end it; never raises for one owner's sake.

    ``folders`` hold journals, ``runtime_dirs`` files of kernels and servers. ``patience`` is
    how long a living keeper may take to finish by itself, ``grace`` and one second by default.
    Once ``is_wanted`` says no it stops where it is; the next recovery goes on from there.
    """
    where = list(folders)
    try:
        owners = gather(where, look)
    except OSError as error:
        log.info("No recovery: %s", error)
        return _nothing(mode, (str(error),))
    if mode == "clean":
        _forget_foreign(owners, history_limit)
    if not owners.dead:
        return _nothing(mode)
    if mode == "report":
        return _report(owners)
    with Estates(where, runtime_dirs, look) as estates:
        for owner in owners.dead:
            estates.claim(owner.view.path)
        kernels = _open_kernels(estates)
        try:
            wait = grace + 1.0 if patience is None else patience
            estates.wait_for_keepers(None, wait, is_wanted)
            ended = _end(estates, grace, timeout, is_wanted)
        except GivenUp:
            return _nothing(mode, ("it was given up, since this process ends",))
        estates.settle(ended)
        files = [
            path
            for estate in estates.claimed.values()
            for path, removal in estate.files
            if removal.removed
        ]
        doubts: dict[str, str] = {}
        for estate in estates.claimed.values():
            doubts.update(estate.doubts)
        for path, reason in doubts.items():
            log.info("Recovery left %s: %s", path, reason)
        for path, reason in estates.refused.items():
            log.info("Recovery left the journal %s alone: %s", path, reason)
        for result in estates.give_up(history_limit):
            if result.outcome not in ("removed", "already-gone"):
                log.debug("The journal %s stays: %s", result.id, result.reason)
        done = Recovery(
            mode=mode,
            owners=len(estates.claimed),
            kernels=kernels,
            processes=len(ended.ended),
            killed=len(ended.killed),
            files=tuple(files),
            doubts=doubts,
            leftovers=tuple(
                {"pid": left.target.pid, "reason": left.reason} for left in ended.leftovers
            ),
            skipped=tuple(estates.refused),
        )
    if done.did_something:
        log.info("Recovery: %s", done.message)
    return done


def _forget_foreign(owners: Owners, history_limit: int | None) -> None:
    """So that they do not grow without bound, the oldest that provably nobody holds go."""
    foreign = [
        one.view
        for one in owners.having(Standing.FOREIGN)
        if has_sure_locks(os.path.dirname(one.view.path))
    ]
    for view in outdated(foreign, owners.table.now):
        try:
            claim = journal.claim(view.path)
        except JournalError as error:
            log.debug("An old journal of another machine stays: %s", error)
            continue
        if claim is not None:
            with claim:
                result = claim.forget(history_limit)
            log.debug("Old journal of another machine %s: %s", view.path, result.outcome)


def _end(
    estates: Estates, grace: float, timeout: float, is_wanted: Callable[[], bool] | None
) -> Ended:
    whose: dict[Target, str] = {}

    def find() -> list[Stat]:
        owners = estates.look()
        found = []
        for owner in owners.dead:
            if owner.view.path in estates.claimed:
                for entry in doomed_of(owner, owners):
                    whose[target_of(entry)] = owner.view.path
                    found.append(entry)
        return found

    ended = retire_all(find, grace, timeout, is_wanted)
    for target in ended.ended:
        estates.claimed[whose[target]].ended.add(target)
    return ended


def doomed_of(owner: KnownOwner, owners: Owners) -> list[Stat]:
    """What must end of a dead owner, with keepers that did not finish by themselves."""
    found: dict[int, Stat] = {}
    for launch in owner.view.launches.values():
        if not launch.open and not launch.survivors:
            continue
        left = owners.left_of(owner, launch)
        # After its end only what could not be ended then; detached ones were left on purpose.
        doomed = left.doomed(launch) if launch.open else left.core
        found.update((entry.pid, entry) for entry in doomed)
        keeper = owners.table.running(launch.keeper)
        if keeper is not None and keeper.pid not in owners.table.own_line:
            found[keeper.pid] = keeper
    return list(found.values())


def _open_kernels(estates: Estates) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            launch.kernel_id for estate in estates.claimed.values() for launch in estate.view.open
        )
    )


def _report(owners: Owners) -> Recovery:
    doomed = {entry.pid for owner in owners.dead for entry in doomed_of(owner, owners)}
    open_launches = [launch for owner in owners.dead for launch in owner.view.open]
    return Recovery(
        mode="report",
        owners=len(owners.dead),
        kernels=tuple(dict.fromkeys(launch.kernel_id for launch in open_launches)),
        processes=len(doomed),
        killed=0,
        files=(),
        doubts={},
        leftovers=(),
        skipped=(),
    )


def _nothing(mode: Literal["clean", "report"], skipped: tuple[str, ...] = ()) -> Recovery:
    return Recovery(mode, 0, (), 0, 0, (), {}, (), skipped)
