"""What dead owners left, once their journals are claimed: ending, recording, removing.

Shared by start-up recovery and by the doctor's clean. The order is always the same:
claim the journal (which is its lock), read it again, let living keepers finish, end the
rest with proof, put the end on record, remove files, give the journal up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from .. import connections
from ..connections import Listing, Removal
from ..errors import JournalError
from ..journal import journal
from ..journal.journal import Claim, JournalView
from ..models import CleanResult, Exit, LaunchRecord
from ..owners import Owners, gather
from ..processes import look as processes_look
from ..processes.orphans import Ended, survivors_of
from ..processes.snapshot import Snapshot
from ..runtime.retire import Target, open_pidfd, send, wait
from .files import stale_files

Look = Callable[[], Snapshot]
_STOPPED = "Tt"
# Seconds between looks at files that may be in use: what says so is often about to end.
_LOOK_AGAIN_AFTER = (0.05, 0.2)
# Seconds. A file that nobody used at that age is found without a journal too.
_YOUNG = 3600.0


@dataclass
class Estate:
    """The claimed journal of one dead owner."""

    claim: Claim
    view: JournalView
    ended: set[Target] = field(default_factory=set)
    """Processes that were ended for it."""
    settled: set[str] = field(default_factory=set)
    """Launches whose end was put on record for it."""
    files: list[tuple[str, Removal]] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)
    """Connection files that stay, and why: something may use them, or it failed."""

    @property
    def path(self) -> str:
        return self.claim.path

    @property
    def owner_id(self) -> str:
        assert self.view.owner is not None
        return self.view.owner.owner_id

    @property
    def message(self) -> str:
        """What was done, for a person who reads the history."""
        owner = self.view.owner
        removed = sum(removal.removed for _, removal in self.files)
        done = [f"ended {counted(len(self.ended), 'process', 'processes')}"] if self.ended else []
        done += [f"removed {counted(removed, 'file')}"] if removed else []
        text = " and ".join(done) or "removed nothing"
        kernels = {
            launch.kernel_id
            for launch in self.view.launches.values()
            if launch.launch_id in self.settled
        }
        text += f" of {counted(len(kernels), 'kernel')}" if kernels else ""
        if owner is not None and owner.identity is not None:
            text += f", left by process {owner.identity.pid}"
            text += f" ({owner.url})" if owner.url else ""
        return text


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``2 files``: for what a person reads of a recovery."""
    return f"{number} {one if number == 1 else many or one + 's'}"


