"""Waiting for what a launch tells: a cancellation is never forgotten."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from jupyter_ownedkernels.launching.launch import settled


def told() -> Future[int]:
    future: Future[int] = Future()
    future.set_running_or_notify_cancel()
    return future


def test_a_cancellation_in_the_moment_of_the_answer() -> None:
    async def run() -> None:
        future = told()
        task = asyncio.ensure_future(settled(future, 30))
        await asyncio.sleep(0)
        future.set_result(7)
        await asyncio.sleep(0)  # the answer is on the loop, and has not woken the task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.result() == 7

    asyncio.run(run())


def test_an_answer_and_none() -> None:
    async def run() -> None:
        future = told()
        with pytest.raises(asyncio.TimeoutError):
            await settled(future, 0.01)
        future.set_result(7)
        assert await settled(future, 30) == 7
        failed = told()
        failed.set_exception(OSError("no"))
        with pytest.raises(OSError, match="no"):
            await settled(failed, 30)

    asyncio.run(run())
