"""Nothing waits without a reason: the end of a start, the schemas of events, a new WebSocket."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jupyter_client import manager as client_manager
from jupyter_events import EventLogger
from jupyter_server.serverapp import ServerApp
from support.cells import Cells

from jupyter_ownedkernels.prompt import websocket

Connect = Callable[[str], Awaitable[Cells]]
Fork = Callable[[], Awaitable[str]]

# In the kernel: count the requests that come by the control channel.
COUNT = """
kernel = get_ipython().kernel
asked, answer = [], kernel.control_handlers["kernel_info_request"]
def counting(*arguments):
    asked.append(1)
    return answer(*arguments)
kernel.control_handlers["kernel_info_request"] = counting
"""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What jupyter_client's manager of a kernel sleeps."""
    slept: list[float] = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            await asyncio.sleep(seconds)

    monkeypatch.setattr(client_manager, "asyncio", Recording())
    return slept


async def test_a_start_does_not_pause_at_its_end(
    jp_serverapp: ServerApp, pauses: list[float]
) -> None:
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    assert pauses == []
    first = manager.get_kernel(kernel_id).ready
    assert first.done()
    await manager.restart_kernel(kernel_id, now=True)
    second = manager.get_kernel(kernel_id).ready
    assert second is not first
    assert second.done()
    assert second.exception() is None


async def test_a_start_that_fails_is_told_by_the_future(jp_serverapp: ServerApp) -> None:
    manager: Any = jp_serverapp.kernel_manager
    with pytest.raises(RuntimeError, match="no such option"):
        await manager.start_kernel(kernel_name="python3", kernel_id="k-1-2-3-4", cwd=Refusing())
    assert "k-1-2-3-4" not in manager


async def test_a_failure_that_nobody_asks_for_is_no_surprise(jp_serverapp: ServerApp) -> None:
    """The log has it; a second start makes another future."""
    manager: Any = jp_serverapp.kernel_manager
    kernel = manager.kernel_manager_factory(parent=manager, kernel_name="python3")
    surprises: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, told: surprises.append(told))
    with pytest.raises(RuntimeError, match="no such option"):
        await kernel.start_kernel(cwd=Refusing())
    await kernel.start_kernel()
    gc.collect()
    assert surprises == []
    await kernel.shutdown_kernel(now=True)


class Refusing:
    """A folder that fails when it is looked at."""

    def __fspath__(self) -> str:
        raise RuntimeError("no such option")


async def test_schemas_are_read_once_and_each_start_is_told(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    register = EventLogger.register_event_schema

    def counting(self: EventLogger, schema: Any) -> Any:
        read.append(schema)
        return register(self, schema)

    monkeypatch.setattr(EventLogger, "register_event_schema", counting)
    told: list[str] = []

    async def listener(logger: EventLogger, schema_id: str, data: dict[str, Any]) -> None:
        told.append(data["kernel_id"])

    actions = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
    assert jp_serverapp.event_logger is not None
    jp_serverapp.event_logger.add_listener(schema_id=actions, listener=listener)
    manager: Any = jp_serverapp.kernel_manager
    first = await manager.start_kernel(kernel_name="python3")
    before = len(read)
    second = await manager.start_kernel(kernel_name="python3")
    assert len(read) == before > 0
    await asyncio.sleep(0)
    assert told == [first, second]


async def test_a_new_websocket_is_welcomed_and_asks_nothing(connect: Connect, fork: Fork) -> None:
    """The welcome proves the subscription: a busy first message is not lost."""
    forked = await fork()
    first = await connect(forked)
    await first.run(COUNT)
    second = await connect(forked)
    assert await second.run("print(len(asked))") == "0\n"


async def test_nobody_else_hears_of_a_new_websocket(connect: Connect, fork: Fork) -> None:
    forked = await fork()
    first = await connect(forked)
    await first.run("pass")
    await connect(forked)
    await first.run("pass")
    assert {"status", "execute_input"} <= first.heard
    assert "iopub_welcome" not in first.heard


async def test_without_a_welcome_the_kernel_is_asked(
    connect: Connect, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_WELCOME_TIMEOUT", 0.05)
    forked = await fork()
    first = await connect(forked)
    await first.run(COUNT + "kernel.iopub_thread._send_welcome_message = lambda topic: None")
    second = await connect(forked)
    assert int(await second.run("print(len(asked))")) >= 1


async def test_a_kernel_of_which_nothing_is_known_is_asked(
    jp_serverapp: ServerApp, connect: Connect
) -> None:
    manager: Any = jp_serverapp.kernel_manager
    executed = await manager.start_kernel(kernel_name="python3")
    first = await connect(executed)
    await first.run(COUNT)
    second = await connect(executed)
    assert int(await second.run("print(len(asked))")) >= 1


async def test_that_somebody_listens_is_no_activity(
    jp_serverapp: ServerApp, connect: Connect, fork: Fork
) -> None:
    manager: Any = jp_serverapp.kernel_manager
    forked = await fork()
    first = await connect(forked)
    heard: list[bytes] = []
    stream = manager.get_kernel(forked)._activity_stream
    record = stream._recv_callback
    stream.on_recv(lambda parts: (record(parts), heard.extend(parts)))
    await first.run("pass")
    # The server hears of it by itself, maybe later than the one who has asked.
    while b'"idle"' not in b"".join(heard).partition(b'"execute_input"')[2]:
        await asyncio.sleep(0.01)
    before = manager.get_kernel(forked).last_activity
    await connect(forked)
    while not any(b"iopub_welcome" in part for part in heard):
        await asyncio.sleep(0.01)
    assert manager.get_kernel(forked).last_activity == before
