"""Kernel WebSockets without two delays of the stock server.

It leaves Nagle's algorithm on: the second small message of a reply waits until the browser
has acknowledged the first, and browsers delay that by 40 ms. Measured over loopback: 44 to
48 ms for a trivial cell with it, 4 to 8 ms without.

And before it passes anything on, it "nudges" the kernel: two requests for kernel info on
connections of their own, until both an answer and any output have come. That is how it knows
that it is subscribed to the kernel's output, and it costs a new kernel 10 to 20 ms. A kernel
with an XPUB socket says so itself, by a welcome (Jupyter enhancement proposal 65). ipykernel
welcomes only the first subscriber to a topic, and the server was there before; so this
subscribes to a topic of its own as well, after the general one: its welcome proves both.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds. It comes within 5 ms, unless the kernel is held up in C code. As long as a step of
# the nudge, which is what comes then.
_WELCOME_TIMEOUT = 0.5
# Each topic is used once, and everybody who listens to that kernel sees its welcome.
_TOPIC = b"ownedkernels-subscription-"


class PromptWebsocketConnection(ZMQChannelsWebsocketConnection):
    """The server's own connection class, without these delays."""

    _subscribes = False
    """The channels are new: those of a WebSocket that was interrupted are subscribed already."""

    def create_stream(self) -> None:
        super().create_stream()  # type: ignore[no-untyped-call]
        self._subscribes = True

    def connect(self) -> asyncio.Future[None] | None:  # type: ignore[override]
        """Called by the handler when the WebSocket is open."""
        # Closed again already, say: nothing that a connection should fail for.
        with contextlib.suppress(Exception):
            self.websocket_handler.set_nodelay(True)
        return super().connect()

    def nudge(self) -> asyncio.Future[None]:
        """Called by :meth:`connect`. Done when output of the kernel is sure to arrive here."""
        provisioner = getattr(self.kernel_manager, "provisioner", None)
        if self._subscribes and getattr(provisioner, "welcomes", False):
            return asyncio.ensure_future(self._until_welcome(self.channels["iopub"]))
        return super().nudge()

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Called for each message to the browser, which need not know who else listens."""
        if not is_welcome(outgoing_msg):
            super().handle_outgoing_message(stream, outgoing_msg)

    async def _until_welcome(self, iopub: Any) -> None:
        if self._close_future.done():  # before this has begun
            return
        welcome = asyncio.get_running_loop().create_future()

        def heard(stream: Any, parts: list[Any]) -> None:
            if not welcome.done():
                welcome.set_result(None)
            # Of a kernel that runs a cell for somebody else this may be the last "idle".
            self.handle_outgoing_message(stream, parts)

        topic = _TOPIC + uuid.uuid4().hex.encode()
        iopub.on_recv_stream(heard)
        iopub.socket.subscribe(topic)
        await asyncio.wait({welcome}, timeout=_WELCOME_TIMEOUT)
        # And the WebSocket, in the meantime. What is heard then goes to a buffer.
        if iopub.closed() or self._close_future.done():
            return
        iopub.socket.unsubscribe(topic)
        # The answer to the first request for kernel info was also the kernel's first output.
        # If the server itself has not heard it, somebody must make the kernel speak again.
        starting = getattr(self.kernel_manager, "execution_state", None) == "starting"
        if starting or not welcome.done():
            await super().nudge()


def is_welcome(parts: Sequence[bytes]) -> bool:
    """Whether a message of a kernel tells only that a WebSocket was opened."""
    return parts[0].startswith(_TOPIC)
