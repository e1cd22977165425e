"""A process that owns kernels and does what a test tells it, over a Unix socket.

Each request is Python source, run with the helpers below as globals; what it leaves in
``result`` is the answer. Run by ``owner.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import sys
import time
import traceback
import uuid
import zlib
from typing import Any

managers: dict[str, Any] = {}
clients: dict[str, Any] = {}
# Warm starts have tests of their own; here they would add processes at odd moments.
traits: dict[str, Any] = {"warm": "off"}


def own_address() -> str:
    """An address of the loopback network that only the owners of this workspace use.

    Free ports are looked up long before a kernel binds them: on one address for all, what
    else runs on the machine takes one of them every now and then. On an address for each
    owner two kernels may have the same port number: the connection file of the one that
    died stays then, since something listens on that.
    """
    from jupyter_client import localinterfaces

    number = zlib.crc32(os.environ["JUPYTER_RUNTIME_DIR"].encode())
    address = f"127.{1 + number // 65536 % 250}.{number // 256 % 256}.{1 + number % 250}"
    if not localinterfaces.is_local_ip(address):
        localinterfaces.LOCAL_IPS.append(address)
    return address


def new_manager(name: str, spec: str, kind: str = "KernelManager") -> Any:
    """A kernel manager under ``name``, with the traits of OwnedKernels set so far."""
    from jupyter_client import manager
    from traitlets.config import Config

    made = getattr(manager, kind)(
        kernel_name=spec,
        ip=own_address(),
        # A manager of its own, outside a server, would use a nameless temporary file.
        connection_file=f"{os.environ['JUPYTER_RUNTIME_DIR']}/kernel-{uuid.uuid4()}.json",
        config=Config({"OwnedKernels": traits}),
    )
    managers[name] = made
    return made


def about(name: str) -> dict[str, Any]:
    """What a test wants to know of a kernel."""
    manager = managers[name]
    process = getattr(manager.provisioner, "process", None)
    return {
        "pid": process.pid if process is not None else None,
        "file": manager.connection_file,
        "kind": type(process).__name__,
    }


def call(name: str, method: str, *args: Any, **kwargs: Any) -> Any:
    """A method of a manager of either kind. Each call of an asynchronous one has its own loop."""
    answered = getattr(managers[name], method)(*args, **kwargs)
    if inspect.isawaitable(answered):

        async def wait() -> Any:
            return await answered

        return asyncio.run(wait())
    return answered


def start(name: str, spec: str, **kwargs: Any) -> dict[str, Any]:
    new_manager(name, spec).start_kernel(**kwargs)
    return about(name)


def start_together(specs: dict[str, str]) -> dict[str, Any]:
    """Start several at once, from one event loop."""

    async def run() -> None:
        made = [new_manager(name, spec, "AsyncKernelManager") for name, spec in specs.items()]
        await asyncio.gather(*(manager.start_kernel() for manager in made))

    asyncio.run(run())
    return {name: about(name) for name in specs}


def client(name: str) -> Any:
    """A blocking client that the kernel has answered."""
    if name not in clients:
        made = managers[name].blocking_client()
        made.start_channels()
        made.wait_for_ready(timeout=60)
        clients[name] = made
    return clients[name]


def execute(name: str, code: str, timeout: float = 60) -> list[str]:
    """Run a cell to its end; what it printed, warnings aside, and its error."""
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            said.append(content["text"])
        elif message["msg_type"] == "error":
            said.append(content["ename"])

    client(name).execute_interactive(code, timeout=timeout, output_hook=hear)
    return said


def submit(name: str, code: str) -> None:
    """Send a cell and do not wait. Cells that come after it are run even when it fails."""
    client(name).execute(code, stop_on_error=False)


def shut_down(name: str, **kwargs: Any) -> None:
    made = clients.pop(name, None)
    if made is not None:
        made.stop_channels()
    call(name, "shutdown_kernel", **kwargs)


def serve(path: str) -> int:
    space = dict(globals())
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        with link.makefile("rb") as requests:
            for raw in requests:
                request = json.loads(raw)
                if "leave" in request:
                    return int(request["leave"])
                link.sendall(json.dumps(answer(request, space)).encode() + b"\n")
    return 0


def answer(request: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    space.pop("result", None)
    space.update(request["given"])
    try:
        exec(compile(request["source"], "<test>", "exec"), space)
    except Exception as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "traceback": traceback.format_exc(),
        }
    return {"result": space.get("result")}


if __name__ == "__main__":
    # Kept, since a test may look at what stands beside the owner's first lines.
    started_at, program = time.monotonic(), os.path.abspath(sys.argv[0])
    sys.exit(serve(sys.argv[1]))
