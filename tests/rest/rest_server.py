"""A real Jupyter server in a process of its own, and a client whose answers are checked."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import rest_contract
from jupyter_client.blocking.client import BlockingKernelClient
from support import census
from support.workspace import Workspace

from jupyter_ownedkernels.telemetry.telemetry import SCHEMA_ID

_TIMEOUT = 60.0
# Only what is needed: a server with JupyterLab starts twice as slowly.
_EXTENSIONS = {
    "jupyter_ownedkernels": True,
    "jupyter_lsp": False,
    "jupyter_server_terminals": False,
    "jupyterlab": False,
    "notebook": False,
    "notebook_shim": False,
}


@dataclass(frozen=True)
class Answer:
    """One answer, already held against the specification."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"])


class RestServer:
    """Start one in the workspace; ``config`` is Python for its configuration file."""

    def __init__(
        self,
        workspace: Workspace,
        *options: str,
        config: str = "",
        base_url: str = "/",
        **env: str,
    ) -> None:
        self.workspace = workspace
        self.token = secrets.token_hex(24)
        self.base_url = base_url
        folder = workspace.path / f"server-{secrets.token_hex(4)}"
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.log_path = folder / "log"
        config_path = folder / "config.py"
        self.events_path = folder / "events"
        handler = f"logging.FileHandler({str(self.events_path)!r})"
        events = f"import logging\nc.EventLogger.handlers = [{handler}]\n"
        config_path.write_text(events + config)
        environment = workspace.environment("", JUPYTER_TOKEN=self.token, **env)
        del environment["JUPYTER_DEFAULT_PROVISIONER_NAME"]
        self.answers: list[bytes] = []
        """Every body that came from it, for the search for secrets."""
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "jupyter_server",
                    f"--config={config_path}",
                    "--no-browser",
                    "--ServerApp.port=0",
                    "--ServerApp.ip=127.0.0.1",
                    "--ServerApp.allow_root=True",
                    f"--ServerApp.base_url={base_url}",
                    f"--ServerApp.root_dir={self.root}",
                    f"--ServerApp.jpserver_extensions={_EXTENSIONS}",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )
        info = workspace.runtime / f"jpserver-{self.process.pid}.json"

        def port() -> int | None:
            assert self.process.poll() is None, self.log
            with contextlib.suppress(OSError, ValueError):
                number: int = json.loads(info.read_text())["port"]
                with socket.create_connection(("127.0.0.1", number), timeout=1):
                    return number
            return None

        try:
            self.port: int = census.wait_until(port, _TIMEOUT, "the server") or 0
        except BaseException:
            self.kill()
            raise

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_url}"

    @property
    def pid(self) -> int:
        return self.process.pid

    # -- requests --------------------------------------------------------------------

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        authenticate: bool = True,
    ) -> Answer:
        """One request; ``path`` is sent as it is, after the base URL."""
        content = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        sent = dict(headers or {})
        if authenticate:
            sent.setdefault("Authorization", f"token {self.token}")
        answer = self.request(method, path, content, sent)
        self.answers.append(answer.body)
        rest_contract.check(
            method,
            path.partition("?")[0],
            answer.status,
            answer.headers.get("Content-Type", ""),
            answer.body,
        )
        return answer

    def request(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; its answer is not looked at."""
        sent = {"Authorization": f"token {self.token}"} if headers is None else headers
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        try:
            connection.request(method, self.base_url.rstrip("/") + path, content, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of a route of ours: ``get("kernels")``. It must succeed."""
        answer = self.ask("GET", f"{rest_contract.NAMESPACE}/{path}")
        assert answer.status == 200, answer.body
        return answer.json

    def clean(self, **body: Any) -> list[dict[str, Any]]:
        answer = self.ask("POST", f"{rest_contract.NAMESPACE}/cleanup", body)
        assert answer.status == 200, answer.body
        results: list[dict[str, Any]] = answer.json["results"]
        return results

    def metrics(self) -> str:
        return self.ask("GET", "/metrics").body.decode()

    def events(self, action: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Events of ours so far, of this action and with these fields."""
        if not self.events_path.exists():
            return []
        whole, _, _ = self.events_path.read_text().rpartition("\n")
        found = [json.loads(line) for line in whole.splitlines()]
        return [
            {name: value for name, value in event.items() if not name.startswith("__")}
            for event in found
            if event["__schema__"] == SCHEMA_ID
            and action in (None, event["action"])
            and all(event.get(name) == value for name, value in fields.items())
        ]

    def event(self, action: str, **fields: Any) -> dict[str, Any]:
        """Wait for the event; the last one of its kind."""
        return census.wait_until(
            lambda: self.events(action, **fields), 30, f"the event {action} {fields}"
        )[-1]

    # -- kernels ---------------------------------------------------------------------

    def start_kernel(self, name: str, path: str | None = None) -> str:
        """A kernel, of a notebook when there is a ``path``; its id."""
        if path is None:
            answer = self.ask("POST", "/api/kernels", {"name": name})
            assert answer.status == 201, answer.body
            return str(answer.json["id"])
        body = {"kernel": {"name": name}, "path": path, "name": path, "type": "notebook"}
        answer = self.ask("POST", "/api/sessions", body)
        assert answer.status == 201, answer.body
        return str(answer.json["kernel"]["id"])

    def end_kernel(self, kernel_id: str) -> None:
        answer = self.ask("DELETE", f"/api/kernels/{kernel_id}")
        assert answer.status == 204, answer.body

    def kernel(self, kernel_id: str) -> Any:
        return self.get(f"kernels/{kernel_id}")

    def connection(self, kernel_id: str) -> dict[str, Any]:
        path = self.workspace.runtime / f"kernel-{kernel_id}.json"
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    @contextlib.contextmanager
    def client(self, kernel_id: str) -> Iterator[BlockingKernelClient]:
        """A client of a Python kernel, ready to execute."""
        path = self.workspace.runtime / f"kernel-{kernel_id}.json"
        client = BlockingKernelClient(connection_file=str(path))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=_TIMEOUT)
            yield client
        finally:
            client.stop_channels()
            client.context.destroy()

    def run(self, kernel_id: str, code: str) -> None:
        """Execute a cell to its end. It must not fail."""
        with self.client(kernel_id) as client:
            reply = client.execute_interactive(code, timeout=_TIMEOUT, silent=True)
            assert reply["content"]["status"] == "ok", reply["content"]

    # -- the end ---------------------------------------------------------------------

    def stop(self) -> None:
        """In good order."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_TIMEOUT)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(_TIMEOUT)

    def __enter__(self) -> RestServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
