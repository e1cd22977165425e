"""Ending processes: SIGTERM, grace, SIGKILL, until a fresh look finds nothing left.

This is the only place of the package that signals what its caller has not started
itself; a child of one's own that was not reaped yet may also be ended where it was
started. It never signals a bare pid or a group: a :class:`Target` carries the start
ticks, they are compared after the pidfd was opened, and the signal goes through that
pidfd. Processes are never stopped to take a snapshot: a group that is orphaned while a
member is stopped gets SIGHUP from the system.
"""

from __future__ import annotations

import enum
import errno
import os
import select
import signal
import time
from collections.abc import Iterable
from typing import Callable, NamedTuple

from . import procfs

# Without a pidfd there is nothing to wait on, so the tree is walked at this interval.
_BLIND_INTERVAL = 0.01
# An empty walk must be seen twice: a list of children may miss one while siblings end.
_QUIET_WALKS = 2
# Seconds. What got SIGKILL is a while about it when its memory is large, or swapped out.
_AFTER_KILL = 1.0
# How often to ask whether the retirement is still wanted, where that may change.
_GLANCE = 0.1


class Target(NamedTuple):
    """A process to be ended: signalled only while the start ticks are these."""

    pid: int
    start_ticks: int


class Sent(enum.Enum):
    """What became of one signal."""

    DELIVERED = "delivered"
    GONE = "gone"
    CHANGED = "changed"
    DENIED = "denied"


class Leftover(NamedTuple):
    """A process that could not be ended, and why."""

    target: Target
    session: int
    reason: str  # "not-permitted", "uninterruptible" or "timeout"


def open_pidfd(target: Target) -> int | None:
    """A pidfd that is proven to be the target's.

    None where pidfds are not to be had (old kernel, no descriptor left). Raises
    ProcessLookupError when the target is gone or the number is somebody else's now.
    """
    try:
        fd = os.pidfd_open(target.pid)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EMFILE, errno.ENFILE, errno.EPERM, errno.ENODEV):
            return None
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
    try:
        if not is_running(target):
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_running(target: Target) -> bool:
    """Whether that very process runs (a zombie does not). PermissionError: unreadable."""
    entry = procfs.stat(target.pid)
    return entry is not None and entry.start_ticks == target.start_ticks and entry.alive


def send(target: Target, signum: int, pidfd: int | None = None) -> Sent:
    """Signal one process after proving that it is the one that is meant."""
    own_fd = None
    try:
        if pidfd is None:
            own_fd = pidfd = open_pidfd(target)
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, signum)
        elif is_running(target):
            os.kill(target.pid, signum)
        else:
            return Sent.CHANGED
    except ProcessLookupError:
        return Sent.GONE
    except PermissionError:
        return Sent.DENIED
    finally:
        if own_fd is not None:
            os.close(own_fd)
    return Sent.DELIVERED


def bound(grace: float, timeout: float) -> float:
    """The seconds that a retirement takes at most.

    A grace that is longer than the timeout is kept all the same, and so is a moment after it
    for SIGKILL to do its work: what is ended only then is no leftover.
    """
    return max(timeout, grace + _AFTER_KILL)


