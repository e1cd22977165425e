"""Kernel WebSockets without Nagle's delay, unless somebody chose another class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from traitlets.config import Config

from jupyter_ownedkernels.prompt.websocket import PromptWebsocketConnection
from jupyter_ownedkernels.takeover import websocket_class


@pytest.fixture(autouse=True)
def no_instance() -> Iterator[None]:
    yield
    ServerApp.clear_instance()


def chosen(**config: Any) -> Any:
    app = ServerApp(config=Config(config))
    websocket_class.offer(app)
    # As its initialize() does, between the link hooks and the first use of the trait.
    app.gateway_config = GatewayClient(parent=app)
    return app.kernel_websocket_connection_class


class Own(ZMQChannelsWebsocketConnection):
    """A class that a user configured."""


def test_it_is_the_default() -> None:
    assert chosen() is PromptWebsocketConnection


@pytest.mark.parametrize("trait", ["websocket_nodelay", "enabled"])
def test_it_can_be_switched_off(trait: str) -> None:
    assert chosen(OwnedKernels={trait: False}) is ZMQChannelsWebsocketConnection


def test_a_class_of_the_user_is_left_alone() -> None:
    assert chosen(ServerApp={"kernel_websocket_connection_class": Own}) is Own


def test_a_class_that_is_configured_later_is_left_alone() -> None:
    app = ServerApp()
    websocket_class.offer(app)
    app.update_config(Config(ServerApp={"kernel_websocket_connection_class": Own}))
    assert app.kernel_websocket_connection_class is Own


def test_a_gateway_keeps_its_own() -> None:
    found = chosen(GatewayClient={"url": "http://gateway.example"})
    assert found.__name__ == "GatewayWebSocketConnection"


class Handler:
    """As much of a WebSocket handler as a connection needs here."""

    def __init__(self, error: Exception | None = None) -> None:
        self.nodelay: bool | None = None
        self.error = error

    def set_nodelay(self, value: bool) -> None:
        if self.error is not None:
            raise self.error
        self.nodelay = value


@pytest.mark.parametrize("error", [None, AssertionError("closed"), OSError(9, "bad descriptor")])
def test_the_socket_is_told_and_its_refusal_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "connect", lambda self: "connected")
    connection = PromptWebsocketConnection.__new__(PromptWebsocketConnection)
    handler = Handler(error)
    monkeypatch.setattr(PromptWebsocketConnection, "websocket_handler", handler)
    assert connection.connect() == "connected"
    assert handler.nodelay is (True if error is None else None)
