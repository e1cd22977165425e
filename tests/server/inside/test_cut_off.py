"""Starts and WebSockets that end before they have quite begun: nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from support import threads
from support.cells import Cells
from support.inside import held_before_the_record

from jupyter_ownedkernels import ownership
from jupyter_ownedkernels.kernel_manager import OwnedServerKernelManager
from jupyter_ownedkernels.prompt.websocket import PromptWebsocketConnection

Connect = Callable[[str], Awaitable[Cells]]
Fork = Callable[[], Awaitable[str]]

# In the kernel: say something just before each WebSocket is welcomed.
SPEAK = """
kernel = get_ipython().kernel
thread = kernel.iopub_thread
welcome = thread._send_welcome_message
def speaking(topic):
    if topic:
        content = {"name": "stdout", "text": "just before"}
        kernel.session.send(thread.socket, "stream", content, ident=b"stream")
    welcome(topic)
thread._send_welcome_message = speaking
"""


async def test_a_websocket_that_closes_while_its_kernel_ends(
    jp_serverapp: ServerApp, connect: Connect, fork: Fork
) -> None:
    """A tab that ends its kernel does both at once."""
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await fork()
    cells = await connect(kernel_id)
    await cells.run("pass")
    (connection,) = PromptWebsocketConnection._open_sockets
    streams = list(connection.channels.values())
    cells.socket.close()
    await manager.shutdown_kernel(kernel_id)
    while not connection._close_future.done():
        await asyncio.sleep(0.01)
    assert not manager._kernel_buffers
    assert [stream.closed() for stream in streams] == [True] * 4


async def test_what_is_heard_before_the_welcome_is_passed_on(connect: Connect, fork: Fork) -> None:
    """It may be the last word of a cell that somebody else runs."""
    forked = await fork()
    first = await connect(forked)
    await first.run(SPEAK)
    second = await connect(forked)
    heard = json.loads(await asyncio.wait_for(second.socket.read_message(), 30))
    assert heard["content"].get("text") == "just before"


async def test_a_websocket_that_is_closed_at_once(
    connect: Connect, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = await fork()
    await connect(forked)
    connected: list[Any] = []
    connect_as_before = PromptWebsocketConnection.connect

    def connect_and_close(self: Any) -> Any:
        connected.append(connect_as_before(self))
        self.disconnect()
        return connected[-1]

    monkeypatch.setattr(PromptWebsocketConnection, "connect", connect_and_close)
    await connect(forked)
    assert await asyncio.wait_for(connected[0], 30) is None


async def test_a_start_that_is_cancelled_while_it_is_put_on_record(
    jp_serverapp: ServerApp, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: Any = jp_serverapp.kernel_manager
    await fork()
    owned = ownership.current()
    reached, go_on = held_before_the_record(monkeypatch)
    kernel = manager.kernel_manager_factory(parent=manager, kernel_name="python3")
    start = asyncio.ensure_future(kernel.start_kernel(kernel_id="k-5-6-7-8"))
    await asyncio.to_thread(reached.wait, 30)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert kernel.provisioner._hold._sockets == {}
    go_on.set()
    while not any(one.record.kernel_id == "k-5-6-7-8" for one in owned.kernels()):
        await asyncio.sleep(0.01)
    while owned.kernel("k-5-6-7-8").state.value != "ended":
        await asyncio.sleep(0.01)


async def test_a_start_that_gets_no_thread_is_not_put_on_record_later(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on processes. The work waits for a thread that somebody else is given."""
    manager: Any = jp_serverapp.kernel_manager
    kernel = manager.kernel_manager_factory(parent=manager, kernel_name="python3")
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1, "scarce"))
    with monkeypatch.context() as patch:
        threads.refuse(patch, "scarce")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await kernel.start_kernel(independent=True)
    await asyncio.to_thread(str)
    assert ownership.current().kernels() == []


class WithTrouble(OwnedServerKernelManager):
    """A user's own: what it does once the kernel runs fails."""

    async def _async_post_start_kernel(self, **kw: Any) -> None:
        await super()._async_post_start_kernel(**kw)
        raise RuntimeError("after the start")


async def test_a_start_that_fails_at_its_end_leaves_no_kernel(jp_serverapp: ServerApp) -> None:
    """It would run on, and be restarted, without a place in any list."""
    manager: Any = jp_serverapp.kernel_manager
    manager.kernel_manager_factory = WithTrouble
    with pytest.raises(RuntimeError, match="after the start"):
        await manager.start_kernel(kernel_name="python3")
    (kernel,) = ownership.current().kernels()
    assert kernel.record.process is not None
    assert kernel.state.value == "ended"
    assert not os.path.exists(kernel.record.connection_file)
    assert kernel.last_exit is not None
    assert kernel.last_exit.cause == "shutdown"


# jupyter_client has made the coroutine of the start by then, and nobody runs it.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_start_that_is_cancelled_before_it_begins_is_not_awaited(
    jp_serverapp: ServerApp,
) -> None:
    """A server that stops would take the kernel for one that is still starting."""
    manager: Any = jp_serverapp.kernel_manager
    start = asyncio.ensure_future(manager.start_kernel(kernel_name="python3"))
    while not manager._pending_kernels:
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    while manager._pending_kernels:
        await asyncio.sleep(0.01)
    assert not manager


@pytest.mark.parametrize("moment", ["on its way", "just done"])
async def test_a_start_that_is_cancelled_leaves_no_kernel_and_no_file(
    jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Half introduced, it would be listed for nobody, and no list of kernels could be made."""
    manager: Any = jp_serverapp.kernel_manager
    add = manager._add_kernel_when_ready

    async def add_and_cancel(*args: Any) -> None:
        if moment == "just done":
            await add(*args)
        start.cancel()
        if moment == "on its way":
            await add(*args)

    monkeypatch.setattr(manager, "_add_kernel_when_ready", add_and_cancel)
    start = asyncio.ensure_future(manager.start_kernel(kernel_id="k-1-2-3-4"))
    with pytest.raises(asyncio.CancelledError):
        await start
    while manager._going_on._tasks:
        manager.list_kernels()
        await asyncio.sleep(0.01)
    assert not manager
    assert manager.list_kernels() == []
    for kernel in ownership.current().kernels():
        assert kernel.state.value == "ended"
    assert not [one for one in os.listdir(jp_serverapp.runtime_dir) if one.startswith("kernel-")]


@pytest.mark.parametrize("wish", ["shutdown_kernel", "restart_kernel"])
async def test_a_wish_whose_caller_goes_away_is_done_all_the_same(
    jp_serverapp: ServerApp, wish: str
) -> None:
    """Half of it would leave a kernel that is listed, dead, and could not be ended."""
    manager: Any = jp_serverapp.kernel_manager
    kernel_id = await manager.start_kernel(kernel_name="python3")
    kernel = manager.get_kernel(kernel_id)
    asked = asyncio.ensure_future(getattr(manager, wish)(kernel_id))
    while not kernel.turn.locked():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    async with kernel.turn:
        pass
    if wish == "restart_kernel":
        assert ownership.current().kernel(kernel_id).record.generation == 2
        assert await kernel.is_alive()
        await manager.shutdown_kernel(kernel_id, now=True)
    assert kernel_id not in manager
    assert ownership.current().kernel(kernel_id).state.value == "ended"
    assert not os.path.exists(kernel.connection_file)
