"""Shutdowns that wait: each counts until it is done, has failed or is given up."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from jupyter_client.connect import LocalPortCache
from jupyter_server.serverapp import ServerApp
from support.inside import held_before_the_record
from tornado.web import HTTPError

from jupyter_ownedkernels import identity, ownership

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


async def test_a_shutdown_stops_a_first_start(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process is not made at all, and nothing is left of what was prepared for it."""
    manager: Any = jp_serverapp.kernel_manager
    owned = ownership.current()
    reached, go_on = held_before_the_record(monkeypatch)
    start = asyncio.ensure_future(manager.start_kernel(kernel_name="python3"))
    await asyncio.to_thread(reached.wait, 30)
    (kernel_id,) = manager._pending_kernels
    kernel = manager._starting[kernel_id]
    promised = LocalPortCache.instance().currently_used_ports
    ports = set(kernel.ports)
    assert ports <= promised
    end = asyncio.ensure_future(manager.shutdown_kernel(kernel_id))
    while not kernel.end_is_wished:
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(HTTPError, match="409"):
        await start
    await end
    assert kernel_id not in manager
    assert not manager
    assert not kernel.end_is_wished
    record = owned.kernel(kernel_id).record
    assert (record.state.value, record.process) == ("ended", None)
    assert not os.path.exists(record.connection_file)
    assert not ports & promised
    assert [line.getMessage() for line in caplog.records if line.levelname == "ERROR"] == []


@pytest.mark.parametrize("runs", [False, True])
async def test_a_kernel_whose_restart_has_failed_leaves_nothing_when_it_is_ended(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """jupyter_client only takes it off its list then, whatever is left of it."""
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    kernel = manager.get_kernel(kernel_id)

    async def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("this restart fails")

    with monkeypatch.context() as patch:
        step = "_async_post_start_kernel" if runs else "_async_launch_kernel"
        patch.setattr(kernel, step, fail)
        with pytest.raises(RuntimeError, match="this restart fails"):
            await manager.restart_kernel(kernel_id, now=True)
    process = ownership.current().kernel(kernel_id).record.process
    assert os.path.exists(kernel.connection_file)
    assert kernel.has_kernel == runs
    await manager.shutdown_kernel(kernel_id, now=True)
    assert kernel_id not in manager
    assert not os.path.exists(kernel.connection_file)
    assert process is not None
    assert identity.compare(process).proves_death


async def test_a_restart_that_crosses_a_shutdown_leaves_no_turn(jp_serverapp: ServerApp) -> None:
    """There would be one more for each kernel, for as long as the server lives."""
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    end = asyncio.ensure_future(manager.shutdown_kernel(kernel_id, now=True))
    while kernel_id not in manager._pending_kernels:
        await asyncio.sleep(0)
    await manager.restart_kernel(kernel_id)
    await end
    assert kernel_id not in manager
    assert manager._turns == {}
