"""Changes of kernels that go on, once begun, when whoever asked for them has gone away."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger(__name__)

T = TypeVar("T")


class GoingOn:
    """Work of one event loop. Half a restart, or half an end, would leave a kernel that is
    listed and dead, and cannot be ended any more.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have it done, whoever waits for it. An error of it is logged for developers: mostly the
        one who asked for it is told, or has gone away.
        """
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What it gives. When the caller is cancelled, so is the waiting, and not the work."""
        return await asyncio.shield(self.begin(work))

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.debug("What was asked of a kernel has failed", exc_info=error)

    def give_up(self) -> None:
        """Called where the event loop is about to end."""
        for task in self._tasks:
            task.cancel()
