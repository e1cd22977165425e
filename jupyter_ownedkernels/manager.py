"""The server's kernel managers: one for all kernels, and one for each."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.services.kernels.kernelmanager import (
    AsyncMappingKernelManager,
    ServerKernelManager,
)
from traitlets import default

from .owned_process import OwnedProcess
from .takeover import offer_provisioner


class OwnedServerKernelManager(ServerKernelManager):
    """One kernel of the server, launched by :class:`.OwnedProvisioner`."""

    async def _async_wait(self, pollinterval: float = 0.1) -> None:
        """Wait for the kernel's end; told by its keeper instead of asking ten times a second."""
        process = getattr(self.provisioner, "process", None)
        if isinstance(process, OwnedProcess):
            await asyncio.shield(asyncio.wrap_future(process.launch.exited))
        else:
            await super()._async_wait(pollinterval)


class OwnedKernelManager(AsyncMappingKernelManager):
    """The server's mapping manager: every kernel is watched and on record.

    The server's default once this package is installed; name it as
    ``ServerApp.kernel_manager_class`` to choose it against another extension.
    """

    @default("kernel_manager_class")
    def _default_kernel_manager_class(self) -> str:
        return "jupyter_ownedkernels.manager.OwnedServerKernelManager"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        # All configuration is merged by now, so that a user's own choice can be seen.
        offer_provisioner(self.parent)
