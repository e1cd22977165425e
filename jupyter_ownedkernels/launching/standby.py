"""Booted kernels that wait for their place: kept ready, claimed, ended with the owner.

A standby kernel is nobody's yet: it is in no list of kernels and in no journal, but it has
a keeper and a lease like any other, and so ends with this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import LaunchError, WarmLost
from ..marks import LAUNCH_MARKER
from ..runtime import inherited, procfs, wire
from . import memory, ports
from .choice import of_template

if TYPE_CHECKING:
    import socket

    from .choice import Choice
    from .launch import Launch, LaunchRequest
    from .launcher import Launcher
    from .warm_spawner import WarmProcess

log = logging.getLogger(__name__)

_PLACEHOLDER = "{connection_file}"
# Of one launch or one shell; all else must be equal, since the boot may have read it.
_TOLERATED = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "JPY_SESSION_NAME", "JPY_PARENT_PID"})
# Only what ipykernel itself defines goes through the gate of :mod:`.runtime.warm.standby`.
_MODULES = frozenset({"ipykernel_launcher", "ipykernel"})
_BOOT_TIMEOUT = 60.0
_CLAIM_TIMEOUT = 3.0
# From the reservation in ``pre_launch`` to the claim lies the writing of one file.
_RESERVATION = 30.0
# The kernel that was just started has the processor first.
_HEAD_START = 0.3
_LOW = "memory is low"


class Standby:
    """One booted kernel, with the channel on which it can be claimed."""

    def __init__(
        self, choice: Choice, launch: Launch, channel: socket.socket, taken: dict[str, int]
    ) -> None:
        self.choice, self.launch, self.channel, self.ports = choice, launch, channel, taken
        self.shape = tuple(launch.request.argv)
        self.environment = _significant(launch.request.env)
        self.reserved_at: float | None = None
        self.expiry: threading.Timer | None = None

    @property
    def alive(self) -> bool:
        return not self.launch.exited.done()

    @property
    def is_stopped(self) -> bool:
        """By a signal or a debugger: a claim would wait for nothing."""
        try:
            seen = procfs.stat(self.launch.started.result(0).pid)
        except OSError:
            return False
        return seen is not None and seen.state in "Tt"

    @property
    def is_idle(self) -> bool:
        """Whether it could be reserved."""
        return self.reserved_at is None and self.alive and not self.is_stopped

    def end(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
        self.channel.close()
        self.launch.close()
        if self.reserved_at is None:
            # Else they are in the connection file of whoever reserved it, and given back there.
            ports.give_back(self.ports)


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
        self._ready: list[Standby] = []
        self._making = 0
        self._due: dict[Choice, tuple[WarmProcess, LaunchRequest]] = {}
        """For the newest launch of each kind, until its head start is over."""
        self._unfit: dict[Choice, float] = {}
        """Until when. Whatever it was may be gone by then: a configuration file."""
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
        if not is_due:
            self._in_background(self._replenish, choice)

    def _replenish(self, choice: Choice) -> None:
        if self._closed.wait(_HEAD_START):
            return
        low = self._low()
        with self._lock:
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
            self._in_background(self._make_one, choice, process, like)

    @staticmethod
    def _in_background(function: Callable[..., None], *arguments: Any) -> None:
        name = "ownedkernels-standby"
        threading.Thread(target=function, args=arguments, name=name, daemon=True).start()

    def _make_one(self, choice: Choice, process: WarmProcess, like: LaunchRequest) -> None:
        made: Standby | None = None
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

    def _surplus_locked(self, count: int) -> list[Standby]:
        """The dead, the stopped, the reserved that nobody came for, and the oldest too many."""
        now = time.monotonic()
        idle = [one for one in self._ready if one.is_idle]
        awaited = [
            one
            for one in self._ready
            if one.reserved_at is not None and one.reserved_at > now - _RESERVATION and one.alive
        ]
        ending = [one for one in self._ready if one not in idle and one not in awaited]
        ending += idle[: max(len(idle) - count, 0)]
        self._ready = [one for one in self._ready if one not in ending]
        return ending

    def _boot(
        self, choice: Choice, process: WarmProcess, like: LaunchRequest, taken: dict[str, int]
    ) -> Standby:
        launch_id = uuid.uuid4().hex
        request = replace(
            like,
            launch_id=launch_id,
            argv=_shape(like.argv, like.connection_file),
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
        return Standby(choice, launch, ours, taken)

    # -- claiming one --------------------------------------------------------------

    def reserve(
        self,
        choice: Choice,
        argv: Sequence[str],
        environment: Mapping[str, str],
        connection_file: str,
    ) -> dict[str, int] | None:
        """The ports of a standby kernel that such a launch can claim, if there is one."""
        shape, wanted = _shape(argv, connection_file), _significant(environment)
        passed_on = inherited.of_this_thread()
        with self._lock:
            for one in self._ready:
                fits = one.choice == choice and one.shape == shape and one.environment == wanted
                fits = fits and one.launch.request.inherited in (None, passed_on)
                if fits and one.is_idle:
                    one.reserved_at = time.monotonic()
                    one.expiry = self._expire_later()
                    break
            else:
                return None
        # It looks at its files while the connection file is written here. If it cannot be
        # told, the claim will say why.
        with contextlib.suppress(OSError, wire.Closed):
            wire.send(one.channel, {"op": "reserved"})
        return dict(one.ports)

    def _expire_later(self) -> threading.Timer:
        """A start that is cancelled or fails before its launch comes for nothing."""
        timer = threading.Timer(_RESERVATION, self._expire)
        timer.name, timer.daemon = "ownedkernels-standby", True
        timer.start()
        return timer

    def _expire(self) -> None:
        with self._lock:
            ending = self._surplus_locked(self.count)
        for one in ending:
            one.end()

    def claim(self, request: LaunchRequest, stdio: Sequence[int]) -> Launch | None:
        """Make a reserved one the kernel that is asked for; None when none was reserved.

        Raises WarmLost when it cannot become that kernel: its ports are of no use then.
        """
        one = self._take(request)
        if one is None:
            return None
        try:
            if _significant(request.env) != one.environment:
                raise LaunchError("the environment is another than at the reservation")
            if one.launch.request.inherited not in (None, request.inherited):
                raise LaunchError("what a fork passes on is another than at the reservation")
            self._hand_over(one, request, stdio)
        except (LaunchError, OSError, wire.Closed, ValueError) as error:
            one.end()
            reason = str(error) or type(error).__name__
            log.info("A standby kernel could not be used: %s", reason)
            raise WarmLost(f"a standby kernel could not be used: {reason}") from None
        one.channel.close()
        one.launch.request = request
        return one.launch

    def _take(self, request: LaunchRequest) -> Standby | None:
        wanted = set(request.ports)
        with self._lock:
            for one in self._ready:
                if one.reserved_at is not None and wanted and wanted <= set(one.ports.values()):
                    self._ready.remove(one)
                    if one.expiry is not None:
                        one.expiry.cancel()
                    return one
        return None

    def _hand_over(self, one: Standby, request: LaunchRequest, stdio: Sequence[int]) -> None:
        claim = {
            "op": "claim",
            "argv": list(request.argv),
            "env": request.env,
            "cwd": request.cwd,
            "umask": request.umask,
            "connection_file": request.connection_file,
        }
        if one.is_stopped:
            raise LaunchError("it is stopped")
        one.channel.settimeout(_CLAIM_TIMEOUT)
        # It may have found a reason not to since it was reserved, and has said so.
        with contextlib.suppress(wire.Closed):
            wire.send(one.channel, claim, list(stdio))
        told, fds = wire.receive(one.channel)
        wire.close(fds)
        if told.get("op") != "claimed":
            raise LaunchError(str(told.get("reason")))
        # Not before: the keeper of one that failed must know nothing of that file.
        one.launch.claim(request)

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


def _shape(argv: Sequence[str], connection_file: str) -> tuple[str, ...]:
    # One that has no name yet is the working folder. An interpreter in there stays what it is.
    named = re.compile(re.escape(connection_file) + "(?!/)")
    return tuple(named.sub(_PLACEHOLDER, part) for part in argv)


def _significant(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in of_template(environment).items() if name not in _TOLERATED
    }
