"""Programs that own kernels: notebook runners, consoles, a server; threads and event loops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from support import census
from support.owner import Owner, OwnerError
from support.workspace import Workspace

GONE_WITHIN = 10.0
NOTEBOOK = """
import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

book = new_notebook(cells=[new_code_cell(code) for code in cells])
client_ = NotebookClient(book, kernel_name=spec, timeout=60, resources={"metadata": {"path": "/"}})
"""


def run_notebook(owner: Owner, spec: str, *cells: str) -> Any:
    source = NOTEBOOK + "client_.execute()\nresult = book.cells[-1].outputs[0].text"
    return owner.run(source, spec=spec, cells=list(cells))


def only_helpers_are_left(owner: Owner) -> None:
    """Of this owner: spawners, which stay until it ends."""
    helpers = {"kernel-spawner", "warm-spawner"}

    def names() -> set[str]:
        lines = (census.line(proc.pid) for proc in census.below(owner.pid))
        return {seen.name for seen in lines if seen is not None}

    census.wait_until(lambda: names() <= helpers, GONE_WITHIN, f"{names()} within {helpers}")


def test_nbclient(workspace: Workspace, owner: Owner) -> None:
    """Executed, shut down, and nothing is left but the spawner."""
    spec = workspace.python("book")
    cells = ["import subprocess", "child = subprocess.Popen(['sleep', '3600'])", "print(6 * 7)"]
    assert run_notebook(owner, spec, *cells) == "42\n"
    only_helpers_are_left(owner)
    assert workspace.connection_files() == []


def test_nbclient_whose_kernel_is_killed(workspace: Workspace, owner: Owner) -> None:
    """The runner says so, and what the kernel had started is gone."""
    spec = workspace.python("book")
    code = (
        "import os, signal, subprocess\n"
        "child = subprocess.Popen(['sleep', '3600'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with pytest.raises(OwnerError) as caught:
        run_notebook(owner, spec, code)
    assert caught.value.kind == "DeadKernelError"
    only_helpers_are_left(owner)


def test_nbclient_that_is_killed(workspace: Workspace, owner: Owner) -> None:
    spec = workspace.python("book")
    note = workspace.notes / "running"
    cell = f"import time; open({str(note)!r}, 'w').close(); time.sleep(3600)"
    owner.tell(NOTEBOOK + "client_.execute()", spec=spec, cells=[cell])
    census.wait_until(note.exists, 60, "the cell runs")
    procs = workspace.processes() - {owner.proc}
    assert len(procs) >= 3
    owner.die()
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []


def program(workspace: Workspace, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *argv],
        env=workspace.environment(),
        cwd=workspace.path,
        text=True,
        capture_output=True,
        timeout=100,
        check=False,
        **options,
    )


def notebook_file(workspace: Workspace, spec: str, code: str) -> Path:
    path = workspace.path / "book.ipynb"
    cell = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": code,
    }
    kernelspec = {"name": spec, "display_name": spec, "language": "python"}
    content = {
        "cells": [cell],
        "metadata": {"kernelspec": kernelspec},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(content))
    return path


TREE = "import os; print('kernel below', open(f'/proc/{os.getppid()}/comm').read())"


def test_papermill(workspace: Workspace) -> None:
    spec = workspace.python("python3")
    path = notebook_file(workspace, spec, TREE)
    done = program(workspace, "papermill", str(path), str(workspace.path / "out.ipynb"))
    assert done.returncode == 0, done.stderr
    assert "kernel below kernel-keeper" in (workspace.path / "out.ipynb").read_text()
    assert census.left_after(workspace.processes(), GONE_WITHIN) == set()


def test_jupyter_run(workspace: Workspace) -> None:
    workspace.python("python3")
    script = workspace.path / "script.py"
    script.write_text(TREE)
    done = program(workspace, "jupyter_client.runapp", str(script))
    assert "kernel below kernel-keeper" in done.stdout, done.stderr
    assert census.left_after(workspace.processes(), GONE_WITHIN) == set()


def test_console(workspace: Workspace) -> None:
    workspace.python("python3")
    typed = f"{TREE}\nprint(6 * 7)\n"
    done = program(workspace, "jupyter_console", "--simple-prompt", input=typed)
    assert "kernel below kernel-keeper" in done.stdout, done.stderr
    assert "42" in done.stdout
    assert census.left_after(workspace.processes(), GONE_WITHIN) == set()


LOOPS_AND_THREADS = """
import threading

