"""Kernels that are listed before they run: ``use_pending_kernels``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from support.inside import EXTENSIONS, held_before_the_record
from traitlets.config import Config

from jupyter_ownedkernels import ownership

# A deadlock is what these tests are about.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def jp_server_config() -> Config:
    return Config(
        {
            "ServerApp": {"jpserver_extensions": EXTENSIONS},
            "OwnedKernels": {"standby": 0},
            "AsyncMultiKernelManager": {"use_pending_kernels": True},
        }
    )


async def settled(manager: Any) -> None:
    while manager._pending_kernels:
        await asyncio.wait(list(manager._pending_kernels.values()))


def ends() -> list[tuple[str, str | None]]:
    kernels = ownership.current().kernels()
    return [(k.state.value, k.last_exit.cause if k.last_exit else None) for k in kernels]


async def test_an_end_that_comes_before_the_launch(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end waits for the start, and that comes to nothing."""
    manager: Any = jp_serverapp.kernel_manager
    _, go_on = held_before_the_record(monkeypatch)
    kernel_id = await manager.start_kernel(kernel_name="python3")
    end = asyncio.ensure_future(manager.shutdown_kernel(kernel_id))
    while not manager.get_kernel(kernel_id).end_is_wished:
        await asyncio.sleep(0)
    go_on.set()
    await end
    await settled(manager)
    assert kernel_id not in manager
    assert ends() == [("ended", None)]
    assert ownership.current().kernel(kernel_id).record.process is None


async def test_a_restart_in_the_same_breath_as_the_start(jp_serverapp: ServerApp) -> None:
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    await manager.restart_kernel(kernel_id, now=True)
    assert ownership.current().kernel(kernel_id).record.generation == 2
    await manager.shutdown_kernel(kernel_id, now=True)
    await settled(manager)


async def test_a_restart_in_the_same_breath_as_the_end(jp_serverapp: ServerApp) -> None:
    """The end goes on when its caller does, and the kernel is not started again."""
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    await manager.get_kernel(kernel_id).ready
    await manager.shutdown_kernel(kernel_id, now=True)
    kernel = manager.get_kernel(kernel_id)
    assert kernel.turn.locked()
    assert await manager.restart_kernel(kernel_id) is None
    assert kernel_id not in manager
    assert not kernel.turn.locked()
    assert manager._turns == {}
    assert ends() == [("ended", "shutdown")]


async def test_a_server_that_stops_waits_for_their_ends(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: Any = jp_serverapp.kernel_manager
    first = await manager.start_kernel(kernel_name="python3")
    await manager.get_kernel(first).ready
    _, go_on = held_before_the_record(monkeypatch)
    others = [await manager.start_kernel(kernel_name="python3") for _ in range(2)]
    stop = asyncio.ensure_future(manager.shutdown_all())
    while not all(manager.get_kernel(kernel_id).end_is_wished for kernel_id in others):
        await asyncio.sleep(0)
    go_on.set()
    await stop
    assert manager.list_kernel_ids() == []
    assert not manager._pending_kernels
    assert ends() == [("ended", "shutdown"), ("ended", None), ("ended", None)]
