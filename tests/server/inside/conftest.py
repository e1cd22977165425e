"""A server inside of the test's process, with real kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from pytest_jupyter.jupyter_core import *  # noqa: F403
from pytest_jupyter.jupyter_server import *  # noqa: F403
from support.cells import Cells
from support.inside import EXTENSIONS, fresh
from traitlets.config import Config

from jupyter_ownedkernels import ownership

__all__ = ["fresh"]


@pytest.fixture
def jp_server_config() -> Config:
    return Config(
        {"ServerApp": {"jpserver_extensions": EXTENSIONS}, "OwnedKernels": {"standby": 0}}
    )


@pytest.fixture
def connect(
    jp_ws_fetch: Callable[..., Awaitable[Any]],
) -> Iterator[Callable[[str], Awaitable[Cells]]]:
    """Open a WebSocket to a kernel; all are closed at the end."""
    opened = []

    async def one(kernel_id: str) -> Cells:
        socket = await jp_ws_fetch("api", "kernels", kernel_id, "channels")
        opened.append(socket)
        return Cells(socket, kernel_id)

    yield one
    for socket in opened:
        socket.close()


@pytest.fixture
def fork(jp_serverapp: ServerApp) -> Callable[[], Awaitable[str]]:
    """Start a kernel that is forked from a warm spawner; its id."""

    async def one() -> str:
        manager: Any = jp_serverapp.kernel_manager
        first = await manager.start_kernel(kernel_name="python3")
        await manager.shutdown_kernel(first, now=True)
        pool = ownership.current().warm
        while [one["state"] for one in pool.to_json()] == ["starting"]:
            await asyncio.sleep(0.02)
        kernel_id: str = await manager.start_kernel(kernel_name="python3")
        assert ownership.current().kernel(kernel_id).record.launch_mode == "fork"
        return kernel_id

    return one
