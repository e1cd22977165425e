"""The server extension: the two moments at which a Jupyter server calls this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import takeover

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def link(serverapp: ServerApp) -> None:
    """Before the kernel manager is made."""
    takeover.offer_manager(serverapp)


def load(serverapp: ServerApp) -> None:
    """After the kernel manager is made: say what became of it, and serve the REST API."""
    from . import handlers

    mode = takeover.settle(serverapp)
    serverapp.log.info("jupyter_ownedkernels: %s (%s)", mode.name, mode.reason)
    handlers.install(serverapp, mode)
