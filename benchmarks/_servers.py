"""A Jupyter server in a process of its own, and a client that measures it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from _common import census
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

TOKEN = "benchmark"
HEADERS = {"Authorization": f"token {TOKEN}"}
# Seconds for a server to end in order: a stock one gives each kernel 5 before it kills it, and
# fifty at once keep two processors busy for a while longer.
ENDING = 30.0
# Seconds for an answer of a busy server. With a kernel that says nothing it opens the WebSocket
# after 60 (kernel_info_timeout).
PATIENCE = 120.0

# Requests; tornado's own limit of ten would keep back most of fifty starts.
AT_ONCE = 1000

_open: list[Server] = []


class Server:
    """A running server; ``owned`` with this package, else as stock. Kernels run ``python``."""

    def __init__(self, owned: bool, folder: Path, *arguments: str, python: str) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.base = f"127.0.0.1:{self.port}"
        extensions = repr({"jupyter_ownedkernels": owned})
        spec = folder / "data" / "kernels" / "python3"
        spec.mkdir(parents=True)
        argv = [python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher"]
        content = {
            "argv": [*argv, "-f", "{connection_file}"],
            "display_name": "Python 3",
            "language": "python",
        }
        (spec / "kernel.json").write_text(json.dumps(content))
        command = [
            sys.executable,
            *("-m", "jupyter_server", "--no-browser", "--allow-root"),
            f"--ServerApp.port={self.port}",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={folder}",
            f"--ServerApp.jpserver_extensions={extensions}",
            *arguments,
        ]
        environment = {
            **os.environ,
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTER_PATH": str(folder / "data"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        self.folder = folder
        self._log = open(folder / "log", "w")  # noqa: SIM115
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=self._log, stderr=self._log
        )
        _open.append(self)
        while not self._answers():
            if self.process.poll() is not None:
                raise RuntimeError((folder / "log").read_text()[-2000:])
            time.sleep(0.005)
        self.start_ms = 1000 * (time.perf_counter() - begun)

    def _answers(self) -> bool:
        request = urllib.request.Request(f"http://{self.base}/api/status", headers=HEADERS)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def health(self) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self.base}/api/ownedkernels/health", headers=HEADERS
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def warm(self) -> dict[str, Any] | None:
        found = [entry for entry in self.health()["spawners"] if entry["kind"] == "warm"]
        return found[0] if found else None

    def wait_until_warm(self, standby: int) -> None:
        """Bounded: a machine where it cannot be warm is measured as it is."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            entry = self.warm()
            if entry and entry["state"] != "starting" and entry["standby"] >= standby:
                return
            time.sleep(0.05)

    def close(self) -> None:
        """End it, in order if it does so in time, and what is left of its kernels. Bounded."""
        if self.process.poll() is None:
            below = census.below(self.process.pid)
            self.process.terminate()
            try:
                self.process.wait(ENDING)
            except subprocess.TimeoutExpired:
                self.process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(ENDING)
            census.end(below)
        self._log.close()
        if self in _open:
            _open.remove(self)


def _end_with_this_program(signum: int, _: object) -> None:
    """A stock server would go on when its benchmark is gone, with all of its kernels."""
    signal.signal(signum, signal.SIG_IGN)
    for server in _open:
        server.process.terminate()
    while _open:
        server = _open[0]
        server.close()
        shutil.rmtree(server.folder, ignore_errors=True)
    signal.signal(signum, signal.SIG_DFL)
    signal.raise_signal(signum)


@contextlib.contextmanager
def serving(owned: bool, *arguments: str, python: str = sys.executable) -> Iterator[Server]:
    signal.signal(signal.SIGTERM, _end_with_this_program)
    with tempfile.TemporaryDirectory(prefix="ownedkernels-benchmark-") as folder:
        server = Server(owned, Path(folder), *arguments, python=python)
        try:
            yield server
        finally:
            server.close()


class Kernel:
    """A kernel of a server, and a WebSocket to it."""

    def __init__(self, kernel_id: str, socket: WebSocketClientConnection) -> None:
        self.kernel_id, self._socket = kernel_id, socket

    async def run(self, code: str) -> None:
        """Until reply and idle have come. RuntimeError when the cell fails."""
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "msg_type": "execute_request",
            "username": "",
            "session": uuid.uuid4().hex,
            "version": "5.3",
            "date": datetime.now(timezone.utc).isoformat(),
        }
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        message = {
            "channel": "shell",
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "buffers": [],
        }
        await self._socket.write_message(json.dumps(message))
        missing = {"idle", "execute_reply"}
        while missing:
            answer = await self._socket.read_message()
            if answer is None:
                raise RuntimeError("the WebSocket was closed")
            heard = json.loads(answer)
            if heard["parent_header"].get("msg_id") != msg_id:
                continue
            missing.discard(heard["content"].get("execution_state", ""))
            missing.discard(heard["msg_type"])
            if heard["content"].get("status") == "error":
                raise RuntimeError("\n".join(heard["content"]["traceback"]))


@contextlib.asynccontextmanager
async def started(server: Server, times: dict[str, float]) -> AsyncIterator[Kernel]:
    """POST a kernel and open its WebSocket; milliseconds go into ``times``."""
    client = AsyncHTTPClient(max_clients=AT_ONCE)
    begun = time.perf_counter()
    answer = await client.fetch(
        HTTPRequest(
            f"http://{server.base}/api/kernels",
            method="POST",
            body=json.dumps({"name": "python3"}),
            headers=HEADERS,
            request_timeout=PATIENCE,
        )
    )
    kernel_id = json.loads(answer.body)["id"]
    times["post"] = 1000 * (time.perf_counter() - begun)
    begun = time.perf_counter()
    socket = await websocket_connect(
        HTTPRequest(
            f"ws://{server.base}/api/kernels/{kernel_id}/channels?session_id=x",
            headers=HEADERS,
            request_timeout=PATIENCE,
        )
    )
    times["websocket"] = 1000 * (time.perf_counter() - begun)
    try:
        yield Kernel(kernel_id, socket)
    finally:
        socket.close()
        url = f"http://{server.base}/api/kernels/{kernel_id}"
        await client.fetch(
            HTTPRequest(url, method="DELETE", headers=HEADERS, request_timeout=PATIENCE)
        )
