"""Cells, run over a WebSocket as a browser does it."""

from __future__ import annotations

import json
import uuid
from typing import Any


class Cells:
    """A WebSocket to a kernel of the server."""

    def __init__(self, socket: Any, kernel_id: str) -> None:
        self.socket, self.kernel_id = socket, kernel_id
        self.heard: set[str] = set()
        """Types of all messages."""

    async def run(self, code: str) -> str:
        """What a cell prints. Complete: from the first busy to the last idle."""
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": "execute_request", "version": "5.3"}
        header.update(username="", session="here", date="2026-01-01T00:00:00Z")
        content = {"code": code, "silent": False, "store_history": False}
        content.update(user_expressions={}, allow_stdin=False, stop_on_error=True)
        message = {"channel": "shell", "header": header, "content": content}
        message.update(parent_header={}, metadata={}, buffers=[])
        await self.socket.write_message(json.dumps(message))
        states, printed = [], []
        while "idle" not in states:
            heard = json.loads(await self.socket.read_message())
            self.heard.add(heard["msg_type"])
            if heard["parent_header"].get("msg_id") != msg_id or heard["channel"] != "iopub":
                continue
            if heard["msg_type"] == "status":
                states.append(heard["content"]["execution_state"])
            elif heard["msg_type"] == "stream":
                printed.append(heard["content"]["text"])
            assert heard["msg_type"] != "error", heard["content"]
        assert states == ["busy", "idle"]
        return "".join(printed)