done, errors = [], []

def synchronous(number):
    start(f"sync{number}", spec)
    assert call(f"sync{number}", "is_alive")
    if number % 2:
        shut_down(f"sync{number}", now=True)

async def asynchronous(number):
    manager = new_manager(f"async{number}", spec, "AsyncKernelManager")
    await manager.start_kernel()
    assert await manager.is_alive()
    if number % 2:
        await manager.shutdown_kernel(now=True)

def work(number):
    try:
        if number < 4:
            synchronous(number)
        else:
            async def several():
                await asyncio.gather(*(asynchronous(10 * number + n) for n in range(3)))
            asyncio.run(several())
        done.append(number)
    except BaseException:
        errors.append(traceback.format_exc())

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
assert not errors, errors
result = [sorted(done), {name: call(name, "is_alive") for name in managers}]
"""


def test_several_loops_and_threads_at_once(workspace: Workspace, owner: Owner) -> None:
    """From the first launch on, which is when the one spawner is started."""
    spec = workspace.mini("crowd")
    done, alive = owner.run(LOOPS_AND_THREADS, spec=spec)
    assert done == list(range(8))
    assert len(alive) == 16
    kept = {name for name in alive if int(name[-1]) % 2 == 0}
    assert {name for name, lives in alive.items() if lives} == kept, owner.errors()
    assert len(owner.keepers()) == len(kept)
    procs = census.below(owner.pid)
    owner.die()
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []


class Server:
    """A real Jupyter server with a token, spoken to over HTTP."""

    def __init__(self, workspace: Workspace, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        root = ["--allow-root"] if os.geteuid() == 0 else []
        self.log = workspace.path / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyter_server", "--no-browser", *root),
                    *(f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"),
                    *("--IdentityProvider.token=secret", *options),
                ],
                env=workspace.environment(),
                cwd=workspace.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        census.wait_until(self.answers, 60, "the server is up")

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.ask("GET", "/api/status")[0] == 200
        except OSError:
            return False

    def ask(self, verb: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": "token secret", "Content-Type": "application/json"}
            text = json.dumps(body) if body is not None else None
            connection.request(verb, path, text, headers)
            answer = connection.getresponse()
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None
        finally:
            connection.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Server]:
    workspace.python("python3")
    made = Server(workspace)
    yield made
    made.close()


def test_a_server(workspace: Workspace, server: Server) -> None:
    """The main job: a server is killed, its kernels are gone, its port can be taken at once."""
    ids = []
    for name in ("python3", workspace.mini("orphans", "orphans"), workspace.mini("c", "children")):
        status, kernel = server.ask("POST", "/api/kernels", {"name": name})
        assert status == 201, kernel
        ids.append(kernel["id"])
    children = workspace.note("c").values()
    doomed = {*workspace.note("orphans").values(), *children}
    doomed |= workspace.processes() - {census.find(server.process.pid)}
    assert len(doomed) >= 10
    assert len(workspace.connection_files()) == 3
    assert server.ask("DELETE", f"/api/kernels/{ids[2]}")[0] == 204
    assert census.left_after(children, GONE_WITHIN) == set()
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(30)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", server.port))
        listener.listen()
    assert census.describe(census.left_after(doomed, GONE_WITHIN)) == []
    census.wait_until(lambda: workspace.connection_files() == [], GONE_WITHIN, "no file is left")


def test_a_server_that_is_told_to_stop(workspace: Workspace, server: Server) -> None:
    """SIGTERM: the server shuts its kernels down itself; nobody comes in its way."""
    status, kernel = server.ask("POST", "/api/kernels", {"name": "python3"})
    assert status == 201, kernel
    # ipykernel logs a traceback when it is shut down before its control channel is complete.
    client = BlockingKernelClient(
        connection_file=str(workspace.runtime / f"kernel-{kernel['id']}.json")
    )
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(60)
    client.stop_channels()
    procs = workspace.processes()
    begun = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []
    assert time.monotonic() - begun < 60
    assert workspace.connection_files() == []
    assert "Traceback" not in server.log.read_text()
