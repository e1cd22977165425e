"""Who owns what: the one service per process that knows every kernel it asked for.

It is the only writer of a kernel's state. Managers, provisioners, REST and telemetry
read it, tell it what they want, and listen.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any, Literal

from jupyter_core.paths import jupyter_runtime_dir

from . import identity
from .errors import StateConflict, UnknownKernel
from .identity import Identity
from .journal.journal import Journal, candidates, this_owner
from .launching.launch import Exited, Launch, LaunchRequest, Started
from .launching.launcher import Launcher
from .launching.threads import LaunchThreads
from .launching.warm import WarmPool
from .models import Cause, LaunchMode, LaunchRecord, OwnerRecord, State, Survivor
from .owned_kernel import LEGAL, OwnedKernel, describe_exit, log_accident
from .processes.orphans import retire_orphans
from .runtime import sockets
from .settings import Settings

log = logging.getLogger(__name__)

# At the end of this process: what a kernel that honours SIGTERM needs, several times over.
_PATIENCE_AT_EXIT = 1.0
# Ended kernels stay listed, with their reason, but a loop of thousands of runs must not
# fill the memory of its owner.
_ENDED_LIMIT = 200


Listener = Callable[[OwnedKernel, State], None]


class Ownership:
    """All kernels of this process, each with a state that changes in one place only.

    Thread-safe. Listeners get the kernel and the state it had before. They are called
    in the thread in which the change happened, must not block nor ask for another
    change, and their errors are logged.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.owner: OwnerRecord = this_owner(uuid.uuid4().hex)
        folders = candidates(settings.runtime_dir or jupyter_runtime_dir(), settings.journal_dir)
        self.journal = Journal(self.owner, folders, history_limit=settings.history_limit)
        self.launcher = Launcher(self.owner.owner_id, on_lost=self._retire_lost)
        warm = (settings.warm, settings.warm_preload, settings.standby)
        self.warm = WarmPool(self.launcher, *warm)
        self.launches = LaunchThreads()
        self.unwatched_because: str | None = None  # of the newest launch that was to be watched
        self._kernels: dict[str, OwnedKernel] = {}
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()

    # -- reading -------------------------------------------------------------------

    def kernels(self) -> list[OwnedKernel]:
        """The newest launch of every kernel, ended ones included, oldest first."""
        with self._lock:
            return list(self._kernels.values())

    def kernel(self, kernel_id: str) -> OwnedKernel:
        """The newest launch of one kernel. Raises UnknownKernel."""
        with self._lock:
            try:
                return self._kernels[kernel_id]
            except KeyError:
                raise UnknownKernel(f"no kernel {kernel_id} here") from None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be told of each transition of a newest launch; the answer ends that."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- the one writer ------------------------------------------------------------

    def transition(self, kernel: OwnedKernel, state: State, **facts: Any) -> None:
        """Change a launch's state, and note the facts that come with it.

        Raises StateConflict for a step that :data:`LEGAL` does not know. A late word about
        a launch that has a successor changes its own record and nothing else: nobody
        listens to it any more.
        """
        with self._lock:
            before = kernel.state
            if state not in LEGAL[before]:
                raise StateConflict(f"a kernel that is {before.value} cannot be {state.value}")
            kernel.record = replace(kernel.record, state=state, **facts)
            exit_ = kernel.record.exit
            if exit_ is not None and exit_ is not kernel.last_exit:
                kernel.last_exit = exit_
                log_accident(kernel.record, exit_)
            newest = self._kernels.get(kernel.kernel_id) is kernel
            listeners = list(self._listeners) if newest else []
        for listener in listeners:
            try:
                listener(kernel, before)
            except Exception:
                log.exception("A listener failed on kernel %s", kernel.kernel_id)

    # -- a launch ------------------------------------------------------------------

    def begin(
        self,
        kernel_id: str,
        kernel_name: str,
        connection_file: str,
        detached: Literal["keep", "kill"],
        mode: LaunchMode = "exec",
        *,
        removes_file: bool = False,
    ) -> OwnedKernel:
        """Put the intent to launch on record. Takes as long as a write to the disk.

        ``removes_file``: the connection file was written for this launch, and goes with it.
        """
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
            kernel = OwnedKernel(record, previous)
            kernel.removes_file = removes_file
            self._kernels.pop(kernel_id, None)
            self._kernels[kernel_id] = kernel
            self._forget_oldest_ended()
        self.journal.launching(record)
        return kernel

    def launch(
        self,
        kernel: OwnedKernel,
        request: LaunchRequest,
        stdio: list[int],
        asked: Callable[[Launch], None],
    ) -> Launch:
        """Make the launch that :meth:`begin` announced; raises as :meth:`.WarmPool.launch`.

        To be called in :attr:`launches`. ``asked`` is told of each launch that is asked for,
        at once: the last one is that which is made.
        """
        launch = self.warm.launch(request, stdio, asked)
        if launch is None:
            launch = self.launcher.submit(request, stdio)
        else:
            with self._lock:
                kernel.record = replace(kernel.record, launch_mode="fork")
        asked(launch)
        kernel.launch = launch
        launch.on_kernel = lambda _: self._kernel_found(kernel, launch)
        launch.started.add_done_callback(lambda future: self._started(kernel, future))
        launch.exited.add_done_callback(lambda future: self._exited(kernel, future))
        launch.retired.add_done_callback(lambda future: self._retired(kernel, future))
        return launch

    def unwatched(self, kernel: OwnedKernel, pid: int, reason: str, wanted: bool = False) -> None:
        """Launched the stock way, as ``wanted`` or not: nothing ends it with this process."""
        kernel.unwatched_reason = reason
        if not wanted:
            self.unwatched_because = reason
        process = identity.of_pid(pid)
        facts: dict[str, Any] = {"process": process, "sessions": (pid,), "launch_mode": "stock"}
        self.transition(kernel, State.UNWATCHED, **facts)
        self.journal.running(kernel.record.launch_id, keeper=None, **facts)

    def wish(self, kernel_id: str, cause: Cause) -> None:
        """Somebody asked for the end; the exit will say so. The later wish stands."""
        with self._lock:
            kernel = self._kernels.get(kernel_id)
            if kernel is None or kernel.state not in (State.RUNNING, State.UNWATCHED):
                return
            # A culler says so before it shuts down; the shutdown itself knows no better.
            if not (kernel.wish == "culled" and cause == "shutdown"):
                kernel.wish = cause

    def ended(self, kernel: OwnedKernel, exited: Exited, survivors: tuple[Survivor, ...]) -> None:
        """No core process is left. For a launch that came to nothing, and for stock ones;
        those of keepers are reported by :class:`.Launch`."""
        with self._lock:
            if kernel.state is State.ENDED:
                return
            exit_ = kernel.record.exit
            if exit_ is None and kernel.record.process is not None:
                exit_ = describe_exit(kernel, exited)
            facts: dict[str, Any] = {"exit": exit_, "survivors": survivors}
            self.transition(kernel, State.ENDED, ended_at=time.time(), **facts)
        self.journal.ended(kernel.record.launch_id, kernel.record.exit, survivors)

    def close(self) -> None:
        """This process ends in good order: end what is left, then the journal."""
        # Those that its manager has not ended, or was about to start again.
        left = [
            kernel
            for kernel in self.kernels()
            if kernel.state is not State.ENDED or kernel.wish == "restart"
        ]
        retired = []
        for kernel in left:
            if kernel.launch is not None:
                self.wish(kernel.kernel_id, "shutdown")
                kernel.launch.retire(self.settings.terminate_grace)
                retired.append(kernel.launch.retired)
        self.launches.shutdown(wait=False, cancel_futures=True)
        self.warm.close()
        with contextlib.suppress(KeyboardInterrupt):  # A second one: the keepers do the rest.
            wait(retired, _PATIENCE_AT_EXIT)
        for kernel in left:
            if kernel.state is State.LAUNCHING and kernel.launch is None:
                self.ended(kernel, Exited(None), ())
            if kernel.state is State.ENDED:
                if kernel.removes_file and kernel.record.connection_file:
                    sockets.remove_file(kernel.record.connection_file)
                if kernel.launch is not None:
                    kernel.launch.finish()
            elif kernel.launch is not None:
                # The keeper is not done. Without its lease it does all the rest itself.
                kernel.launch.close()
        self.journal.close()

    def _forget_oldest_ended(self) -> None:
        ended = [one for one in self._kernels.values() if one.state is State.ENDED]
        for kernel in ended[: max(len(ended) - _ENDED_LIMIT, 0)]:
            del self._kernels[kernel.kernel_id]

    # -- what the launcher reports: in its thread, or at once where it is known already --

    def _identity(self, pid: int, start_ticks: int) -> Identity:
        return Identity(identity.this_world(), pid, start_ticks)

    def _started(self, kernel: OwnedKernel, future: Future[Started]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        started = future.result()
        self.unwatched_because = None
        keeper = self._identity(started.keeper_pid, started.keeper_start_ticks)
        process = self._identity(started.pid, started.start_ticks)
        facts: dict[str, Any] = {
            "keeper": keeper,
            "process": process,
            "sessions": (started.session,),
            "running_at": time.time(),
        }
        with self._lock:
            if kernel.state is State.ENDED:  # given up while its start was under way
                return
            self.transition(kernel, State.RUNNING, **facts)
        self.journal.running(
            kernel.record.launch_id,
            keeper=keeper,
            process=process,
            sessions=(started.session,),
            launch_mode=kernel.record.launch_mode,
        )

    def _kernel_found(self, kernel: OwnedKernel, launch: Launch) -> None:
        found = launch.kernel
        if found is None:
            return
        process = self._identity(found.pid, found.start_ticks)
        with self._lock:
            sessions = tuple(dict.fromkeys((*kernel.record.sessions, found.session)))
            kernel.record = replace(kernel.record, kernel=process, sessions=sessions)
        if process != kernel.record.process:
            self.journal.kernel(kernel.record.launch_id, process, sessions)

    def _exited(self, kernel: OwnedKernel, future: Future[Exited]) -> None:
        exit_ = describe_exit(kernel, future.result())
        with self._lock:
            if kernel.state is State.RUNNING:
                self.transition(kernel, State.RETIRING, exit=exit_)
            elif kernel.state is State.RETIRING:
                kernel.record = replace(kernel.record, exit=exit_)
                kernel.last_exit = exit_
                return
            else:
                return
        self.journal.retiring(kernel.record.launch_id)

    def _retired(self, kernel: OwnedKernel, future: Future[tuple[Survivor, ...]]) -> None:
        launch = kernel.launch
        if launch is not None:
            self.ended(kernel, launch.exited.result(), future.result())

    def _retire_lost(self, launch: Launch) -> tuple[Survivor, ...]:
        """The keeper died: end, with proof, what its launch has left."""
        launch_id = launch.request.launch_id
        kernel = next((k for k in self.kernels() if k.record.launch_id == launch_id), None)
        if kernel is None:
            return ()
        settings = self.settings
        _, survivors = retire_orphans(
            kernel.record,
            self.owner.owner_id,
            settings.terminate_grace,
            settings.retire_timeout,
        )
        return survivors


_current: Ownership | None = None
_current_lock = threading.Lock()


def current(settings: Callable[[], Settings] = Settings) -> Ownership:
    """The ownership of this process; made at the first call, with what ``settings`` answers."""
    global _current
    with _current_lock:
        if _current is None:
            _current = Ownership(settings())
            atexit.register(_close, _current)
        return _current


def close_current() -> None:
    """End what this process owns, and forget it: the next call of :func:`current` starts
    afresh. For programs that run several servers one after the other, such as tests."""
    global _current
    with _current_lock:
        closing, _current = _current, None
    if closing is not None:
        closing.close()


def _close(ownership: Ownership) -> None:
    if ownership is _current:
        ownership.close()


def _forget_in_child() -> None:
    # A forked child owns nothing: its parent's kernels are its parent's.
    global _current, _current_lock
    _current, _current_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
