"""A launch that is asked for in a thread, on behalf of a coroutine that may be cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..launching.launch import Launch, LaunchRequest
    from ..launching.stdio import Stdio
    from ..owned_kernel import OwnedKernel
    from ..ownership import Ownership


class Submission:
    """A request for a launch that is made in a thread, and that its caller can take back.

    A cancelled coroutine goes on at once, while the thread does not: what it brings about
    after that, nobody would end, and the descriptors that it sends must stay open.
    """

    def __init__(
        self, ownership: Ownership, kernel: OwnedKernel, request: LaunchRequest, stdio: Stdio
    ) -> None:
        self._ownership = ownership
        self._kernel = kernel
        self._request = request
        self._stdio = stdio
        self._lock = threading.Lock()
        self._begun: bool = False
        self._given_up: bool = False
        self._launch: Launch | None = None

    def make(self) -> Launch:
        """The work of the thread."""
        with self._lock:
            if self._given_up:
                raise asyncio.CancelledError
            self._begun = True
        try:
            return self._ownership.launch(
                self._kernel, self._request, self._stdio.child, self._asked
            )
        finally:
            self._stdio.close_child_ends()

    def _asked(self, launch: Launch) -> None:
        with self._lock:
            self._launch = launch
            if self._given_up:
                launch.close()

    def give_up(self) -> None:
        """Whatever comes of it is to be ended. May be called when it has failed itself."""
        with self._lock:
            self._given_up = True
            if not self._begun:
                self._stdio.close_child_ends()
            if self._launch is not None:
                self._launch.close()
