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

    ``begin`` puts it on record, ``request`` answers what to ask for then, or raises; both run
    in the thread: a way back to the event loop between them would take longer than either.

    A cancelled coroutine goes on at once, while the thread does not: what it brings about
    after that, nobody would end, and the descriptors that it sends must stay open.
    """

    def __init__(
        self,
        ownership: Ownership,
        begin: Callable[[], OwnedKernel],
        request: Callable[[OwnedKernel], LaunchRequest],
        stdio: Stdio,
    ) -> None:
        self._ownership = ownership
        self._begin = begin
        self._request = request
        self._stdio = stdio
        self._lock = threading.Lock()
        self._begun: bool = False
        self._given_up: bool = False
        self._made_again: bool = False
        self._kernel: OwnedKernel | None = None
        self._launch: Launch | None = None

    def make(self) -> Launch:
        """The work of the thread."""
        with self._lock:
            if self._given_up:
                raise asyncio.CancelledError
            self._begun = True
        try:
            kernel = self._begin()
            if not self._is_wanted(kernel):
                self._end(kernel)
                raise asyncio.CancelledError
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
            if not self._begun:
                self._stdio.close_child_ends()
            if self._launch is not None:
                self._launch.close()
            kernel = self._kernel
        if kernel is not None:
            self._end(kernel)

    def _end(self, kernel: OwnedKernel) -> None:
        kernel.made_again = self._made_again
        self._ownership.ended(kernel, Exited(None), ())
