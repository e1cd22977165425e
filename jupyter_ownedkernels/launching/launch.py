"""One launch as its owner sees it: a handle on the lease, and futures for what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ..errors import LaunchError
from ..models import Survivor
from ..runtime import wire

T = TypeVar("T")


@dataclass(frozen=True)
class LaunchRequest:
    """What a spawner needs to know. It crosses the wire as JSON; see runtime/wire.py."""

    launch_id: str
    argv: Sequence[str]
    env: dict[str, str] = field(repr=False)
    """Never to be logged."""
    cwd: str | None
    connection_file: str
    ports: Sequence[int] = ()
    detached: Literal["keep", "kill"] = "keep"
    grace: float = 1.0
    """Seconds between SIGTERM and SIGKILL."""
    retire_timeout: float = 5.0
    """Seconds after which what still runs is reported instead of waited for."""
    journal: str | None = None
    """Path of the journal that the keeper finishes when the owner has died."""
    remove_connection_file: bool = True
    """Whether the keeper removes the connection file when the owner has died."""
    umask: int | None = None
    oom_score_adj: int | None = None
    inherited: dict[str, Any] | None = None
    """What a fork here and now would pass on; see runtime/inherited.py."""


@dataclass(frozen=True)
class Started:
    """The keeper's first word: a kernel process exists."""

    keeper_pid: int
    keeper_start_ticks: int
    pid: int
    start_ticks: int
    session: int


@dataclass(frozen=True)
class KernelProcess:
    """The process that serves the connection file; behind a wrapper it is another one."""

    pid: int
    start_ticks: int
    session: int


@dataclass(frozen=True)
class Exited:
    """How the kernel ended. ``status`` is that of subprocess: negative for a signal.

    None when nobody could collect it.
    """

    status: int | None
    core_dump: bool = False
    max_rss_bytes: int | None = None
    cpu_s: float | None = None
    oom: bool | None = None
    """Whether the system ended it for want of memory; None when nobody can tell."""
    keeper_lost: bool = False


# What a keeper needs to know of the launch that a standby kernel was claimed for.
_CLAIMED = (
    "launch_id",
    "connection_file",
    "ports",
    "detached",
    "grace",
    "retire_timeout",
    "journal",
    "remove_connection_file",
)


class LeaseLost(LaunchError):
    """The lease ended before the keeper said anything: no kernel of it can be left."""


