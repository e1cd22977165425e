"""The owner's warm spawners: one per kind of kernel, started in the background.

Speed, never correctness: whatever goes wrong here, the answer is a launch by exec. Only
when it is not known whether a kernel was forked does the caller have to give up the
connection file, and :class:`.WarmLost` says so.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from ..errors import LaunchError, LaunchTimeout, SpawnerUnavailable, WarmLost
from ..runtime import wire
from ..runtime.warm import turns
from .choice import Choice, choose
from .launch import LeaseLost
from .standby import StandbyKernels
from .warm_slot import RETRY_AFTER, Slot
from .warm_spawner import WarmProcess

if TYPE_CHECKING:
    from .launch import Launch, LaunchRequest
    from .launcher import Launcher

log = logging.getLogger(__name__)

# Kinds of kernels beyond this are rare, and a template takes 40 MB: the one that was not
# used for the longest time goes.
MOST_TEMPLATES = 4
# Forking takes 1 to 10 ms, on a machine that swaps seconds.
_ANSWER_TIMEOUT = 5.0
# So that a template does not compete with the first kernel's own start, and a runner of
# one short notebook never starts one.
_HEAD_START = 1.0


class WarmPool:
    """All warm spawners of one owner. Thread-safe; does nothing where it is off.

    ``on_disabled`` is called with the interpreter and the reason when warm starts are
    switched off for it, in the thread that noticed.
    """

    def __init__(
        self,
        launcher: Launcher,
        enabled: bool = True,
        preload: Sequence[str] = (),
        standby: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_disabled: Callable[[str, str], None] | None = None,
    ) -> None:
        self.enabled = enabled
        self.preload = tuple(preload)
        self.on_disabled = on_disabled
        self.standby = StandbyKernels(launcher, standby, RETRY_AFTER, clock)
        self._launcher = launcher
        self._clock = clock
        self._slots: dict[Choice, Slot] = {}
        self._unanswered = 0
        """Launches that were asked for and are neither made nor refused yet."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        _pools.add(self)

    # -- for the owner -------------------------------------------------------------

    def launch(
        self, request: LaunchRequest, stdio: Sequence[int], asked: Callable[[Launch], None]
    ) -> Launch | None:
        """Fork the kernel. None: launch it by exec, nothing has happened.

        Blocks until the kernel exists: some milliseconds, or until it is its turn to boot where
        many are started at once. ``asked`` is told of a launch that waits for it, and may close it.
        Raises WarmLost then, and when the outcome is unknown: the lease is closed, so a kernel
        that comes late is retired, but its connection file and ports must not be used again.
        """
        if not self.enabled:
            return None
        choice = choose(request.argv, request.env, request.connection_file, self.preload)
        if choice is None:
            return None
        claimed = self.standby.claim(request, stdio)
        process = self._ready(choice, request.env, wanted=request)
        if claimed is not None or process is None:
            return claimed
        try:
            launch = self._launcher.submit(request, stdio, process)
        except (wire.Closed, LaunchTimeout) as error:
            self._failed(choice, process, str(error) or "the warm spawner is gone")
            return None
        except OSError as error:
            # Of this process: no descriptor is left, say.
            log.debug("A warm spawner could not be asked: %s", error)
            return None
        asked(launch)
        try:
            self._wait_for_answer(launch)
        except (LeaseLost, FutureTimeout) as error:
            given_up = launch.closed
            launch.close()
            reason = str(error) or f"no answer for more than {_ANSWER_TIMEOUT:g} s"
            if not given_up:
                self._failed(choice, process, reason)
            raise WarmLost(f"a warm start came to nothing: {reason}") from None
        except LaunchError as error:
            self._refused(choice, process, error, request.env)
            return None
        except OSError:
            return None  # The folder, say: exec will meet it as well, and report it.
        with self._lock:
            slot = self._slots.get(choice)  # gone where another kind has taken its place meanwhile
            if slot is not None:
                slot.failures = 0
        return launch

    def _wait_for_answer(self, launch: Launch) -> None:
        """The spawner lets the launches that were asked for before boot first."""
        with self._lock:
            self._unanswered += 1
            longest = _ANSWER_TIMEOUT + self._unanswered * turns.LONGEST
        try:
            launch.started.result(longest)
        finally:
            with self._lock:
                self._unanswered -= 1

    def expect(self) -> None:
        """A launch begins: what can be prepared for it without knowing it is."""
        if self.enabled:
            self.standby.expect()

    def reserve(
        self, argv: Sequence[str], environment: Mapping[str, str], connection_file: str
    ) -> dict[str, int] | None:
        """The ports of a standby kernel for such a launch; None: find free ones.

        The launch that comes with these ports claims it.
        """
        if not self.enabled:
            return None
        choice = choose(argv, environment, connection_file, self.preload)
        if choice is None:
            return None
        return self.standby.reserve(choice, argv, environment, connection_file)

    def prepare(
        self, argv: Sequence[str], environment: Mapping[str, str], connection_file: str
    ) -> None:
        """Have a template ready for such a launch; returns at once."""
        if self.enabled:
            choice = choose(argv, environment, connection_file, self.preload)
            if choice is not None:
                self._ready(choice, environment, head_start=0.0)

    def to_json(self) -> list[dict[str, Any]]:
        """For the health: one entry per kind of kernel, failed ones included."""
        with self._lock:
            slots = list(self._slots.values())
        return [{**s.to_json(), "standby": self.standby.ready(s.choice)} for s in slots]

    def close(self) -> None:
        """Let all go; their kernels live on under their keepers until their leases end."""
        self._closed.set()
        self.standby.close()
        with self._lock:
            slots, self._slots = list(self._slots.values()), {}
        for slot in slots:
            slot.let_go()

    def abandon(self) -> None:
        """In a forked child: they are the parent's."""
        self._lock = threading.Lock()
        self._closed.set()
        self.enabled = False
        self.standby.abandon()
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            if slot.process is not None:
                slot.process.abandon()

    # -- one kind ------------------------------------------------------------------

    def _ready(
        self,
        choice: Choice,
        environment: Mapping[str, str],
        wanted: LaunchRequest | None = None,
        head_start: float = _HEAD_START,
    ) -> WarmProcess | None:
        """The template to fork from, if there is one now; starts one if that makes sense.

        With the launch that it is wanted for, standby kernels follow.
        """
        with self._lock:
            if self._closed.is_set():
                return None
            slot = self._slots.get(choice)
            if slot is None:
                slot = self._slots[choice] = Slot(choice)
                self._evict(slot)
            slot.wanted = wanted or slot.wanted
            if slot.state == "starting":
                return None
            if slot.state == "ready":
                assert slot.process is not None
                slot.used_at = self._clock()
                if slot.process.alive:
                    if wanted is not None:
                        self.standby.replenish(choice, slot.process, wanted)
                    return slot.process
                slot.process.close()
                slot.process = None
                slot.count_failure("the warm spawner has ended", self._clock())
            if slot.state == "off":
                if self._clock() < slot.off_until:
                    return None
                slot.failures = 0
            slot.state = "starting"
            slot.used_at = self._clock()
        thread = threading.Thread(
            target=self._start,
            args=(slot, dict(environment), head_start),
            name="ownedkernels-warm",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:  # Of a limit on processes.
            with self._lock:
                slot.count_failure(str(error), self._clock())
        return None

    def _start(self, slot: Slot, environment: dict[str, str], head_start: float) -> None:
        if self._closed.wait(head_start):
            return
        choice = slot.choice
        try:
            try:
                process = self._start_one(slot, choice, environment)
            except SpawnerUnavailable as error:
                if not choice.preload or self._closed.is_set():
                    raise
                # Better a template without the user's modules than none.
                log.warning("warm_preload is left out: %s", error)
                without = Choice(
                    choice.executable, choice.interpreter, choice.flags, choice.module, ()
                )
                process = self._start_one(slot, without, environment)
                slot.preload = ()
                slot.reason = f"warm_preload is left out: {error}"
        except SpawnerUnavailable as error:
            if self._closed.is_set():
                return
            # It would fail in the same way at each kernel's start, and costs a second.
            with self._lock:
                slot.switch_off(str(error), self._clock())
            self._say_disabled(slot)
            return
        for trouble in process.troubles:
            log.warning("warm_preload: %s", trouble)
            slot.reason = f"warm_preload: {trouble}"
        with self._lock:
            wanted = not self._closed.is_set() and self._slots.get(choice) is slot
            if wanted:
                slot.process, slot.state = process, "ready"
        if not wanted:
            process.close()
        elif slot.wanted is not None:
            self.standby.replenish(choice, process, slot.wanted)

    def _start_one(self, slot: Slot, choice: Choice, env: dict[str, str]) -> WarmProcess:
        process = WarmProcess.start_for(self._launcher.owner_id, choice, env)
        slot.process = process
        try:
            process.wait_until_ready()
        except SpawnerUnavailable:
            slot.process = None
            process.abort()
            raise
        return process

    def _evict(self, newest: Slot) -> None:
        """With the lock held."""
        idle = [s for s in self._slots.values() if s is not newest and s.state == "ready"]
        while len(idle) >= MOST_TEMPLATES:
            oldest = min(idle, key=lambda slot: slot.used_at)
            idle.remove(oldest)
            del self._slots[oldest.choice]
            oldest.let_go()

    # -- failures ------------------------------------------------------------------

    def _refused(
        self,
        choice: Choice,
        process: WarmProcess,
        error: LaunchError,
        environment: Mapping[str, str],
    ) -> None:
        if error.stage == "stale":
            log.info("A warm spawner is replaced: %s", error)
            with self._lock:
                slot = self._slots.get(choice)
                if slot is None or slot.process is not process:
                    return
                del self._slots[choice]
            process.close()
            self._ready(choice, environment)
        elif error.stage == "refused":
            self._failed(choice, process, str(error))
        else:
            # A single launch's trouble, such as a module in the working folder.
            log.debug("A warm start was not possible: %s", error)

    def _failed(self, choice: Choice, process: WarmProcess, reason: str) -> None:
        """Give this template up; the next launch starts another, if not too many failed."""
        with self._lock:
            slot = self._slots.get(choice)
            if slot is None or slot.process is not process:
                return
            slot.process = None
            slot.count_failure(reason, self._clock())
            off = slot.state == "off"
        log.warning("A warm start failed, the kernel is started plainly: %s", reason)
        process.close()
        if off:
            self._say_disabled(slot)

    def _say_disabled(self, slot: Slot) -> None:
        interpreter, reason = slot.choice.executable, slot.reason or ""
        log.info("No warm starts of %s for %g s: %s", interpreter, RETRY_AFTER, reason)
        if self.on_disabled is not None:
            self.on_disabled(interpreter, reason)


_pools: weakref.WeakSet[WarmPool] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
