"""Getting ready for the first kernel of a server, once the server answers."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_async

from ..provisioning.standby import environment_of

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_server.serverapp import ServerApp

    from ..ownership import Ownership

# A server that starts may have work of its own to do: first a page, then kernels.
_HEAD_START = 0.3


async def prepare_default(serverapp: ServerApp, ownership: Ownership) -> None:
    """Start a template for the default kernelspec. Never raises; called by the start hook."""
    if not ownership.warm.enabled:
        return
    await asyncio.sleep(_HEAD_START)
    try:
        name = serverapp.kernel_manager.default_kernel_name
        specs: Any = serverapp.kernel_spec_manager
        # Kernelspecs are files; an asynchronous manager answers with a coroutine.
        spec = await ensure_async(await asyncio.to_thread(specs.get_kernel_spec, name))
        argv, environment, connection_file = _launch_of(spec, name)
        ownership.warm.prepare(argv, environment, connection_file)
    except Exception as error:
        serverapp.log.debug("No warm spawner at server start: %s", error)


def _launch_of(spec: KernelSpec, name: str) -> tuple[list[str], dict[str, str], str]:
    """Command and environment as kernel manager and provisioner will make them."""
    manager = KernelManager(kernel_name=name, connection_file=os.path.abspath("kernel.json"))
    manager._kernel_spec = spec
    connection_file = os.path.realpath(manager.connection_file)
    return manager.format_kernel_cmd(), environment_of(spec, os.environ), connection_file
