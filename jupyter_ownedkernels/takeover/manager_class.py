"""Becoming the server's kernel manager by ``pip install``, and stepping aside.

The server's link hooks run before its kernel manager is made, but also before the
configuration of JupyterLab is read. A value set there would override what the user
chose in ``jupyter_lab_config.py``, and would make a server with a Gateway fail to start.
So no value is set: the *default* of the trait is wrapped. It is asked for when all
configuration and the Gateway client exist, any explicit value is stronger, and another
extension that does the same can wrap it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jupyter_client.provisioning.factory import KernelProvisionerFactory

from ..config import OwnedKernels
from ..imports import uncollected
from ..launching.spawners import unsupported_reason
from ..provisioning import default as default_provisioner
from . import lazy_default

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

_OURS = "jupyter_ownedkernels.manager.OwnedKernelManager"


@dataclass(frozen=True)
class Mode:
    """How far this server is taken over, and why not further."""

    name: Literal["full", "provisioner-only", "inactive"]
    reason: str


def offer_manager(serverapp: ServerApp) -> None:
    """Offer :class:`.OwnedKernelManager` as the default mapping manager.

    Called by the server extension's link hook.
    """
    from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

    def owned(app: ServerApp, chosen: Any) -> Any:
        if chosen is not AsyncMappingKernelManager or not OwnedKernels(parent=app).enabled:
            return chosen
        with uncollected():
            from ..manager import OwnedKernelManager

        return OwnedKernelManager

    lazy_default.wrap(serverapp, "kernel_manager_class", owned)


def settle(serverapp: ServerApp) -> Mode:
    """What became of the offer; called by the load hook, when the manager exists.

    Under a manager that the user chose, kernels are still watched by way of the
    provisioner.
    """
    if serverapp.gateway_config.gateway_enabled:
        return Mode("inactive", "kernels run behind a Gateway, which owns them")
    if not OwnedKernels(parent=serverapp).enabled:
        return Mode("inactive", "switched off by OwnedKernels.enabled = False")
    unsupported = unsupported_reason()
    if unsupported is not None:
        return Mode("inactive", unsupported)
    if not default_provisioner.offer(serverapp):
        name = KernelProvisionerFactory.instance().default_provisioner_name
        return Mode("inactive", f"the provisioner {name} is configured for all kernels")
    chosen = type(serverapp.kernel_manager)
    # By name: under another manager there is no use for ours, and its import takes a while.
    if any(f"{kind.__module__}.{kind.__qualname__}" == _OURS for kind in chosen.__mro__):
        return Mode("full", "every kernel is watched and on record")
    return Mode(
        "provisioner-only", f"the kernel manager {chosen.__name__} was chosen for this server"
    )
