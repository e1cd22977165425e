"""The automatic restarter: told of a crash by the keeper, and in order with other wishes."""

from __future__ import annotations

import functools
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from jupyter_client.ioloop.restarter import AsyncIOLoopKernelRestarter

from .errors import Superseded
from .provisioning.held_ports import HoldsPorts
from .provisioning.owned_process import OwnedProcess

if TYPE_CHECKING:
    from .launching.launch import Exited


# Before the second restart in a row; doubled each time. What keeps a kernel from starting may
# be gone in a moment: memory, a device, a disk that is full.
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 2.0


class OwnedKernelRestarter(AsyncIOLoopKernelRestarter):
    """Acts as soon as the kernel has ended; stock looks every three seconds.

    A kernel that dies again soon after its restart is given a longer and longer pause. The
    periodic look stays: it decides when a start counts as stable.
    """

    _watched: Future[Exited] | None = None

    def start(self) -> None:
        """Called by the kernel manager after each start of the kernel."""
        super().start()
        process = getattr(self.kernel_manager.provisioner, "process", None)
        if isinstance(process, OwnedProcess) and self._watched is not process.launch.exited:
            self._watched = process.launch.exited
            # Weakly: the launch is on record for long after its kernel's end, and would keep the
            # whole manager.
            self._watched.add_done_callback(functools.partial(_tell, weakref.ref(self)))

    def _ended(self, future: Future[Exited]) -> None:
        # In the launcher's thread, or in this one where it had ended before. The loop may be
        # closed when a server stops.
        try:
            self.loop.add_callback(self._plan, future)
        except RuntimeError:
            self.log.debug("The event loop is closed: no restart")

    def _plan(self, future: Future[Exited]) -> None:
        if not self._is_due(future):
            return
        provisioner = self.kernel_manager.provisioner
        if isinstance(provisioner, HoldsPorts):
            provisioner.hold_until_restart()
        self.loop.call_later(self._pause(), self._act_on, future)

    def _is_due(self, future: Future[Exited]) -> bool:
        """Whether the kernel has not been started again by now, and nobody has stopped this."""
        return future is self._watched and self._pcallback is not None

    def _pause(self) -> float:
        """Seconds until the restart; none before the first, nor when there will be none."""
        if not self._restarting or self._restart_count >= self.restart_limit:
            return 0.0
        return float(min(_FIRST_PAUSE * 2 ** (self._restart_count - 1), _LONGEST_PAUSE))

    async def _act_on(self, future: Future[Exited]) -> None:
        if self._is_due(future):
            await self.poll()

    async def poll(self) -> None:  # type: ignore[override]
        """Restart the kernel if it has ended and nobody wants it to.

        Takes its turn among the other wishes: a shutdown that was asked for meanwhile
        wins, and a restart that was asked for has been done by then.
        """
        manager: Any = self.kernel_manager
        await manager.introduced.wait()
        async with manager.turn:
            if self._pcallback is None or manager.shutting_down or manager.end_is_wished:
                return
            try:
                await super().poll()
            except Superseded:
                self.log.debug("A shutdown overtook the automatic restart")


def _tell(restarter: weakref.ref[OwnedKernelRestarter], future: Future[Exited]) -> None:
    still_there = restarter()
    if still_there is not None:
        still_there._ended(future)
