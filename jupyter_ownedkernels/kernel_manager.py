"""The server's manager of one kernel."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_client.ioloop.restarter import AsyncIOLoopKernelRestarter
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager
from traitlets import Type, default

from .errors import Superseded
from .prompt.start import PromptKernelManager
from .provisioning.owned_process import OwnedProcess
from .restarter import OwnedKernelRestarter

if TYPE_CHECKING:
    from collections.abc import Iterator


class OwnedServerKernelManager(ServerKernelManager, PromptKernelManager):
    """One kernel of the server, launched by :class:`.OwnedProvisioner`."""

    restarter_class = Type(
        default_value=OwnedKernelRestarter,
        klass=AsyncIOLoopKernelRestarter,
        config=True,
        help="The automatic restarter.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ends_wished = 0
        self.turn = asyncio.Lock()
        """Held by whoever changes this kernel, from the first step to the last."""
        self.introduced = asyncio.Event()
        """Set once all that belongs to the first start is done: until then no restart."""
        self.introduced.set()

    @property
    def end_is_wished(self) -> bool:
        """A shutdown has been asked for: what still wants to start this kernel need not."""
        return self._ends_wished > 0

    @contextlib.contextmanager
    def wishing_end(self) -> Iterator[None]:
        """For a shutdown, from when it is asked for until it is done, has failed or is given up."""
        self._ends_wished += 1
        try:
            yield
        finally:
            self._ends_wished -= 1

    @default("event_logger")
    def _default_event_logger(self) -> Any:
        """The server's. Its schemas for kernels are read at the first kernel, not at each: 4 ms."""
        schemas = (*self.core_event_schema_paths, *self.extra_event_schema_paths)
        of_server = getattr(getattr(self.parent, "parent", None), "event_logger", None)
        registered: set[Any] = getattr(self.parent, "registered_schemas", set())
        if of_server is not None and schemas in registered:
            return of_server
        registered.add(schemas)
        return super()._default_event_logger()

    async def start_kernel(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The first start. A kernel that dies at once is restarted after it, not during."""
        async with self.turn:
            try:
                return await super().start_kernel(*args, **kwargs)
            except BaseException:
                # Nobody else has come to know of it, of its connection file and its ports.
                await self.give_up()
                raise

    async def give_up(self) -> None:
        """End what runs of it, if anything, and let go of its connection file and ports."""
        self.stop_restarter()
        if self.has_kernel:
            await self._async_kill_kernel()
        await self.cleanup_resources()

    async def _async_start_kernel(self, **kw: Any) -> None:
        if self.end_is_wished:
            raise Superseded("the kernel is being shut down")
        await super()._async_start_kernel(**kw)

    async def _async_wait(self, pollinterval: float = 0.1) -> None:
        """Wait for the kernel's end; told by its keeper instead of asking ten times a second."""
        process = getattr(self.provisioner, "process", None)
        if isinstance(process, OwnedProcess):
            await asyncio.shield(asyncio.wrap_future(process.launch.exited))
        else:
            await super()._async_wait(pollinterval)
