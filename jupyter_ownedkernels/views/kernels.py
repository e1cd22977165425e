"""What REST shows of kernels: put together from ownership, manager, sessions and /proc."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .. import identity
from ..identity import Verdict
from ..journal import journal
from ..journal.journal import JournalView
from ..models import Exit, LaunchRecord, OwnerRecord, State
from ..owned_kernel import OwnedKernel
from ..ownership import Ownership
from ..processes.table import Table
from ..processes.tree import Process, usage
from ..processes.usage import Group, Load, members_of, processes_of
from ..redaction import redact

# Somebody asked for these ends: such a kernel is not shown any more.
_WISHED = frozenset({"shutdown", "restart", "culled"})
# Of kernels that died by themselves and are not coming back.
_MOST_DEAD = 20


@dataclass(frozen=True)
class Shown:
    """One kernel to be shown, and what is known of it without looking at processes."""

    record: LaunchRecord
    owner: OwnerRecord
    restarts: int = 0
    last_exit: Exit | None = None
    journaled: bool = True
    reason: str | None = None
    """Why it is not watched."""

    @property
    def state(self) -> State:
        return _shown_state(self.record.state, self.journaled)

    @property
    def key(self) -> str:
        """Names the launch among all that are shown at one time."""
        return self.record.launch_id or self.record.kernel_id

    @cached_property
    def group(self) -> Group | None:
        """Where its processes are; None when they cannot be seen from here, or ended."""
        record = self.record
        top = record.keeper or record.process
        if top is None or not record.open:
            return None
        here = identity.this_world()
        # Nearly always the very object, and a comparison of texts is spared.
        if top.world is not here and top.world != here:
            return None
        return Group(
            self.key,
            top,
            top_belongs=record.keeper is None,
            sessions=record.sessions,
            connection_file=record.connection_file,
        )


def _shown_state(state: State, journaled: bool) -> State:
    alive = state in (State.LAUNCHING, State.RUNNING, State.RETIRING)
    return State.UNJOURNALED if alive and not journaled else state


def state_of(ownership: Ownership, kernel: OwnedKernel) -> State:
    """The state in which a kernel is shown."""
    return _shown_state(kernel.state, ownership.journal.on_record(kernel.record.launch_id))


def of_this_owner(ownership: Ownership, present: Callable[[str], bool]) -> list[Shown]:
    """What this process owns. ``present``: whether the server's manager has the kernel.

    Of those that have ended, only what died by itself is shown, the newest first to stay.
    """
    shown, dead = [], []
    for kernel in ownership.kernels():
        if kernel.state is not State.ENDED or present(kernel.kernel_id):
            shown.append(_of_kernel(ownership, kernel))
        elif _died(kernel.record):
            dead.append(_of_kernel(ownership, kernel))
    return [*shown, *dead[-_MOST_DEAD:]]


def _died(record: LaunchRecord) -> bool:
    return record.exit is not None and record.exit.cause not in _WISHED


def _of_kernel(ownership: Ownership, kernel: OwnedKernel) -> Shown:
    record = kernel.record
    # Of a foreign provisioner's kernel no process is known by which restarts are counted.
    other = record.launch_mode == "other"
    return Shown(
        record,
        ownership.owner,
        record.generation - 1 if other else kernel.restarts,
        kernel.last_exit,
        ownership.journal.on_record(record.launch_id),
        kernel.unwatched_reason,
    )


def of_manager_only(
    kernel_id: str, name: str, pid: int | None, connection_file: str, owner: OwnerRecord, why: str
) -> Shown:
    """A kernel that the server's manager has and nobody owns: it is only shown."""
    process = None
    if pid is not None:
        with contextlib.suppress(OSError):
            process = identity.of_pid(pid)
    record = LaunchRecord(
        launch_id="",
        kernel_id=kernel_id,
        generation=0,
        kernel_name=name,
        connection_file=connection_file,
        launch_mode="other" if pid is None else "stock",
        state=State.UNWATCHED,
        process=process,
        sessions=() if pid is None else (pid,),
    )
    return Shown(record, owner, journaled=False, reason=why)


