"""A launch that is put on record and asked for in a thread, for who may be cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from ..launching.launch import Exited

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..launching.launch import Launch, LaunchRequest
    from ..launching.stdio import Stdio
    from ..owned_kernel import OwnedKernel
    from ..ownership import Ownership


class Submission:
    """A launch that is made in a thread, and that its caller can take back.

    ``record`` puts it on record, ``request`` answers what to ask for then, or raises; both run
    in the thread: a way back to the event loop between them would take longer than either.
    Only one that has to wait for its thread is put on record first.

    A cancelled coroutine goes on at once, while the thread does not: what it brings about
    after that, nobody would end, and the descriptors that it sends must stay open.
    """

    def __init__(
        self,
        ownership: Ownership,
        record: Callable[[], OwnedKernel],
        request: Callable[[OwnedKernel], LaunchRequest],
        stdio: Stdio,
    ) -> None:
        self._ownership = ownership
        self._record = record
        self._request = request
        self._stdio = stdio
        self._lock = threading.Lock()
        self._making: bool = False
        self._given_up: bool = False
        self._made_again: bool = False
        self._kernel: OwnedKernel | None = None
        self._launch: Launch | None = None

    async def made(self) -> Launch:
        """The launch. Raises what ``record``, ``request`` and :meth:`.Ownership.launch` raise."""
        threads = self._ownership.launches
        if threads.are_busy:
            await asyncio.to_thread(self._begin)
        return await asyncio.get_running_loop().run_in_executor(threads, self._make)

    def _begin(self) -> OwnedKernel:
        if self._kernel is not None:
            return self._kernel
        with self._lock:
            if self._given_up:
                raise asyncio.CancelledError
        kernel = self._record()
        if not self._is_wanted(kernel):
            self._end(kernel)
            raise asyncio.CancelledError
        return kernel

    def _make(self) -> Launch:
        with self._lock:
            if self._given_up:
                raise asyncio.CancelledError
            self._making = True
        try:
            kernel = self._begin()
            request = self._request(kernel)
            return self._ownership.launch(kernel, request, self._stdio.child, self._asked)
        finally:
            self._stdio.close_child_ends()

    def _is_wanted(self, kernel: OwnedKernel) -> bool:
        """From here on giving up ends the kernel on record; it may have come before."""
        with self._lock:
            self._kernel = kernel
            return not self._given_up

    def _asked(self, launch: Launch) -> None:
        with self._lock:
            self._launch = launch
            if self._given_up:
                launch.close()

    def give_up(self, made_again: bool = False) -> None:
        """Whatever comes of it is to be ended, on record too. Also when it has failed itself.

        ``made_again``: another launch follows in its place.
        """
        with self._lock:
            self._given_up, self._made_again = True, made_again
            if not self._making:
                self._stdio.close_child_ends()
            if self._launch is not None:
                self._launch.close()
            kernel = self._kernel
        if kernel is not None:
            self._end(kernel)

    def _end(self, kernel: OwnedKernel) -> None:
        kernel.made_again = self._made_again
        self._ownership.ended(kernel, Exited(None), ())
