"""Starting one kernel exec'd or forked, the same in every other way, and asking it things."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from jupyter_ownedkernels.errors import WarmLost
from jupyter_ownedkernels.launching import readiness
from jupyter_ownedkernels.launching.launch import Launch, LaunchRequest
from jupyter_ownedkernels.launching.launcher import Launcher
from jupyter_ownedkernels.launching.warm import WarmPool

PATIENCE = 60.0


def until(
    condition: Callable[[], Any],
    what: str,
    patience: float = PATIENCE,
    more: Callable[[], object] = str,
) -> Any:
    """The first true answer; AssertionError, which says ``more``, when there is none in time."""
    deadline = time.monotonic() + patience
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never: {what} {more()}"
        time.sleep(0.01)


class Kernel:
    """A running kernel and a client of it."""

    def __init__(self, launch: Launch, client: BlockingKernelClient, path: str) -> None:
        self.launch, self.client, self.path = launch, client, path

    @property
    def pid(self) -> int:
        return self.launch.started.result(0).pid

    def run(self, code: str, **kwargs: Any) -> str:
        """Run a cell; what it printed. AssertionError with the traceback if it failed."""
        printed: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        reply = self.client.execute_interactive(code, output_hook=hear, timeout=PATIENCE, **kwargs)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"]["traceback"])
        return "".join(printed)

    def value(self, expression: str) -> Any:
        """The value of an expression whose repr is a literal."""
        reply = self.client.execute(
            "", user_expressions={"x": expression}, reply=True, timeout=PATIENCE
        )
        answer = reply["content"]["user_expressions"]["x"]
        assert answer["status"] == "ok", answer
        return ast.literal_eval(answer["data"]["text/plain"])


class Kennel:
    """Starts kernels by one launcher; everything is gone when it is closed."""

    def __init__(self, folder: Path, preload: Sequence[str] = (), **pool: Any) -> None:
        self.folder = folder
        self.launcher = Launcher(uuid.uuid4().hex)
        self.pool = WarmPool(self.launcher, preload=preload, **pool)
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JPY_", "PYTEST_"))
        }
        self.environment["IPYTHONDIR"] = str(folder / "ipython")
        self.cwd = folder
        self.argv = [sys.executable, "-m", "ipykernel_launcher", "-f"]
        self._launches: list[Launch] = []
        self._clients: list[BlockingKernelClient] = []

    def request(self, ports: dict[str, int] | None = None, **changes: Any) -> LaunchRequest:
        path = str(self.folder / f"kernel-{uuid.uuid4().hex}.json")
        _, info = write_connection_file(path, **(ports or {}))  # type: ignore[arg-type]
        launch_id = uuid.uuid4().hex
        values: dict[str, Any] = {
            "launch_id": launch_id,
            "argv": [*self.argv, path],
            "env": {**self.environment, "JUPYTER_OWNEDKERNELS_LAUNCH": launch_id},
            "cwd": str(self.cwd),
            "connection_file": path,
            "ports": readiness.ports_of(info),
        }
        return LaunchRequest(**{**values, **changes})

    def packages(self, sources: Mapping[str, str]) -> None:
        """Modules that its kernels can import, by the path of each; they work in another folder."""
        for name, source in sources.items():
            path = self.folder / "packages" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        self.environment["PYTHONPATH"] = str(self.folder / "packages")
        self.cwd = self.folder / "work"
        self.cwd.mkdir()

    def warm_up(self) -> dict[str, Any]:
        """Wait until the template for :attr:`argv` is ready, or is known not to be."""
        self.pool.prepare([*self.argv, "x.json"], self.environment, "x.json")
        until(lambda: self.states()[-1] != "starting", "a settled template")
        return self.pool.to_json()[-1]

    def states(self) -> list[str]:
        return [entry["state"] for entry in self.pool.to_json()]

    @contextlib.contextmanager
    def stdio(self, out: int | None = None) -> Iterator[list[int]]:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            yield [null, null if out is None else out, null if out is None else out]
        finally:
            os.close(null)

    def forked(self, request: LaunchRequest | None = None, **changes: Any) -> Launch | None:
        """A launch by the pool; None when it declined."""
        with self.stdio() as stdio:
            launch = self.pool.launch(request or self.request(**changes), stdio, lambda _: None)
        if launch is not None:
            self._launches.append(launch)
        return launch

    def executed(self, request: LaunchRequest | None = None, **changes: Any) -> Launch:
        with self.stdio() as stdio:
            launch = self.launcher.submit(request or self.request(**changes), stdio)
        launch.started.result(PATIENCE)
        self._launches.append(launch)
        return launch

    def standby(self, **changes: Any) -> Launch:
        """A launch that claims a booted kernel; the first launch of a kind makes one."""
        waiting = self.pool.standby
        if not self.pool.to_json()[-1]["standby"]:
            waiting.reason = None
            self.forked(**{**changes, "cwd": "/"})
            self.warm_up()
            until(
                lambda: self.pool.to_json()[-1]["standby"] or waiting.reason,
                "a standby kernel",
                more=self.state,
            )
            if waiting.reason:
                raise WarmLost(waiting.reason)
        argv, environment = [*self.argv, "/x.json"], self.environment
        ports = self.pool.reserve(argv, environment, "/x.json")
        assert ports is not None
        launch = self.forked(self.request(ports, **changes))
        assert launch is not None
        return launch

    def state(self) -> object:
        """Of warm spawners and standby kernels, for the message of a failure."""
        return self.pool.to_json(), vars(self.pool.standby)

    def kernel(self, launch: Launch | None) -> Kernel:
        """The kernel of a launch, once it answers."""
        assert launch is not None, "the warm start was declined"
        path = launch.request.connection_file
        ports = {"shell_port": launch.request.ports[0], "iopub_port": launch.request.ports[1]}
        until(lambda: launch.exited.done() or readiness.is_ready(ports), "listening ports")
        assert not launch.exited.done(), launch.exited.result()
        client = BlockingKernelClient()
        client.load_connection_file(path)
        client.start_channels()
        self._clients.append(client)
        client.wait_for_ready(timeout=PATIENCE)
        launch.ready()
        return Kernel(launch, client, path)

    def start(self, how: str, **changes: Any) -> Kernel:
        """``how``: exec, fork or standby."""
        starts = {"exec": self.executed, "fork": self.forked, "standby": self.standby}
        for _ in range(3):
            launch = None
            with contextlib.suppress(WarmLost):
                launch = starts[how](**changes)
            if launch is not None:
                break
            # Somebody has changed the packages of this interpreter: a new template is due.
            self.warm_up()
        return self.kernel(launch)

    def close(self) -> None:
        for client in self._clients:
            client.stop_channels()
            client.context.term()
        for launch in self._launches:
            launch.retire(0.5)
        for launch in self._launches:
            launch.retired.result(PATIENCE)
            launch.finish()
        self.pool.close()
        spawner = self.launcher.spawner
        if spawner is not None:
            spawner.close()
