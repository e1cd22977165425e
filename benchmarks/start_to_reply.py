"""From the request for a kernel to its first reply, by a manager and through a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

from _common import OURS, STOCK, longest, median, milliseconds, options, ratio, table
from support import census
from support.owner import Owner
from support.workspace import Workspace
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

WARM = "any(one['state'] == 'ready' for one in ownership.current().warm.to_json())"
ONE_START = """
async def one():
    manager = new_manager("timed", spec, "AsyncKernelManager")
    begun = time.perf_counter()
    await manager.start_kernel()
    client_ = manager.client()
    client_.start_channels()
    await client_.kernel_info(reply=True, timeout=60)
    taken = time.perf_counter() - begun
    client_.stop_channels()
    await manager.shutdown_kernel(now=True)
    return taken

result = asyncio.run(one())
"""


KINDS = {
    "stock": (STOCK, "off"),
    "owned, executed": (OURS, "off"),
    "owned, forked": (OURS, "auto"),
}


def by_manager(workspace: Workspace, rounds: int) -> dict[str, list[float]]:
    """Seconds of each start after the first, which also starts the spawner.

    The kinds take turns, so that whatever else the machine does meets them alike.
    """
    spec = workspace.python("timed")
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        owners = {}
        for kind, (provisioner, warm) in KINDS.items():
            owner = Owner(workspace, provisioner=provisioner, python=())
            owners[kind] = stack.enter_context(owner)
            owner.set(warm=warm)
            owner.run(ONE_START, spec=spec)
        warm_owner = owners["owned, forked"]
        warm_owner.run("from jupyter_ownedkernels import ownership")
        census.wait_until(lambda: warm_owner.run(f"result = {WARM}"), 60, "a warm spawner")
        for _ in range(rounds):
            for kind, owner in owners.items():
                taken[kind].append(owner.run(ONE_START, spec=spec))
                time.sleep(0.2)
    return taken


class Server:
    """A Jupyter server; ``active`` says whether our extension is enabled in it."""

    def __init__(self, workspace: Workspace, active: bool, warm: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        extensions = {"jupyter_ownedkernels": active, "jupyterlab": False, "notebook": False}
        root = ["--allow-root"] if os.geteuid() == 0 else []
        provisioner = OURS if active else STOCK
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter_server", "--no-browser", *root),
                *(f"--ServerApp.port={self.port}", "--IdentityProvider.token=secret"),
                f"--ServerApp.jpserver_extensions={extensions}",
                f"--OwnedKernels.warm={warm}",
            ],
            env=workspace.environment(provisioner),
            cwd=workspace.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def request(self, verb: str, path: str, body: object = None) -> HTTPRequest:
        return HTTPRequest(
            f"http://127.0.0.1:{self.port}{path}",
            method=verb,
            body=json.dumps(body) if body is not None else None,
            headers={"Authorization": "token secret"},
            request_timeout=60,
        )

    async def until_up(self) -> None:
        for _ in range(600):
            try:
                await AsyncHTTPClient().fetch(self.request("GET", "/api/status"))
            except (OSError, HTTPClientError):
                await asyncio.sleep(0.1)
            else:
                return
        raise TimeoutError("the server does not come up")

    async def until_warm(self) -> None:
        """Until the health says that a template is ready."""
        for _ in range(300):
            answer = await AsyncHTTPClient().fetch(self.request("GET", "/api/ownedkernels/health"))
            spawners = json.loads(answer.body)["spawners"]
            if any(one["kind"] == "warm" and one["state"] == "ready" for one in spawners):
                return
            await asyncio.sleep(0.1)
        raise TimeoutError("no warm spawner")

    async def first_result(self) -> float:
        """POST, connect, run a cell: seconds until its result."""
        http = AsyncHTTPClient()
        begun = time.perf_counter()
        answer = await http.fetch(self.request("POST", "/api/kernels", {"name": "python3"}))
        kernel = json.loads(answer.body)["id"]
        url = f"ws://127.0.0.1:{self.port}/api/kernels/{kernel}/channels?session_id=bench"
        link = await websocket_connect(HTTPRequest(url, headers={"Authorization": "token secret"}))
        await link.write_message(json.dumps(execute_request("6 * 7")))
        while True:
            raw = await link.read_message()
            if isinstance(raw, str) and json.loads(raw)["msg_type"] == "execute_result":
                break
        taken = time.perf_counter() - begun
        link.close()
        await http.fetch(self.request("DELETE", f"/api/kernels/{kernel}"))
        return taken


def execute_request(code: str) -> dict[str, Any]:
    header = {
        "msg_id": os.urandom(8).hex(),
        "msg_type": "execute_request",
        "username": "bench",
        "session": "bench",
        "date": "2020-01-01T00:00:00Z",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": {**content, "user_expressions": {}, "stop_on_error": True},
        "channel": "shell",
        "buffers": [],
    }


def by_server(workspace: Workspace, rounds: int) -> dict[str, list[float]]:
    """The same through a server each, by turns."""
    workspace.python("python3")
    servers = {
        kind: Server(workspace, provisioner == OURS, warm)
        for kind, (provisioner, warm) in KINDS.items()
    }

    async def run() -> dict[str, list[float]]:
        for server in servers.values():
            await server.until_up()
            await server.first_result()
        await servers["owned, forked"].until_warm()
        taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind, server in servers.items():
                # What a server prepares for the next start is ready by then, as in real use.
                await asyncio.sleep(0.7)
                taken[kind].append(await server.first_result())
        return taken

    try:
        return asyncio.run(run())
    finally:
        for server in servers.values():
            server.close()


def main() -> None:
    rounds = options(__doc__ or "", 15).rounds
    workspace = Workspace()
    rows = []
    try:
        for what, measure in (
            ("start to first reply", by_manager),
            ("POST to first result", by_server),
        ):
            taken = measure(workspace, rounds)
            stock = median(taken["stock"])
            for kind, times in taken.items():
                middle = median(times)
                cells = (milliseconds(middle), milliseconds(min(times)))
                cells += (milliseconds(longest(times)), ratio(stock, middle))
                rows.append((f"{what}, {kind}", *cells))
        table(("measured", "median ms", "shortest", "longest", "times faster"), rows)
        print("Goals: executed not slower than stock; through a server faster than stock.")
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
