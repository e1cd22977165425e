"""One piece of work for all who ask for its result at the same time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """A result that is found out when somebody asks, and given out again for a while.

    For one event loop. However many ask, ``work`` runs once at a time; a caller that is
    cancelled (a closed connection) takes nothing away from the others. An error goes to
    all who waited for it and is not kept.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[T]],
        max_age: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self.max_age = max_age
        """Seconds, counted from the moment at which the work was begun."""
        self._clock = clock
        self._running: asyncio.Task[T] | None = None
        self._after: asyncio.Task[T] | None = None
        self._kept: tuple[float, T] | None = None
        self._running_is_outdated = False

    @property
    def age(self) -> float | None:
        """Seconds since the kept result was begun; None when there is none."""
        return None if self._kept is None else self._clock() - self._kept[0]

    @property
    def newest(self) -> T | None:
        """The kept result, however old."""
        return None if self._kept is None else self._kept[1]

    def outdate(self) -> None:
        """What was begun before now is known to be wrong; it stays to be seen as the newest."""
        self._running_is_outdated = self._running is not None
        if self._kept is not None:
            self._kept = (-math.inf, self._kept[1])

    async def get(self, fresh: bool = False) -> T:
        """The result, at most ``max_age`` old; ``fresh``: of work that begins after the call."""
        kept = None if fresh else self._kept
        if kept is not None and self._clock() - kept[0] <= self.max_age:
            return kept[1]
        if self._running is None:
            task = self._begin()
        elif not fresh and not self._running_is_outdated:
            task = self._running
        else:
            if self._after is None:
                self._after = _quietly(asyncio.ensure_future(self._once_more(self._running)))
            task = self._after
        return await asyncio.shield(task)

    def _begin(self) -> asyncio.Task[T]:
        self._running_is_outdated = False
        self._running = _quietly(asyncio.ensure_future(self._run()))
        return self._running

    async def _run(self) -> T:
        begun = self._clock()
        try:
            result = await self._work()
        finally:
            self._running = None
        self._kept = (-math.inf if self._running_is_outdated else begun, result)
        return result

    async def _once_more(self, running: asyncio.Task[T]) -> T:
        await asyncio.wait({running})
        self._after = None
        return await (self._running or self._begin())


def _quietly(task: asyncio.Task[T]) -> asyncio.Task[T]:
    # When everybody who asked has gone, nobody is left to look at an error.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