class Launch:
    """One launch, from request to the report of what was left.

    The three futures settle in this order: :attr:`started` (or it raises), :attr:`exited`,
    :attr:`retired`. Made by :class:`Launcher`. Callbacks on the futures run in its thread, or
    in that of whoever adds one to a future that is done: a forked kernel has started by then.
    """

    def __init__(self, request: LaunchRequest, lease: socket.socket) -> None:
        self.request = request
        self.started: Future[Started] = _certain()
        self.exited: Future[Exited] = _certain()
        self.retired: Future[tuple[Survivor, ...]] = _certain()
        self.kernel: KernelProcess | None = None
        self.on_kernel: Callable[[Launch], None] | None = None
        self.booted = False
        """Whether the kernel stood by before the launch: its ports listen already."""
        self.welcomes = False
        """Whether the kernel is known to welcome whoever subscribes to its output."""
        self.closed = False
        """Whether the lease was ended from here."""
        self._lease: socket.socket | None = lease
        self.pidfd: int | None = None
        self._answers: list[Future[int]] = []
        self._lock = threading.Lock()

    # -- for the provisioner -------------------------------------------------------

    @property
    def returncode(self) -> int | None:
        """None while the kernel runs. A local look, never a round trip.

        When the exit status is unknown (the keeper died) it is -9: that is how such a
        kernel ends.
        """
        if not self.exited.done():
            return None
        status = self.exited.result().status
        return -9 if status is None else status

    def ready(self) -> None:
        """Tell the keeper that the kernel is up: it looks for the kernel process once."""
        self._say({"op": "ready"})

    def signal(self, signum: int) -> Future[int]:
        """Signal the kernel process and what runs in its process group below it.

        Where none of them may be signalled the future gives their number, else 0. It raises
        OSError for a signal that does not exist, and is cancelled when the launch ends first.
        """
        answer: Future[int] = Future()
        with self._lock:
            self._answers.append(answer)
            if not self._say_locked({"op": "signal", "signum": int(signum)}):
                self._answers.remove(answer)
                answer.cancel()
        return answer

    def claim(self, request: LaunchRequest) -> None:
        """A standby kernel becomes the kernel of this request; tell the keeper its part."""
        self.booted = True
        part = {name: getattr(request, name) for name in _CLAIMED}
        self._say({"op": "claim", "request": part})

    def retire(self, grace: float) -> None:
        """End the launch: SIGTERM, ``grace`` seconds, SIGKILL. A second call hastens."""
        self._say({"op": "retire", "grace": grace})

    def finish(self) -> None:
        """What is the owner's part after the end is done: the keeper need not wait for it."""
        self._say({"op": "finish"})

    def close(self) -> None:
        """End the lease, whatever state the launch is in. The keeper retires it."""
        with self._lock:
            self.closed = True
            if self._lease is not None:
                with contextlib.suppress(OSError):
                    self._lease.shutdown(socket.SHUT_RDWR)

    def _say(self, message: wire.Message) -> bool:
        with self._lock:
            return self._say_locked(message)

    def _say_locked(self, message: wire.Message) -> bool:
        if self._lease is None:
            return False
        try:
            wire.send(self._lease, message)
        except (wire.Closed, OSError):
            return False
        return True

    # -- for the launcher's thread -------------------------------------------------

    def hear(self) -> bool:
        """Take one message. False when the lease has ended."""
        lease = self._lease
        if lease is None:
            return False
        try:
            message, fds = wire.receive(lease, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except (wire.Closed, OSError, ValueError):
            return False
        if message["op"] == "started" and fds and self.pidfd is None:
            self.pidfd = fds.pop(0)
        wire.close(fds)
        self._settle(message)
        return True

    def _settle(self, message: wire.Message) -> None:
        op = message["op"]
        if op == "started":
            keeper, process = message["keeper"], message["process"]
            started = Started(
                keeper["pid"],
                keeper["start_ticks"],
                process["pid"],
                process["start_ticks"],
                message["session"],
            )
            resolve(self.started, started)
        elif op == "failed":
            reject(self.started, _error_of(message))
        elif op == "kernel":
            self.kernel = KernelProcess(message["pid"], message["start_ticks"], message["session"])
            if self.on_kernel is not None:
                self.on_kernel(self)
        elif op == "signalled":
            with self._lock:
                answer = self._answers.pop(0) if self._answers else None
            trouble = message.get("errno")
            if answer is not None and trouble is not None and not message["sent"]:
                reject(answer, OSError(trouble, os.strerror(trouble)))
            elif answer is not None:
                # A child behind sudo must not make an interrupt of the kernel an error.
                resolve(answer, 0 if message["sent"] else int(message["denied"]))
        elif op == "exited":
            exited = Exited(
                message["status"],
                message["core"],
                message["max_rss"],
                message["cpu_s"],
                message["oom"],
            )
            resolve(self.exited, exited)
        elif op == "retired":
            survivors = tuple(Survivor(**entry) for entry in message["survivors"])
            resolve(self.retired, survivors)

    def end_lease(self) -> None:
        """The lease is over: whoever still waits for an answer gets none."""
        with self._lock:
            lease, self._lease = self._lease, None
            answers, self._answers = self._answers, []
        if lease is not None:
            lease.close()
        for answer in answers:
            answer.cancel()
        lost = LeaseLost("the keeper ended before it could start the kernel")
        reject(self.started, lost)

    def abandon(self) -> None:
        """In a forked child: let go of what would keep the parent's lease open."""
        self._lock = threading.Lock()
        self.close_pidfd()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def close_pidfd(self) -> None:
        """Give the kernel's pidfd back."""
        pidfd, self.pidfd = self.pidfd, None
        if pidfd is not None:
            os.close(pidfd)


def _certain() -> Future[Any]:
    """A future that cannot be cancelled.

    A coroutine that gives up waiting cancels what it waits for, and with it the future
    of a thread; but that a kernel has ended is a fact, also when nobody waits for it.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


async def settled(future: Future[T], timeout: float | None) -> T:
    """What a launch's future gives. asyncio.TimeoutError after ``timeout`` seconds, if any.

    Before Python 3.12 :func:`asyncio.wait_for` forgets a cancellation that comes in the
    very moment in which the future is done: then a kernel would be started for nobody.
    """
    ours = asyncio.wrap_future(future)
    try:
        await asyncio.wait({ours}, timeout=timeout)
        if not ours.done():
            raise asyncio.TimeoutError
        error = ours.exception()
        if error is not None:
            # A copy: with what is raised goes its traceback, and with that the caller's whole
            # manager would stay for as long as the launch is on record.
            raise copy.copy(error)
        return ours.result()
    finally:
        ours.cancel()


def resolve(future: Future[Any], value: object) -> None:
    """Settle a future; a second word about the same thing is ignored."""
    with contextlib.suppress(InvalidStateError):
        future.set_result(value)


def reject(future: Future[Any], error: Exception) -> None:
    """Settle a future with an error; a second word is ignored."""
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def _error_of(message: wire.Message) -> Exception:
    """The error that subprocess.Popen would have raised for the same program."""
    if message["errno"] is None:
        error = LaunchError(f"the kernel could not be started: {message['text']}")
        error.stage = message["stage"]
        return error
    if message["filename"] is None:
        return OSError(message["errno"], message["text"])
    return OSError(message["errno"], message["text"], message["filename"])