def one_of_this_owner(ownership: Ownership, kernel_id: str) -> Shown:
    """One kernel, whatever its state. Raises UnknownKernel."""
    return _of_kernel(ownership, ownership.kernel(kernel_id))


def of_other_owners(folders: Iterable[str], own_id: str | None) -> list[Shown]:
    """Kernels of every other living owner of this user on this machine, by their journals.

    Takes about 1 ms a journal: call it off the event loop.
    """
    views, _ = journal.read_all(journal.find(folders))
    return [
        shown
        for view in views
        if view.owner is not None
        and view.owner.owner_id != own_id
        and journal.owner_verdict(view) is Verdict.SAME
        for shown in _of_journal(view, view.owner)
    ]


def _of_journal(view: JournalView, owner: OwnerRecord) -> list[Shown]:
    ended: dict[str, LaunchRecord] = {}
    for record in view.launches.values():
        known = ended.get(record.kernel_id)
        if not record.open and (known is None or known.generation < record.generation):
            ended[record.kernel_id] = record
    return [
        Shown(
            record,
            owner,
            restarts=max(record.generation - 1, 0),
            last_exit=ended[record.kernel_id].exit if record.kernel_id in ended else None,
        )
        for record in view.open
    ]


def owner_json(owner: OwnerRecord, url: str = "") -> dict[str, Any]:
    """An owner as REST shows it. ``url`` when it is known better than on record."""
    return {
        "owner_id": owner.owner_id or None,
        "pid": owner.identity.pid if owner.identity else os.getpid(),
        "host": owner.host,
        "url": url or owner.url,
        "user": owner.user,
    }


def kernel_json(
    shown: Shown,
    load: Load | None,
    *,
    display_name: str,
    execution_state: str | None,
    session: Mapping[str, Any] | None,
    url: str = "",
    now: float | None = None,
) -> dict[str, Any]:
    """One entry of ``kernels``. What cannot be known is None, never 0."""
    record = shown.record
    process = record.kernel or record.process
    started_at = record.running_at or record.at or None
    until = record.ended_at or (time.time() if now is None else now)
    ended = record.state is State.ENDED
    return {
        "kernel_id": record.kernel_id,
        "launch_id": record.launch_id or None,
        "generation": record.generation or None,
        "name": record.kernel_name,
        "display_name": display_name,
        "state": shown.state.value,
        "execution_state": "dead" if ended else execution_state,
        "owner": owner_json(shown.owner, url),
        "session": dict(session) if session else None,
        "launch_mode": record.launch_mode,
        "keeper_pid": record.keeper.pid if record.keeper else None,
        "pid": process.pid if process else None,
        "started_at": started_at,
        "uptime_s": max(0.0, until - started_at) if started_at else None,
        "cpu_s": load.cpu_s if load else None,
        "cpu_percent": load.cpu_percent if load else None,
        "rss_bytes": load.rss_bytes if load else None,
        "pss_bytes": None,
        "process_count": load.process_count if load else None,
        "detached_count": load.detached_count if load else None,
        "gpu": None,
        "restarts": shown.restarts,
        "last_exit": shown.last_exit.to_json() if shown.last_exit else None,
        "connection_file": record.connection_file,
        "journaled": shown.journaled,
        "reason": shown.reason,
        "provisioner": record.provisioner,
    }


def processes_in(table: Table, group: Group) -> tuple[list[Process], int | None]:
    """The tree of one kernel, and its proportional memory. Reads /proc; takes milliseconds."""
    members = members_of(group, table)
    if members is None:
        return [], None
    found = processes_of(group, members)
    return found, usage(found, pss=True).pss_bytes


def process_json(process: Process, secrets: Iterable[str]) -> dict[str, Any]:
    """One process, with its command line fit to be shown."""
    return {**process.to_json(), "cmdline": redact(process.cmdline, secrets)}
