"""The owner's side of a launch: a client of spawners, and one handle per launch.

Independent of any event loop, so that a synchronous ``KernelManager``, several loops
and several threads can use it alike: answers of keepers arrive in one thread per
owner, which sleeps in epoll without a timeout, and settle ``concurrent.futures``
futures. A coroutine waits on them with :func:`asyncio.wrap_future`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .errors import LaunchError, SpawnerUnavailable
from .models import Survivor
from .runtime import wire
from .spawners import SpawnerProcess

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaunchRequest:
    """What a spawner needs to know. It crosses the wire as JSON; see runtime/wire.py."""

    launch_id: str
    argv: Sequence[str]
    env: dict[str, str]
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


class LeaseLost(LaunchError):
    """The lease ended before the keeper said anything: no kernel of it can be left."""


class Launch:
    """One launch, from request to the report of what was left.

    The three futures settle in this order: :attr:`started` (or it raises), :attr:`exited`,
    :attr:`retired`. Made by :class:`Launcher`; callbacks on the futures run in its thread.
    """

    def __init__(self, request: LaunchRequest, lease: socket.socket) -> None:
        self.request = request
        self.started: Future[Started] = _certain()
        self.exited: Future[Exited] = _certain()
        self.retired: Future[tuple[Survivor, ...]] = _certain()
        self.kernel: KernelProcess | None = None
        self.on_kernel: Callable[[Launch], None] | None = None
        self._lease: socket.socket | None = lease
        self._pidfd: int | None = None
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
        """Signal the kernel process and what runs in its session below it.

        Where none of them may be signalled the future gives their number, else 0. It is
        cancelled when the launch ends first.
        """
        answer: Future[int] = Future()
        with self._lock:
            self._answers.append(answer)
            if not self._say_locked({"op": "signal", "signum": int(signum)}):
                self._answers.remove(answer)
                answer.cancel()
        return answer

    def retire(self, grace: float) -> None:
        """End the launch: SIGTERM, ``grace`` seconds, SIGKILL. A second call hastens."""
        self._say({"op": "retire", "grace": grace})

    def close(self) -> None:
        """End the lease, whatever state the launch is in. The keeper retires it."""
        with self._lock:
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

    def _hear(self) -> bool:
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
        if message["op"] == "started" and fds and self._pidfd is None:
            self._pidfd = fds.pop(0)
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
            _resolve(self.started, started)
        elif op == "failed":
            _reject(self.started, _error_of(message))
        elif op == "kernel":
            self.kernel = KernelProcess(message["pid"], message["start_ticks"], message["session"])
            if self.on_kernel is not None:
                self.on_kernel(self)
        elif op == "signalled":
            with self._lock:
                answer = self._answers.pop(0) if self._answers else None
            if answer is not None:
                # A child behind sudo must not make an interrupt of the kernel an error.
                _resolve(answer, 0 if message["sent"] else int(message["denied"]))
        elif op == "exited":
            exited = Exited(
                message["status"],
                message["core"],
                message["max_rss"],
                message["cpu_s"],
                message["oom"],
            )
            _resolve(self.exited, exited)
        elif op == "retired":
            survivors = tuple(Survivor(**entry) for entry in message["survivors"])
            _resolve(self.retired, survivors)

    def _end_lease(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
            answers, self._answers = self._answers, []
        if lease is not None:
            lease.close()
        for answer in answers:
            answer.cancel()
        lost = LeaseLost("the keeper ended before it could start the kernel")
        _reject(self.started, lost)

    def _close_pidfd(self) -> None:
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            os.close(pidfd)


class Launcher:
    """All launches of one owner. Thread-safe; made once per process, at the first use.

    ``on_lost`` is called in a thread of its own for a launch whose keeper died: the
    kernel process is gone by then, and what the launch left must be ended with proof.
    It returns what could not be ended.
    """

    def __init__(
        self, owner_id: str, on_lost: Callable[[Launch], tuple[Survivor, ...]] | None = None
    ) -> None:
        self.owner_id = owner_id
        self._on_lost = on_lost
        self._spawner: SpawnerProcess | None = None
        self._lock = threading.Lock()
        self._launches: dict[int, Launch] = {}
        self._epoll: select.epoll | None = None
        _launchers.add(self)

    @property
    def spawner(self) -> SpawnerProcess | None:
        """The plain spawner, for health; None before the first launch."""
        return self._spawner

    def submit(
        self,
        request: LaunchRequest,
        stdio: Sequence[int],
        spawner: SpawnerProcess | None = None,
    ) -> Launch:
        """Ask a spawner for a launch; the answer comes in ``launch.started``.

        Without ``spawner`` it is the plain one, started if need be; a given one may be
        gone (wire.Closed). ``stdio`` are three descriptors, the caller's to close afterwards. Blocks only
        as long as it takes to start a spawner (some milliseconds, once). Raises
        SpawnerUnavailable when none can be started.
        """
        ours, theirs = wire.pair()
        try:
            message = dict(asdict(request), op="launch")
            if spawner is not None:
                spawner.send(message, [theirs.fileno(), *stdio])
            else:
                self._send(message, [theirs.fileno(), *stdio])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        launch = Launch(request, ours)
        self._watch(ours.fileno(), launch)
        return launch

    def _send(self, message: wire.Message, fds: Sequence[int]) -> None:
        with self._lock:
            for fresh in (False, True):
                if self._spawner is None or fresh or not self._spawner.alive:
                    if self._spawner is not None:
                        self._spawner.close()
                    self._spawner = SpawnerProcess.start(self.owner_id)
                try:
                    self._spawner.send(message, fds)
                except wire.Closed:
                    continue
                return
        raise SpawnerUnavailable("the spawner ends as soon as it is started")

    # -- the thread ----------------------------------------------------------------

    def _watch(self, fd: int, launch: Launch) -> None:
        with self._lock:
            if self._epoll is None:
                self._epoll = select.epoll()
                threading.Thread(
                    target=self._listen, args=(self._epoll,), name="ownedkernels", daemon=True
                ).start()
            self._launches[fd] = launch
            self._epoll.register(fd, select.EPOLLIN)

    def _listen(self, epoll: select.epoll) -> None:
        while True:
            for fd, _ in epoll.poll():
                launch = self._launches.get(fd)
                if launch is None:
                    continue
                try:
                    self._serve(epoll, fd, launch)
                except Exception:
                    # The thread serves every kernel of the process: none may stop it.
                    log.exception("Launch %s: an answer could not be handled", launch)

    def _serve(self, epoll: select.epoll, fd: int, launch: Launch) -> None:
        if fd == launch._pidfd:
            self._forget(epoll, fd)
            self._kernel_ended_without_keeper(launch)
        elif not launch._hear():
            self._forget(epoll, fd)
            launch._end_lease()
            if launch.retired.done() or not _succeeded(launch.started):
                launch._close_pidfd()
                _resolve(launch.exited, Exited(None))
                _resolve(launch.retired, ())
            elif launch._pidfd is not None:
                # No last word of the keeper: it is dead, and PR_SET_PDEATHSIG with it
                # ends the kernel. Wait for that, then end what the kernel leaves.
                self._launches[launch._pidfd] = launch
                epoll.register(launch._pidfd, select.EPOLLIN)

    def _forget(self, epoll: select.epoll, fd: int) -> None:
        with self._lock:
            self._launches.pop(fd, None)
            with contextlib.suppress(OSError):
                epoll.unregister(fd)

    def _kernel_ended_without_keeper(self, launch: Launch) -> None:
        launch._close_pidfd()
        _resolve(launch.exited, Exited(None, keeper_lost=True))
        threading.Thread(target=self._retire_lost, args=(launch,), daemon=True).start()

    def _retire_lost(self, launch: Launch) -> None:
        survivors: tuple[Survivor, ...] = ()
        try:
            if self._on_lost is not None:
                survivors = self._on_lost(launch)
        except Exception:
            log.exception("What launch %s left could not be ended", launch.request.launch_id)
        _resolve(launch.retired, survivors)

    def _abandon(self) -> None:
        """In a forked child: drop what would keep the parent's leases open."""
        self._lock = threading.Lock()
        launches, self._launches = self._launches, {}
        for launch in launches.values():
            launch._lock = threading.Lock()
            launch._close_pidfd()
            if launch._lease is not None:
                launch._lease.close()
                launch._lease = None
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None
        if self._spawner is not None:
            self._spawner.abandon()
            self._spawner = None


_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for launcher in list(_launchers):
        launcher._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _certain() -> Future[Any]:
    """A future that cannot be cancelled.

    A coroutine that gives up waiting cancels what it waits for, and with it the future
    of a thread; but that a kernel has ended is a fact, also when nobody waits for it.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _succeeded(future: Future[Started]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _resolve(future: Future[Any], value: object) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_result(value)


def _reject(future: Future[Any], error: Exception) -> None:
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


__all__ = [
    "Exited",
    "KernelProcess",
    "Launch",
    "LaunchRequest",
    "Launcher",
    "LeaseLost",
    "Started",
]