class Estates:
    """Several of them, dealt with together: one look at the processes serves all.

    A context manager; the locks are let go of at its end.
    """

    def __init__(
        self, folders: Iterable[str], runtime_dirs: Iterable[str], look: Look = processes_look.take
    ) -> None:
        self._folders = list(folders)
        self._runtime_dirs = list(runtime_dirs)
        self._look = look
        self._held = contextlib.ExitStack()
        self._learned: dict[str, set[int]] = {}
        self.claimed: dict[str, Estate] = {}
        self.refused: dict[str, str] = {}
        """Journals that could not be claimed, and why."""
        self.finished: dict[str, bool] = {}
        """Launches whose keeper has ended while it was waited for; whether it had to be woken."""

    def __enter__(self) -> Estates:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def claim(self, path: str) -> bool:
        """Take one journal over. False with a reason in :attr:`refused`."""
        try:
            claim = journal.claim(path)
            if claim is None:
                self.refused[path] = "another clean-up is at work on it, or it is gone"
                return False
            self._held.enter_context(claim)
            view = claim.view()
        except JournalError as error:
            self.refused[path] = str(error)
            return False
        if not journal.owner_verdict(view).proves_death:
            self.refused[path] = "its owner is not proven dead any more"
            claim.close()
            return False
        self.claimed[path] = Estate(claim, view)
        return True

    def look(self) -> Owners:
        """Read everything again; the claimed journals count as unlocked."""
        owners = gather(self._folders, self._look, self.claimed, self._learned)
        for known in owners.known:
            if known.view.path in self.claimed:
                self.claimed[known.view.path].view = known.view
        return owners

    def wait_for_keepers(
        self,
        launches: Collection[str] | None,
        patience: float,
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Give living keepers of these launches (None: of all) the time to do it themselves.

        They are the better killers: nothing below them needs to be proven. One that was
        stopped is continued. Returns as soon as none is left. Raises GivenUp soon after
        ``is_wanted`` has said no.
        """
        deadline = time.monotonic() + patience
        watched = self._open_keepers(launches)
        try:
            while watched:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                poller = select.poll()
                for fd in watched:
                    poller.register(fd, select.POLLIN)
                for fd in wait(poller, left, is_wanted):
                    launch_id, woken = watched.pop(fd)
                    self.finished[launch_id] = woken
                    os.close(fd)
        finally:
            for fd in watched:
                os.close(fd)

    def _open_keepers(self, launches: Collection[str] | None) -> dict[int, tuple[str, bool]]:
        opened: dict[int, tuple[str, bool]] = {}
        table = self._look()
        for estate in self.claimed.values():
            for launch in estate.view.open:
                entry = table.running(launch.keeper)
                if entry is None or (launches is not None and launch.launch_id not in launches):
                    continue
                target = Target(entry.pid, entry.start_ticks)
                with contextlib.suppress(ProcessLookupError, OSError):
                    fd = open_pidfd(target)
                    if fd is not None:
                        asleep = entry.state in _STOPPED
                        opened[fd] = (launch.launch_id, asleep)
                        if asleep:
                            send(target, signal.SIGCONT, fd)
        return opened

    # -- after the processes ------------------------------------------------------------

    def settle(self, ended: Ended, only: Collection[str] | None = None) -> None:
        """Put on record what has ended, and remove the connection files that are left.

        ``only``: the launches that this is about. By default all, and the owners themselves
        with the files that they have written as servers.
        """
        if not self.claimed:
            return
        # Before the look: what a server writes that starts meanwhile is not in it.
        listing = connections.candidates(self._runtime_dirs) if only is None else None
        owners = self.look()
        alive: set[str] = set()
        for estate in self.claimed.values():
            for launch in estate.view.open:
                chosen = only is None or launch.launch_id in only
                if not chosen or not self._settle_launch(estate, launch, owners, ended):
                    alive.add(launch.launch_id)
        self._remove_files(owners, alive, only)
        for pause in _LOOK_AGAIN_AFTER:
            if any(estate.doubts for estate in self.claimed.values()):
                time.sleep(pause)
                self._remove_files(self.look(), alive, only)
        if listing is not None:
            self._remove_files_of_servers(owners, listing)

    def _settle_launch(
        self, estate: Estate, launch: LaunchRecord, owners: Owners, ended: Ended
    ) -> bool:
        known = next((one for one in owners.dead if one.view.path == estate.path), None)
        if known is None:
            return False
        left = owners.left_of(known, launch)
        keeper_left = owners.table.running(launch.keeper) is not None
        if left.core or keeper_left or not _proven_gone(launch, owners.table):
            return False
        survivors = survivors_of(left, ended)
        if not estate.claim.ended(launch.launch_id, _exit(launch), survivors, by="recovery"):
            return False
        estate.settled.add(launch.launch_id)
        return True

    def _remove_files(self, owners: Owners, alive: set[str], only: Collection[str] | None) -> None:
        for estate in self.claimed.values():
            estate.doubts.clear()
            names = {
                launch.connection_file
                for launch in estate.view.launches.values()
                if launch.connection_file
                and launch.launch_mode != "other"
                and launch.launch_id not in alive
                and (only is None or launch.launch_id in only)
            }
            if not names:
                continue
            listed = [one for one in map(_candidate, sorted(names)) if one]
            listed += connections.cut_short(self._runtime_dirs, names)
            listing = Listing(listed, [])
            paths = {one.path for one in listed}
            found = stale_files(owners, listing, alive, float("inf"))
            if found.incomplete:
                estate.doubts = dict.fromkeys(paths, found.incomplete)
            estate.doubts.update((one, found.doubts[one]) for one in paths & set(found.doubts))
            for item in found.items:
                path = item.finding.path
                if path in paths and item.file is not None:
                    removal = connections.remove(
                        path,
                        expected=item.file,
                        runtime_dirs=self._runtime_dirs,
                        recorded=True,
                    )
                    estate.files.append((path, removal))
                    if removal.outcome not in ("removed", "already-gone"):
                        estate.doubts[path] = removal.reason

    def _remove_files_of_servers(self, owners: Owners, listing: Listing) -> None:
        """Now: without the journal nothing proves any more that these servers are gone."""
        pids = {one.path: one.server_pid for one in listing.files if one.server_pid is not None}
        servers = Listing([one for one in listing.files if one.path in pids], listing.unreadable)
        estates = {
            estate.view.owner.identity.pid: estate
            for estate in self.claimed.values()
            if estate.view.owner is not None and estate.view.owner.identity is not None
        }
        for item in stale_files(owners, servers, (), float("inf")).items:
            path = item.finding.path
            estate = estates.get(pids.get(path) or 0) if path is not None else None
            if path is not None and estate is not None and item.file is not None:
                removal = connections.remove(
                    path, expected=item.file, runtime_dirs=self._runtime_dirs
                )
                estate.files.append((path, removal))

    def give_up(self, history_limit: int | None) -> list[CleanResult]:
        """Note what was done, and remove the journals in which nothing may run any more.

        Those too stay a while whose connection file may be in use: by them it is found again.
        """
        results = []
        marked = self._look().marked if self.claimed else ({}, {})
        for estate in self.claimed.values():
            if estate.ended or estate.files:
                only = next(iter(estate.settled)) if len(estate.settled) == 1 else None
                estate.claim.recovered(len(estate.ended), estate.message, launch_id=only)
            if any(map(_is_young, estate.doubts)):
                reason = "a connection file on record may be in use"
                results.append(CleanResult(estate.path, "stale_file", "kept", reason))
                continue
            known = set(estate.view.launches)
            # A damaged line may hide a launch, but not what its processes bear.
            seen = estate.owner_id in marked[1] or bool(set(marked[0]) - known)
            results.append(estate.claim.remove(history_limit, despite_damage=not seen))
        return results


def _proven_gone(launch: LaunchRecord, table: Snapshot) -> bool:
    return all(
        table.verdict(recorded).proves_death
        for recorded in (launch.keeper, launch.process, launch.kernel)
        if recorded is not None
    )


def _candidate(path: str) -> connections.Candidate | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    file = connections.FileIdentity.from_stat(status)
    return connections.Candidate(path, file, status.st_uid, status.st_mtime)


def _is_young(path: str) -> bool:
    found = _candidate(path)
    return found is not None and time.time() - found.modified_at < _YOUNG


def _exit(launch: LaunchRecord) -> Exit | None:
    if launch.exit is not None or (launch.process is None and launch.running_at is None):
        return launch.exit
    at, summary = time.time(), "ended because the process that owned it died"
    if launch.process is not None and launch.process.world.over:
        at -= time.clock_gettime(time.CLOCK_BOOTTIME)
        summary = "ended with everything else when the machine was started again"
    return Exit(
        code=None,
        signal=None,
        core_dump=False,
        oom=None,
        cause="owner-died",
        max_rss_bytes=None,
        cpu_s=None,
        at=at,
        summary=summary,
    )
