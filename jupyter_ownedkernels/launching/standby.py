"""Booted kernels that wait for their place: kept ready, claimed, ended with the owner.

A standby kernel is nobody's yet: it is in no list of kernels and in no journal, but it has
a keeper and a lease like any other, and so ends with this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import LaunchError, WarmLost
from ..marks import LAUNCH_MARKER
from ..runtime import inherited, wire
from . import memory, ports
from .choice import of_template
from .standby_kernel import Needs, StandbyKernel, shape

if TYPE_CHECKING:
    from .choice import Choice
    from .launch import Launch, LaunchRequest
    from .launcher import Launcher
    from .warm_spawner import WarmProcess

log = logging.getLogger(__name__)

# Only what ipykernel itself defines goes through the gate of :mod:`.runtime.warm.standby`.
_MODULES = frozenset({"ipykernel_launcher", "ipykernel"})
_BOOT_TIMEOUT = 60.0
# The kernel that was just started has the processor first.
_HEAD_START = 0.3
_LOW = "memory is low"


class StandbyKernels:
    """All standby kernels of one owner. Thread-safe.

    ``retry_after``: seconds until a kind of kernel that was not fit to stand by is tried again.
    """

    def __init__(
        self,
        launcher: Launcher,
        count: int,
        retry_after: float,
        clock: Callable[[], float] = time.monotonic,
        low: Callable[[], bool] = memory.is_low,
    ) -> None:
        self.count = count
        self._retry_after, self._clock = retry_after, clock
        self.reason: str | None = None
        """Why there is none, when that is not for want of a first kernel."""
        self._launcher = launcher
        self._low = low
        self._ready: list[StandbyKernel] = []
        self._making = 0
        self._due: dict[Choice, tuple[WarmProcess, LaunchRequest]] = {}
        """For the newest launch of each kind, until its head start is over."""
        self._unfit: dict[Choice, float] = {}
        """Until when. Whatever it was may be gone by then: a configuration file."""
        self._replenishing = False
        self._orders: queue.SimpleQueue[tuple[Choice, float] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = threading.Event()

    # -- keeping them ready --------------------------------------------------------

    def replenish(self, choice: Choice, process: WarmProcess, like: LaunchRequest) -> None:
        """Have as many as wanted that fit launches like this one; returns at once."""
        if self.count == 0 or choice.module not in _MODULES:
            return
        with self._lock:
            is_due = choice in self._due
            self._due[choice] = (process, like)
            first, self._replenishing = not self._replenishing, True
        if not is_due:
            self._orders.put((choice, time.monotonic() + _HEAD_START))
        # One thread for all: to start one takes 0.3 ms of the launch that asks for it.
        if first and not self._in_background(self._keep_replenished):
            with self._lock:
                self._replenishing = False
                self._due.clear()

    def _keep_replenished(self) -> None:
        while (order := self._orders.get()) is not None:
            choice, due = order
            if self._closed.wait(due - time.monotonic()):
                return
            self._replenish(choice)

    def _replenish(self, choice: Choice) -> None:
        low = self._low()
        with self._lock:
            if choice not in self._due:
                return
            process, like = self._due.pop(choice)
            ending = self._surplus_locked(0 if low else self.count)
            waiting = [one for one in self._ready if one.reserved_at is None]
            fitting = [
                one
                for one in waiting
                if one.choice == choice and one.launch.request.inherited == like.inherited
            ]
            missing = self.count - len(fitting) - self._making
            if self._clock() < self._unfit.get(choice, 0.0) or self._closed.is_set():
                missing = 0
            if low:
                self.reason, missing = _LOW, 0
            self._making += max(missing, 0)
        for one in ending:
            one.end()
        for _ in range(missing):
            if not self._in_background(self._make_one, choice, process, like):
                with self._lock:
                    self._making -= 1

    def _in_background(self, function: Callable[..., None], *arguments: Any) -> bool:
        name = "ownedkernels-standby"
        try:
            threading.Thread(target=function, args=arguments, name=name, daemon=True).start()
        except RuntimeError as error:
            # Of a limit on processes. The launch that asked for this is none the worse.
            self.reason = str(error)
            return False
        return True

    def _make_one(self, choice: Choice, process: WarmProcess, like: LaunchRequest) -> None:
        made: StandbyKernel | None = None
        try:
            with ports.held() as taken:
                made = self._boot(choice, process, like, taken)
        # That of futures is no OSError before Python 3.11.
        except (LaunchError, OSError, FutureTimeout, wire.Closed, ValueError) as error:
            self.reason = str(error) or type(error).__name__
            log.debug("No standby kernel: %s", self.reason)
        finally:
            with self._lock:
                self._making -= 1
                wanted = made is not None and not self._closed.is_set()
                if made is not None and wanted:
                    self.reason = None
                    self._ready.append(made)
                surplus = self._surplus_locked(self.count)
            if made is not None and not wanted:
                made.end()
            for one in surplus:
                one.end()

    def _surplus_locked(self, count: int) -> list[StandbyKernel]:
        """The dead, the stopped, the reserved that nobody came for, and the oldest too many."""
        idle = [one for one in self._ready if one.is_idle]
        awaited = [one for one in self._ready if one.is_awaited and one.alive]
        ending = [one for one in self._ready if one not in idle and one not in awaited]
        ending += idle[: max(len(idle) - count, 0)]
        self._ready = [one for one in self._ready if one not in ending]
        return ending

    def _boot(
        self, choice: Choice, process: WarmProcess, like: LaunchRequest, taken: dict[str, int]
    ) -> StandbyKernel:
        launch_id = uuid.uuid4().hex
        request = replace(
            like,
            launch_id=launch_id,
            argv=shape(like.argv, like.connection_file),
            env={**of_template(like.env), LAUNCH_MARKER: launch_id},
            cwd="/",
            connection_file="",
            ports=(),
            journal=None,
            remove_connection_file=False,
            umask=None,
        )
        ours, theirs = wire.pair()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            wire.send(ours, {"op": "boot", "ports": taken})
            stdio = [null, null, null, theirs.fileno()]
            launch = self._launcher.submit(request, stdio, process)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(null)
        try:
            launch.started.result(_BOOT_TIMEOUT)
            ours.settimeout(_BOOT_TIMEOUT)
            told, fds = wire.receive(ours)
            wire.close(fds)
            if told.get("op") != "standby":
                if told.get("op") == "unfit":
                    self._unfit[choice] = self._clock() + self._retry_after
                raise LaunchError(str(told.get("reason")))
        except BaseException:
            ours.close()
            launch.close()
            raise
        return StandbyKernel(choice, launch, ours, taken)

    # -- claiming one --------------------------------------------------------------

    def expect(self) -> None:
        """A launch begins that may reserve one: the next one gets ready for it."""
        with self._lock:
            one = next((one for one in self._ready if one.is_idle), None)
        if one is not None:
            one.expect()

    def reserve(
        self,
        choice: Choice,
        argv: Sequence[str],
        environment: Mapping[str, str],
        connection_file: str,
    ) -> dict[str, int] | None:
        """The ports of a standby kernel that such a launch can claim, if there is one."""
        if not self._ready:
            return None
        passed_on = inherited.of_this_thread()
        needs = Needs.of(choice, argv, environment, connection_file, passed_on)
        with self._lock:
            fitting = (one for one in self._ready if one.fits(needs) and one.is_idle)
            one = next(fitting, None)
            if one is None:
                return None
            one.reserved_at = time.monotonic()
        one.announce_claim()
        return dict(one.ports)

    def claim(self, request: LaunchRequest, stdio: Sequence[int]) -> Launch | None:
        """Make a reserved one the kernel that is asked for; None when none was reserved.

        Raises WarmLost when it cannot become that kernel: its ports are of no use then.
        """
        one = self._take(request)
        if one is None:
            return None
        try:
            one.claim(request, stdio)
        except (LaunchError, OSError, wire.Closed, ValueError) as error:
            one.end()
            reason = str(error) or type(error).__name__
            log.info("A standby kernel could not be used: %s", reason)
            raise WarmLost(f"a standby kernel could not be used: {reason}") from None
        return one.launch

    def _take(self, request: LaunchRequest) -> StandbyKernel | None:
        wanted = set(request.ports)
        with self._lock:
            for one in self._ready:
                if one.reserved_at is not None and wanted and wanted <= set(one.ports.values()):
                    self._ready.remove(one)
                    return one
        return None

    # -- for the owner -------------------------------------------------------------

    @property
    def is_making(self) -> bool:
        """Whether one is booted, or about to be."""
        with self._lock:
            return bool(self._due) or self._making > 0

    def ready(self, choice: Choice) -> int:
        """How many of this kind could be claimed now."""
        with self._lock:
            ready = [one for one in self._ready if one.is_idle]
        return sum(one.choice == choice for one in ready)

    def pids(self) -> list[int]:
        """The kernel processes, for health and memory."""
        with self._lock:
            ready = list(self._ready)
        return [one.launch.started.result(0).pid for one in ready if one.alive]

    def close(self) -> None:
        """End all of them."""
        self._closed.set()
        self._orders.put(None)
        with self._lock:
            ready, self._ready = self._ready, []
        for one in ready:
            one.end()

    def abandon(self) -> None:
        """In a forked child: they are the parent's."""
        self._closed.set()
        self._lock = threading.Lock()
        self._due.clear()
        ready, self._ready = self._ready, []
        for one in ready:
            with contextlib.suppress(OSError):
                one.channel.close()
