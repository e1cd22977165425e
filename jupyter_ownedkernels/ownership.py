"""Who owns what: the one service per process that knows every kernel it asked for.

It is the only writer of a kernel's state. Managers, provisioners, REST and telemetry
read it, tell it what they want, and listen.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal

from . import exits, identity
from .errors import StateConflict, UnknownKernel
from .identity import Identity
from .launcher import Exited, Launch, Launcher, LaunchRequest, Started
from .models import Cause, Exit, LaunchMode, LaunchRecord, State, Survivor

log = logging.getLogger(__name__)

# From a state to the states that may follow. Anything else is a defect, and refused.
LEGAL: dict[State | None, frozenset[State]] = {
    None: frozenset({State.LAUNCHING}),
    State.LAUNCHING: frozenset(
        {State.RUNNING, State.UNJOURNALED, State.UNWATCHED, State.RETIRING, State.ENDED}
    ),
    State.RUNNING: frozenset({State.RETIRING, State.ENDED}),
    State.UNJOURNALED: frozenset({State.RETIRING, State.ENDED}),
    State.UNWATCHED: frozenset({State.RETIRING, State.ENDED}),
    State.RETIRING: frozenset({State.ENDED}),
    State.ENDED: frozenset({State.LAUNCHING}),
}
ALIVE = frozenset(
    {State.LAUNCHING, State.RUNNING, State.UNJOURNALED, State.UNWATCHED, State.RETIRING}
)


@dataclass(frozen=True)
class Settings:
    """The part of the configuration that the service works with; times in seconds."""

    detached_processes: Literal["keep", "kill"] = "keep"
    terminate_grace: float = 1.0
    retire_timeout: float = 5.0
    launch_timeout: float = 10.0
    ready_timeout: float = 5.0
    journal_dir: str | None = None
    history_limit: int = 500
    oom_score_adj: int | None = None


@dataclass
class OwnedKernel:
    """One kernel id of this owner: its newest launch, and how the one before ended."""

    kernel_id: str
    record: LaunchRecord
    launch: Launch | None = None
    wish: Cause | None = None
    """Why the launch is about to end, when somebody asked for it."""
    last_exit: Exit | None = None
    restarts: int = 0
    unwatched_reason: str | None = None
    started_at: float = field(default_factory=time.time)

    @property
    def state(self) -> State:
        return self.record.state


Listener = Callable[[OwnedKernel, "State | None", State], None]


class Ownership:
    """All kernels of this process, each with a state that changes in one place only.

    Thread-safe. Listeners are called without the lock held, in the thread in which the
    change happened; they must not block and their errors are logged.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.owner_id = uuid.uuid4().hex
        self.launcher = Launcher(self.owner_id, on_lost=self._retire_lost)
        self._kernels: dict[str, OwnedKernel] = {}
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()

    @property
    def journal_path(self) -> str | None:
        """Where keepers finish the record after this process has died."""
        return None

    # -- reading -------------------------------------------------------------------

    def kernels(self) -> list[OwnedKernel]:
        """Every kernel that is on record here, ended ones included, oldest first."""
        with self._lock:
            return list(self._kernels.values())

    def kernel(self, kernel_id: str) -> OwnedKernel:
        """One kernel. Raises UnknownKernel."""
        with self._lock:
            try:
                return self._kernels[kernel_id]
            except KeyError:
                raise UnknownKernel(f"no kernel {kernel_id} here") from None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be told of each transition; the answer ends that."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- the one writer ------------------------------------------------------------

    def transition(self, kernel_id: str, launch_id: str, state: State, **facts: object) -> bool:
        """Change a kernel's state, and note the facts that come with it.

        False, and nothing changed, when the launch is not the kernel's newest one: a
        late word about an old generation never touches its successor. Raises
        StateConflict for a step that :data:`LEGAL` does not know.
        """
        with self._lock:
            kernel = self._kernels.get(kernel_id)
            if kernel is None or kernel.record.launch_id != launch_id:
                return False
            before = kernel.state
            if state not in LEGAL[before]:
                raise StateConflict(f"a kernel that is {before.value} cannot be {state.value}")
            kernel.record = replace(kernel.record, state=state, **facts)  # type: ignore[arg-type]
            if kernel.record.exit is not None:
                kernel.last_exit = kernel.record.exit
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener(kernel, before, state)
            except Exception:
                log.exception("A listener failed on kernel %s", kernel_id)
        return True

    # -- a launch ------------------------------------------------------------------

    def begin(
        self,
        kernel_id: str,
        kernel_name: str,
        connection_file: str,
        detached: Literal["keep", "kill"],
        mode: LaunchMode = "exec",
    ) -> LaunchRecord:
        """Put the intent to launch on record; may take as long as a write to disk."""
        with self._lock:
            previous = self._kernels.get(kernel_id)
            record = LaunchRecord(
                launch_id=uuid.uuid4().hex,
                kernel_id=kernel_id,
                generation=previous.record.generation + 1 if previous else 1,
                kernel_name=kernel_name,
                connection_file=connection_file,
                launch_mode=mode,
                at=time.time(),
                detached_policy=detached,
            )
            kernel = OwnedKernel(kernel_id, record)
            if previous is not None:
                kernel.last_exit = previous.last_exit
                kernel.restarts = previous.restarts + 1
            self._kernels[kernel_id] = kernel
        return record

    def launch(self, record: LaunchRecord, request: LaunchRequest, stdio: list[int]) -> Launch:
        """Ask for the launch that :meth:`begin` announced, and follow it to its end."""
        launch = self.launcher.submit(request, stdio)
        with self._lock:
            kernel = self._kernels.get(record.kernel_id)
            if kernel is not None and kernel.record.launch_id == record.launch_id:
                kernel.launch = launch
        launch.on_kernel = lambda _: self._kernel_found(record, launch)
        launch.started.add_done_callback(lambda future: self._started(record, future))
        launch.exited.add_done_callback(lambda future: self._exited(record, future))
        launch.retired.add_done_callback(lambda future: self._retired(record, future))
        return launch

    def unwatched(self, record: LaunchRecord, reason: str) -> None:
        """The launch was made the stock way: nothing ends it when this process dies."""
        with self._lock:
            kernel = self._kernels.get(record.kernel_id)
            if kernel is not None:
                kernel.unwatched_reason = reason
        self.transition(record.kernel_id, record.launch_id, State.UNWATCHED, launch_mode="stock")

    def ended_stock(self, record: LaunchRecord, status: int | None) -> None:
        """A launch that was made the stock way has ended."""
        self._end(record, Exited(status), ())

    def wish(self, kernel_id: str, cause: Cause) -> None:
        """Somebody asked for the end; the exit will say so. The later wish stands."""
        with self._lock:
            kernel = self._kernels.get(kernel_id)
            if kernel is not None:
                kernel.wish = cause

    def abandoned(self, record: LaunchRecord) -> None:
        """The launch came to nothing."""
        self._end(record, Exited(None), ())

    # -- what the launcher reports ---------------------------------------------------

    def _identity(self, pid: int, start_ticks: int) -> Identity:
        return Identity(identity.this_world(), pid, start_ticks)

    def _started(self, record: LaunchRecord, future: Future[Started]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        started = future.result()
        self.transition(
            record.kernel_id,
            record.launch_id,
            State.RUNNING,
            keeper=self._identity(started.keeper_pid, started.keeper_start_ticks),
            process=self._identity(started.pid, started.start_ticks),
            sessions=(started.session,),
        )

    def _kernel_found(self, record: LaunchRecord, launch: Launch) -> None:
        found = launch.kernel
        with self._lock:
            kernel = self._kernels.get(record.kernel_id)
            if found is None or kernel is None or kernel.record.launch_id != record.launch_id:
                return
            sessions = dict.fromkeys((*kernel.record.sessions, found.session))
            kernel.record = replace(
                kernel.record,
                kernel=self._identity(found.pid, found.start_ticks),
                sessions=tuple(sessions),
            )

    def _exited(self, record: LaunchRecord, future: Future[Exited]) -> None:
        exit_ = self._describe(record, future.result())
        self._quietly(record, State.RETIRING, exit=exit_)

    def _retired(self, record: LaunchRecord, future: Future[tuple[Survivor, ...]]) -> None:
        self._quietly(record, State.ENDED, survivors=future.result())

    def _describe(self, record: LaunchRecord, exited: Exited) -> Exit:
        with self._lock:
            kernel = self._kernels.get(record.kernel_id)
            wish = kernel.wish if kernel is not None else None
        cause: Cause
        if exited.keeper_lost:
            cause = "keeper-died"
        elif wish is not None:
            cause = wish
        else:
            cause = "killed" if exited.status is not None and exited.status < 0 else "exited"
        return exits.describe(exited, cause, time.time())

    def _end(self, record: LaunchRecord, exited: Exited, survivors: Iterable[Survivor]) -> None:
        exit_ = self._describe(record, exited)
        self._quietly(record, State.ENDED, exit=exit_, survivors=tuple(survivors))

    def _quietly(self, record: LaunchRecord, state: State, **facts: object) -> None:
        try:
            self.transition(record.kernel_id, record.launch_id, state, **facts)
        except StateConflict:
            log.debug("Launch %s has ended already", record.launch_id)

    def _retire_lost(self, launch: Launch) -> tuple[Survivor, ...]:
        """The keeper died: end, with proof, what its launch has left."""
        return ()


_current: Ownership | None = None
_current_lock = threading.Lock()


def current(settings: Settings | None = None) -> Ownership:
    """The ownership of this process; made at the first call, with its settings."""
    global _current
    with _current_lock:
        if _current is None:
            _current = Ownership(settings or Settings())
        return _current


def _forget_in_child() -> None:
    # A forked child owns nothing: its parent's kernels are its parent's.
    global _current, _current_lock
    _current, _current_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
