"""Kernel WebSockets that send each message at once.

The stock server leaves Nagle's algorithm on: the second small message of a reply waits
until the browser has acknowledged the first, and browsers delay that by 40 ms. Measured
over loopback: 44 to 48 ms for a trivial cell with it, 4 to 8 ms without.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from ..config import OwnedKernels
from . import lazy_default

if TYPE_CHECKING:
    import asyncio

    from jupyter_server.serverapp import ServerApp

_TRAIT = "kernel_websocket_connection_class"


class NodelayWebsocketConnection(ZMQChannelsWebsocketConnection):
    """The server's own connection class, without Nagle's delay."""

    def connect(self) -> asyncio.Future[None] | None:  # type: ignore[override]
        """Called by the handler when the WebSocket is open."""
        # Closed again already, say: nothing that a connection should fail for.
        with contextlib.suppress(Exception):
            self.websocket_handler.set_nodelay(True)
        return super().connect()


def offer(serverapp: ServerApp) -> None:
    """Make it the default, unless the user or a Gateway chose another class.

    Called by the server extension's link hook.
    """

    def choose(app: ServerApp, chosen: Any) -> Any:
        config = OwnedKernels(parent=app)
        ours = chosen is ZMQChannelsWebsocketConnection
        if not ours or not config.enabled or not config.websocket_nodelay:
            return chosen
        return NodelayWebsocketConnection

    lazy_default.wrap(serverapp, _TRAIT, choose)
