"""The server's manager of all kernels.

Wishes about one kernel (restart, shutdown, automatic restart, culling) take turns. Each
is done completely before the next begins, with one exception: a shutdown that waits for
its turn keeps a restart from starting the kernel again, and a first start from making it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import default

from . import ownership
from .config import OwnedKernels
from .errors import Superseded, UnknownKernel
from .kernel_manager import OwnedServerKernelManager
from .prompt import websocket
from .provisioning import default as default_provisioner
from .wishes import GoingOn

if TYPE_CHECKING:
    from collections.abc import Awaitable

# Beyond the time that one shutdown may take: message, SIGTERM, SIGKILL, report.
_SHUTDOWN_MARGIN = 10.0


class OwnedKernelManager(AsyncMappingKernelManager):
    """The server's mapping manager: every kernel is watched and on record.

    The server's default once this package is installed; name it as
    ``ServerApp.kernel_manager_class`` to choose it against another extension.
    """

    @default("kernel_manager_class")
    def _default_kernel_manager_class(self) -> str:
        return "jupyter_ownedkernels.kernel_manager.OwnedServerKernelManager"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._turns: dict[str, asyncio.Lock] = {}
        self._starting: dict[str, Any] = {}
        """Managers of kernels that are not listed yet."""
        self._culling: set[str] = set()
        self._going_on = GoingOn()
        self.registered_schemas: set[tuple[Any, ...]] = set()
        """Files of event schemas that the server's event logger has got from kernels."""
        self._ownership = ownership.current(OwnedKernels(parent=self).settings)
        # All configuration is merged by now, so that a user's own choice can be seen.
        default_provisioner.offer(self.parent)

    def _turn(self, kernel_id: str) -> asyncio.Lock:
        """The kernel's own lock; one is kept here for kernels of a class without it."""
        kernel = self._kernels.get(kernel_id)
        if isinstance(kernel, OwnedServerKernelManager):
            return kernel.turn
        return self._turns.setdefault(kernel_id, asyncio.Lock())

    def __bool__(self) -> bool:
        # Not by the number of listed kernels alone: a server that stops asks this first, and
        # would leave those that are still starting as they are.
        return bool(self._kernels or self._pending_kernels)

    # -- the first start ---------------------------------------------------------------

    def pre_start_kernel(self, kernel_name: str | None, kwargs: Any) -> Any:
        """Called for a kernel that is to be started; makes its manager."""
        found = super().pre_start_kernel(kernel_name, kwargs)
        if isinstance(found[0], OwnedServerKernelManager):
            found[0].introduced.clear()
        return found

    async def _async_start_kernel(self, **kwargs: Any) -> str:
        """Start a kernel; its id. Raises 409 when it was to end before it had begun.

        One whose caller is cancelled is ended: nobody knows of it.
        """
        kernel_id = kwargs["kernel_id"] = kwargs.get("kernel_id") or self.new_kernel_id(**kwargs)
        was_there = kernel_id in self
        starting = self._going_on.begin(super()._async_start_kernel(**kwargs))
        try:
            return await asyncio.shield(starting)
        except Superseded as error:
            raise HTTPError(409, str(error)) from None
        except asyncio.CancelledError:
            if not was_there:
                self._going_on.begin(self._end_unwanted(kernel_id, starting))
            raise

    async def _end_unwanted(self, kernel_id: str, starting: asyncio.Task[str]) -> None:
        pending = self._pending_kernels.get(kernel_id)
        if pending is not None:
            pending.cancel()
        elif kernel_id not in self:
            starting.cancel()
        await asyncio.wait({starting})
        if self._pending_kernels.get(kernel_id) is pending:
            # Before its task had run for the first time: then nothing else takes it out.
            self._pending_kernels.pop(kernel_id, None)
        if kernel_id in self:
            await self.shutdown_kernel(kernel_id, now=True)

    start_kernel = _async_start_kernel  # type: ignore[assignment]

    async def _add_kernel_when_ready(
        self, kernel_id: str, km: Any, kernel_awaitable: Awaitable[Any]
    ) -> None:
        self._starting[kernel_id] = km
        started = asyncio.get_running_loop().create_future()
        try:
            try:
                started.set_result(await kernel_awaitable)
            except Superseded:
                # No failure: whoever asked for it is told by its manager's ``ready``.
                self.log.info("Kernel %s is being shut down and was not started", kernel_id)
                return
            except Exception as error:
                started.set_exception(error)
            await super()._add_kernel_when_ready(kernel_id, km, started)
        finally:
            self._starting.pop(kernel_id, None)
            # Where a start failed it would stay.
            if self._pending_kernels.get(kernel_id) is asyncio.current_task():
                del self._pending_kernels[kernel_id]

    async def _finish_kernel_start(self, kernel_id: str) -> None:
        kernel = self._kernels.get(kernel_id)
        try:
            await super()._finish_kernel_start(kernel_id)
        finally:
            if isinstance(kernel, OwnedServerKernelManager):
                kernel.introduced.set()

    def start_watching_activity(self, kernel_id: str) -> None:
        """Called for each start. That somebody else begins to listen is no activity."""
        super().start_watching_activity(kernel_id)
        stream: Any = getattr(self._kernels[kernel_id], "_activity_stream", None)
        record = getattr(stream, "_recv_callback", None)
        if record is not None:
            stream.on_recv(lambda parts: websocket.is_welcome(parts) or record(parts))

    # -- wishes ------------------------------------------------------------------------

    async def _async_shutdown_kernel(
        self, kernel_id: str, now: bool | None = False, restart: bool | None = False
    ) -> None:
        """End a kernel. When another shutdown is faster, this one has nothing left to do.

        Raises 404 for a kernel that was not there when it was called.
        """
        with contextlib.ExitStack() as wish:
            if kernel_id in self._pending_kernels:
                # Listed already or not: a start that has not begun yet would wait for our turn.
                starting = self._starting.get(kernel_id) or self._kernels.get(kernel_id)
                wish.enter_context(_wishing_end(starting))
                await self._settled(kernel_id)
                if kernel_id not in self:  # the start has failed
                    return
            self._check_kernel_id(kernel_id)
            kernel = self.get_kernel(kernel_id)
            if not restart:
                wish.enter_context(_wishing_end(kernel))
            if kernel_id in self._culling:
                self._ownership.wish(kernel_id, "culled")
            turn = self._turn(kernel_id)
            await turn.acquire()
            wish.callback(self._turn_is_over, kernel_id, turn)
            if self._kernels.get(kernel_id) is kernel:
                work = self._end(kernel_id, kernel, bool(now), bool(restart), wish.pop_all())
                await self._going_on.finish(work)

    async def _end(
        self, kernel_id: str, kernel: Any, now: bool, restart: bool, wish: contextlib.ExitStack
    ) -> None:
        with wish:
            await super()._async_shutdown_kernel(kernel_id, now=now, restart=restart)
            ending = self._pending_kernels.get(kernel_id)
            if ending is not None and not ending.done():
                # With ``use_pending_kernels`` it goes on, and so do wish and turn.
                goes_on = wish.pop_all()
                ending.add_done_callback(lambda _: goes_on.close())
            elif kernel_id not in self and _has_failed(kernel):
                # A restart, most likely: then it was only taken off the list.
                await kernel.give_up()

    def _turn_is_over(self, kernel_id: str, turn: asyncio.Lock) -> None:
        # Only a shutdown that failed leaves the kernel here, to be tried again.
        if kernel_id not in self:
            self._turns.pop(kernel_id, None)
        turn.release()

    shutdown_kernel = _async_shutdown_kernel  # type: ignore[assignment]

    async def _settled(self, kernel_id: str) -> None:
        """Wait for the end of a start, or of an end, that is under way."""
        if kernel_id in self._pending_kernels:
            await asyncio.wait([self._pending_kernels[kernel_id]])

    async def _async_restart_kernel(self, kernel_id: str, now: bool = False) -> Any:
        """Restart a kernel after what is being done with it; nothing when it is to end."""
        self._check_kernel_id(kernel_id)
        kernel = self.get_kernel(kernel_id)
        await self._settled(kernel_id)
        if self._kernels.get(kernel_id) is not kernel:
            # It has ended meanwhile. The turn that would be made for it now, nobody takes away.
            return None
        turn = self._turn(kernel_id)
        await turn.acquire()
        return await self._going_on.finish(self._restart(kernel_id, kernel, now, turn))

    async def _restart(self, kernel_id: str, kernel: Any, now: bool, turn: asyncio.Lock) -> Any:
        try:
            if self._kernels.get(kernel_id) is not kernel:
                return None
            self._ownership.wish(kernel_id, "restart")
            return await super()._async_restart_kernel(kernel_id, now=now)
        except Superseded:
            self.log.info("Kernel %s is being shut down and was not restarted", kernel_id)
            return None
        finally:
            self._turn_is_over(kernel_id, turn)

    restart_kernel = _async_restart_kernel  # type: ignore[assignment]

    async def interrupt_kernel(self, kernel_id: str) -> None:  # type: ignore[override]
        """Interrupt what the kernel runs. One that just starts or ends runs nothing."""
        self._check_kernel_id(kernel_id)
        kernel = self.get_kernel(kernel_id)
        if self._turn(kernel_id).locked() or not kernel.has_kernel:
            self.log.info("Kernel %s starts or ends: nothing to interrupt", kernel_id)
            return
        await ensure_async(super().interrupt_kernel(kernel_id))

    async def _async_shutdown_all(self, now: bool = False) -> None:
        """End all kernels at once, those that are still starting included.

        Bounded: what does not end in time is left to the keepers, which end it when this
        process does.
        """
        ids = {*self.list_kernel_ids(), *self._pending_kernels}
        if not ids:
            return

        async def end(kernel_id: str) -> None:
            await self.shutdown_kernel(kernel_id, now=now)
            await self._settled(kernel_id)

        tasks = {asyncio.ensure_future(end(kernel_id)): kernel_id for kernel_id in ids}
        bound = max((k.shutdown_wait_time for k in self._kernels.values()), default=5.0)
        done, late = await asyncio.wait(tasks, timeout=bound + _SHUTDOWN_MARGIN)
        for task in late:
            task.cancel()
            self.log.warning("Kernel %s did not end in time", tasks[task])
        if late:
            self._going_on.give_up()
        for task in done:
            error = task.exception()
            if error is not None:
                self.log.error("Kernel %s: %s", tasks[task], error, exc_info=error)

    shutdown_all = _async_shutdown_all  # type: ignore[assignment]

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Note on record that it was the culler, in case that it ends the kernel."""
        if kernel_id not in self or self._turn(kernel_id).locked():
            return
        self._culling.add(kernel_id)
        try:
            await super().cull_kernel_if_idle(kernel_id)
        finally:
            self._culling.discard(kernel_id)

    def remove_kernel(self, kernel_id: str) -> Any:
        """Called when a kernel has ended. What a WebSocket has left to be buffered goes too.

        One that is closed while its kernel ends, as by a tab that ends its kernel, leaves its
        channels to a buffer that nobody would look at again: four sockets each time.
        """
        buffered = self._kernel_buffers.pop(kernel_id, None)
        for stream in buffered["channels"].values() if buffered else ():
            if not stream.closed():
                stream.close()
        return super().remove_kernel(kernel_id)

    # -- after a crash -----------------------------------------------------------------

    def _handle_kernel_died(self, kernel_id: str) -> None:
        """The restarter has given up. Its reason stays on record; its sockets go."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            return
        self.stop_watching_activity(kernel_id)
        self.stop_buffering(kernel_id)
        super()._handle_kernel_died(kernel_id)
        self._kernel_connections.pop(kernel_id, None)
        self._kernel_ports.pop(kernel_id, None)
        self._turns.pop(kernel_id, None)
        self._going_on.begin(_let_go(kernel))

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """The stock model; ``reason`` says how the kernel ended the last time, by accident."""
        model: dict[str, Any] = super().kernel_model(kernel_id)
        try:
            last = self._ownership.kernel(kernel_id).last_exit
        except UnknownKernel:
            return model
        if last is not None and last.cause in ("exited", "killed", "keeper-died"):
            model["reason"] = last.summary
        return model


async def _let_go(kernel: Any) -> None:
    if kernel.has_kernel:
        await kernel.provisioner.wait()
    await kernel.cleanup_resources(restart=False)


def _has_failed(kernel: Any) -> bool:
    ready = kernel.ready
    failed = ready.done() and not ready.cancelled() and ready.exception() is not None
    return failed and isinstance(kernel, OwnedServerKernelManager)


def _wishing_end(kernel: Any) -> contextlib.AbstractContextManager[None]:
    if isinstance(kernel, OwnedServerKernelManager):
        return kernel.wishing_end()
    return contextlib.nullcontext()
