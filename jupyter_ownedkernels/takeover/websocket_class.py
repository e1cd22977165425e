"""Becoming the class of kernel WebSockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from ..config import OwnedKernels
from ..prompt.websocket import PromptWebsocketConnection
from . import lazy_default

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

_TRAIT = "kernel_websocket_connection_class"


def offer(serverapp: ServerApp) -> None:
    """Make it the default, unless the user or a Gateway chose another class.

    Called by the server extension's link hook.
    """

    def choose(app: ServerApp, chosen: Any) -> Any:
        config = OwnedKernels(parent=app)
        ours = chosen is ZMQChannelsWebsocketConnection
        if not ours or not config.enabled or not config.websocket_nodelay:
            return chosen
        return PromptWebsocketConnection

    lazy_default.wrap(serverapp, _TRAIT, choose)
