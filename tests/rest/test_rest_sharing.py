"""Work that is shared: once for all who ask at the same time, kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from jupyter_ownedkernels.sharing import Shared


class Work:
    """Counts its runs; each waits until it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.now = 0.0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.runs += 1
        run = self.runs
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return run

    def shared(self, max_age: float = 10.0) -> Shared[int]:
        return Shared(self, max_age, lambda: self.now)


def in_loop(test: Any) -> Any:
    def run() -> None:
        coroutine: Coroutine[Any, Any, None] = test()
        asyncio.run(coroutine)

    run.__name__ = test.__name__
    return run


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_loop
async def test_one_run_for_all_who_ask_meanwhile() -> None:
    work = Work()
    shared = work.shared()
    asked = [asyncio.ensure_future(shared.get()) for _ in range(50)]
    await _settle()
    work.gate.set()
    assert await asyncio.gather(*asked) == [1] * 50
    assert work.runs == 1


@in_loop
async def test_kept_for_as_long_as_it_may_be_old() -> None:
    work = Work()
    work.gate.set()
    shared = work.shared(10)
    assert shared.age is None
    assert await shared.get() == 1
    work.now = 10
    assert await shared.get() == 1
    assert shared.age == 10
    work.now = 10.1
    assert await shared.get() == 2
    assert shared.newest == 2


@in_loop
async def test_age_counts_from_the_beginning_of_the_work() -> None:
    work = Work()
    shared = work.shared(10)
    asked = asyncio.ensure_future(shared.get())
    await _settle()
    work.now = 8
    work.gate.set()
    await asked
    assert shared.age == 8


@in_loop
async def test_fresh_is_of_work_that_begins_after_the_call() -> None:
    work = Work()
    shared = work.shared()
    first = asyncio.ensure_future(shared.get())
    await _settle()
    # What runs may have looked before: they wait for the next run, which is one for all.
    fresh = [asyncio.ensure_future(shared.get(fresh=True)) for _ in range(10)]
    await _settle()
    work.gate.set()
    assert await first == 1
    assert await asyncio.gather(*fresh) == [2] * 10
    assert work.runs == 2


@in_loop
async def test_one_who_goes_takes_nothing_from_the_others() -> None:
    work = Work()
    shared = work.shared()
    gone = asyncio.ensure_future(shared.get())
    stays = asyncio.ensure_future(shared.get())
    await _settle()
    gone.cancel()
    await _settle()
    work.gate.set()
    assert await stays == 1
    assert work.runs == 1


@in_loop
async def test_an_error_goes_to_all_and_is_not_kept() -> None:
    work = Work()
    work.gate.set()
    work.error = OSError("no /proc")
    shared = work.shared()
    failed = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
    assert [str(one) for one in failed] == ["no /proc"] * 2
    work.error = None
    assert await shared.get() == 2


@in_loop
async def test_an_error_that_nobody_waits_for_is_no_complaint() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    work = Work()
    work.error = OSError("no /proc")
    shared = work.shared()
    asked = asyncio.ensure_future(shared.get())
    await _settle()
    asked.cancel()
    work.gate.set()
    await _settle()
    del shared, asked
    assert complaints == []


@in_loop
async def test_what_is_outdated_is_still_the_newest() -> None:
    work = Work()
    work.gate.set()
    shared = work.shared()
    await shared.get()
    shared.outdate()
    assert shared.newest == 1
    assert await shared.get() == 2


@in_loop
async def test_what_was_under_way_when_it_was_outdated_is_not_kept_as_fresh() -> None:
    work = Work()
    shared = work.shared()
    asked = asyncio.ensure_future(shared.get())
    await _settle()
    work.now = 1
    shared.outdate()
    # Who asks now may not be answered by it either.
    late = asyncio.ensure_future(shared.get())
    await _settle()
    work.now = 2
    work.gate.set()
    assert await asked == 1
    assert await late == 2
    assert await shared.get() == 2
    assert work.runs == 2


def test_the_tests_here_run() -> None:
    with pytest.raises(ZeroDivisionError):
        in_loop(_fails)()


async def _fails() -> None:
    raise ZeroDivisionError
