"""Threads in which launches are asked for, and wait until their kernel process exists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Not asyncio's own threads: fifty starts would hold all of them for two seconds. Nor many: a
# spawner's socket takes 7 to 26 requests, of 32 to 5 KB.
_LAUNCHES = 8


class LaunchThreads(ThreadPoolExecutor):
    """An executor of one owner that says whether what is given to it now would wait."""

    def __init__(self, count: int = _LAUNCHES) -> None:
        super().__init__(count, "ownedkernels-launch")
        self._count = count
        self._unfinished = 0
        self._counting = threading.Lock()

    @property
    def are_busy(self) -> bool:
        """Whether each of them has something to do already."""
        return self._unfinished >= self._count

    def submit(self, function: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """As the class above it."""
        with self._counting:
            self._unfinished += 1
        try:
            future = super().submit(function, *args, **kwargs)
        except BaseException:
            self._finished()
            raise
        future.add_done_callback(self._finished)
        return future

    def _finished(self, _: Future[T] | None = None) -> None:
        with self._counting:
            self._unfinished -= 1
