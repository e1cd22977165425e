"""Shutdowns that wait for their turn: each counts until it is done, has failed or is given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_ownedkernels import ownership

# A wish that is never over would keep its test waiting.
pytestmark = pytest.mark.timeout(60)


async def waiting(kernel: Any, count: int) -> None:
    while len(kernel.turn._waiters or ()) < count:
        await asyncio.sleep(0)


async def test_a_shutdown_that_is_given_up_keeps_nobody_from_a_restart(
    jp_serverapp: ServerApp,
) -> None:
    """A client that has gone away while another wish had its turn."""
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    kernel = manager.get_kernel(kernel_id)
    async with kernel.turn:
        ends = [asyncio.ensure_future(manager.shutdown_kernel(kernel_id)) for _ in range(2)]
        await waiting(kernel, 2)
        ends[0].cancel()
        await asyncio.wait(ends[:1])
        assert kernel.end_is_wished, "the other one still waits"
        ends[1].cancel()
        await asyncio.wait(ends)
    assert not kernel.end_is_wished
    await manager.restart_kernel(kernel_id, now=True)
    assert ownership.current().kernel(kernel_id).record.generation == 2
    await manager.shutdown_kernel(kernel_id, now=True)


async def test_a_shutdown_that_fails_takes_no_other_wish_with_it(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    kernel = manager.get_kernel(kernel_id)
    wished = []

    async def fail(*args: Any) -> None:
        wished.append(kernel.end_is_wished)
        raise RuntimeError("this shutdown fails")

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "shutdown_kernel", fail)
        async with kernel.turn:
            ends = [asyncio.ensure_future(manager.shutdown_kernel(kernel_id)) for _ in range(2)]
            await waiting(kernel, 2)
        await asyncio.wait(ends)
    assert wished == [True, True]
    assert not kernel.end_is_wished
    await manager.shutdown_kernel(kernel_id, now=True)
    assert kernel_id not in manager
