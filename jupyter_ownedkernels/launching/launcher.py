"""All launches of one owner: a client of spawners, and the thread that hears keepers.

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
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict

from ..errors import SpawnerUnavailable
from ..models import Survivor
from ..runtime import wire
from .launch import Exited, Launch, LaunchRequest, Started, resolve
from .spawners import SpawnerProcess

log = logging.getLogger(__name__)


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
        gone (wire.Closed). ``stdio`` are three descriptors, the caller's to close
        afterwards. Blocks only as long as it takes to start a spawner (some milliseconds,
        once). Raises SpawnerUnavailable when none can be started.
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
        launch.welcomes = spawner is not None and spawner.welcomes
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
                epoll = select.epoll()
                threading.Thread(
                    target=self._listen, args=(epoll,), name="ownedkernels", daemon=True
                ).start()
                self._epoll = epoll  # not before: without its thread nobody would listen
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
        if fd == launch.pidfd:
            self._forget(epoll, fd)
            self._kernel_ended_without_keeper(launch)
        elif not launch.hear():
            self._forget(epoll, fd)
            launch.end_lease()
            if launch.retired.done() or not _succeeded(launch.started):
                launch.close_pidfd()
                resolve(launch.exited, Exited(None))
                resolve(launch.retired, ())
            elif launch.pidfd is not None:
                # No last word of the keeper: it is dead, and PR_SET_PDEATHSIG with it
                # ends the kernel. Wait for that, then end what the kernel leaves.
                self._launches[launch.pidfd] = launch
                epoll.register(launch.pidfd, select.EPOLLIN)
            else:
                # There was no descriptor left for it. The kernel is ended with proof as well.
                self._kernel_ended_without_keeper(launch)

    def _forget(self, epoll: select.epoll, fd: int) -> None:
        with self._lock:
            self._launches.pop(fd, None)
            with contextlib.suppress(OSError):
                epoll.unregister(fd)

    def _kernel_ended_without_keeper(self, launch: Launch) -> None:
        launch.close_pidfd()
        resolve(launch.exited, Exited(None, keeper_lost=True))
        try:
            threading.Thread(target=self._retire_lost, args=(launch,), daemon=True).start()
        except RuntimeError:
            # A limit on processes. The others wait for an answer a little longer then.
            self._retire_lost(launch)

    def _retire_lost(self, launch: Launch) -> None:
        survivors: tuple[Survivor, ...] = ()
        try:
            if self._on_lost is not None:
                survivors = self._on_lost(launch)
        except Exception:
            log.exception("What launch %s left could not be ended", launch.request.launch_id)
        resolve(launch.retired, survivors)

    def _abandon(self) -> None:
        """In a forked child: drop what would keep the parent's leases open."""
        self._lock = threading.Lock()
        launches, self._launches = self._launches, {}
        for launch in launches.values():
            launch.abandon()
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


def _succeeded(future: Future[Started]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
