"""Launches in a forked child of a process that had an event loop.

The child may go on with its parent's loop (a synchronous ``KernelManager`` does so without
being asked). That loop's executor counts threads on its books which only the parent has, and
hands them work for ever; and the pipe by which threads wake the loop is shared with the
parent, who may read what was meant for the child.
"""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

Launch = TypeVar("Launch", bound=Callable[..., Coroutine[Any, Any, Any]])

# Seconds. A timer does what a lost wake-up would have done.
_TICK = 0.02

_is_forked = False
_mended: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def mends_loop(launch: Launch) -> Launch:
    """Decorator of a coroutine function that works with threads: it ends in a fork, too."""

    @functools.wraps(launch)
    async def mended(*args: Any, **kwargs: Any) -> Any:
        if not _is_forked:
            return await launch(*args, **kwargs)
        loop = asyncio.get_running_loop()
        if loop not in _mended:
            # Whether the loop was made before the fork cannot be known; this harms neither.
            loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
            _mended.add(loop)
        ticker = asyncio.ensure_future(_tick())
        try:
            return await launch(*args, **kwargs)
        finally:
            ticker.cancel()

    return cast(Launch, mended)


async def _tick() -> None:
    while True:  # noqa: ASYNC110 - an event would be set by the wake-up that may be lost
        await asyncio.sleep(_TICK)


def _after_fork_in_child() -> None:
    global _is_forked
    _is_forked = True
    _mended.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
