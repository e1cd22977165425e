"""The Jupyter server that ``check`` starts to kill it, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

START_TIMEOUT = 60.0
"""Seconds for the server, a kernel or a cell."""


class Server:
    """A real Jupyter server in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._token = secrets.token_hex(16)
        self.runtime_dir = folder / "runtime"
        _write_wrapper_spec(folder / "data" / "kernels" / "check-wrapper")
        env = dict(os.environ)
        for name in ("JUPYTER_DEFAULT_PROVISIONER_NAME", "JUPYTER_GATEWAY_URL"):
            env.pop(name, None)
        env.update(
            JUPYTER_RUNTIME_DIR=str(self.runtime_dir),
            JUPYTER_DATA_DIR=str(folder / "data"),
            JUPYTER_CONFIG_DIR=str(folder / "config"),
            JUPYTER_TOKEN=self._token,
        )
        options = [
            "--no-browser",
            # Not 0: older servers do not tell which port they got. They try others if it is taken.
            f"--ServerApp.port={free_port()}",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.root_dir={folder}",
            "--ServerApp.allow_root=True",
            '--ServerApp.jpserver_extensions={"jupyter_ownedkernels": True}',
        ]
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_server", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd=folder,
            )
        try:
            self.port, self._url = self._wait_for_url()
        except BaseException:
            # Nobody else has come to know of it.
            self.process.kill()
            self.process.wait()
            raise

    def _wait_for_url(self) -> tuple[int, str]:
        info = self.runtime_dir / f"jpserver-{self.process.pid}.json"
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                data = json.loads(info.read_text())
                with socket.create_connection(("127.0.0.1", data["port"]), timeout=1):
                    return data["port"], data["url"]
            time.sleep(0.02)
        tail = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the server did not start:\n{tail}")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request of the REST API; POST when there is a body."""
        request = urllib.request.Request(
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self._token}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=START_TIMEOUT) as answer:
            return json.load(answer)


def _write_wrapper_spec(folder: Path) -> None:
    folder.mkdir(parents=True)
    command = f'"{sys.executable}" -m ipykernel_launcher -f "{{connection_file}}"; exit $?'
    spec = {"argv": ["sh", "-c", command], "display_name": "wrapper", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