class Retirement:
    """One run of ending all that ``find`` names, driven step by step.

    ``find`` looks afresh each time and names the processes that must end, by pid.
    Zombies among them count as ended. The driver (a keeper's loop, or :func:`run`)
    calls :meth:`step` until it returns None, waiting in between on :attr:`fds`. ``grace``
    and ``timeout`` are seconds, see :func:`bound`.
    """

    def __init__(
        self,
        find: Callable[[], Iterable[procfs.Stat]],
        grace: float,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._clock = clock
        now = clock()
        self._kill_at = now + grace
        self._deadline = now + bound(grace, timeout)
        self._held: dict[Target, int | None] = {}
        self._termed: set[Target] = set()
        self._denied: set[Target] = set()
        self._quiet = 0
        self.killed: set[Target] = set()
        self.leftovers: list[Leftover] = []

    @property
    def fds(self) -> list[int]:
        """Descriptors that become readable when one of the processes ends."""
        return [fd for fd in self._held.values() if fd is not None]

    def escalate(self, grace: float = 0.0) -> None:
        """Shorten what is left of the grace; a longer one is ignored."""
        self._kill_at = min(self._kill_at, self._clock() + grace)

    def step(self) -> float | None:
        """Look, signal, and say how many seconds may be waited. None: it is over."""
        found = [entry for entry in self._find() if entry.alive]
        alive = {Target(entry.pid, entry.start_ticks): entry for entry in found}
        self._forget(alive)
        now = self._clock()
        for target in alive:
            if target not in self._denied:
                self._press(target, now)
        waiting = [target for target in alive if target not in self._denied]
        if not waiting:
            self._quiet += 1
            if self._quiet >= _QUIET_WALKS:
                self._finish(alive)
                return None
            return 0.0
        self._quiet = 0
        if now >= self._deadline:
            self._finish(alive)
            return None
        until = self._kill_at if now < self._kill_at else self._deadline
        blind = any(self._held.get(target) is None for target in waiting)
        return min(until - now, _BLIND_INTERVAL) if blind else max(until - now, 0.0)

    def _press(self, target: Target, now: float) -> None:
        if target not in self._held:
            try:
                self._held[target] = open_pidfd(target)
            except ProcessLookupError:
                return
            except PermissionError:  # it has become another user's since it was found
                self._denied.add(target)
                return
        pidfd = self._held[target]
        if now >= self._kill_at:
            if send(target, signal.SIGKILL, pidfd) is Sent.DENIED:
                self._denied.add(target)
            else:
                self.killed.add(target)
        elif target not in self._termed:
            self._termed.add(target)
            if send(target, signal.SIGTERM, pidfd) is Sent.DENIED:
                self._denied.add(target)
            else:
                # Without it a stopped process would not see SIGTERM and take the whole grace.
                send(target, signal.SIGCONT, pidfd)

    def _forget(self, alive: dict[Target, procfs.Stat]) -> None:
        for target in [held for held in self._held if held not in alive]:
            fd = self._held.pop(target)
            if fd is not None:
                os.close(fd)

    def _finish(self, alive: dict[Target, procfs.Stat]) -> None:
        for target, entry in alive.items():
            if target in self._denied:
                reason = "not-permitted"
            else:
                reason = "uninterruptible" if entry.state == "D" else "timeout"
            self.leftovers.append(Leftover(target, entry.session, reason))
        self.close()

    def close(self) -> None:
        """Give the descriptors back. Called by :meth:`step` at the end."""
        self._forget({})


class GivenUp(Exception):
    """Nobody wants the retirement any more; what it has begun is not finished."""


def run(retirement: Retirement, is_wanted: Callable[[], bool] | None = None) -> list[Leftover]:
    """Drive a retirement to its end, blocking; for owner, recovery and doctor.

    Raises GivenUp soon after ``is_wanted`` has said no.
    """
    try:
        while True:
            pause = retirement.step()
            if pause is None:
                return retirement.leftovers
            poller = select.poll()
            for fd in retirement.fds:
                poller.register(fd, select.POLLIN)
            wait(poller, pause, is_wanted)
    finally:
        retirement.close()


def wait(poller: select.poll, seconds: float, is_wanted: Callable[[], bool] | None) -> list[int]:
    """The descriptors that are ready, after at most ``seconds``. Raises GivenUp."""
    if is_wanted is None:
        return [fd for fd, _ in poller.poll(seconds * 1000)]
    until = time.monotonic() + seconds
    while is_wanted():
        left = max(until - time.monotonic(), 0.0)
        ready = poller.poll(min(left, _GLANCE) * 1000)
        if ready or left <= _GLANCE:
            return [fd for fd, _ in ready]
    raise GivenUp
