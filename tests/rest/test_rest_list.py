"""``jupyter ownedkernels list``: what only servers know of their kernels, and they tell it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_server import RestServer
from support.workspace import Workspace

from jupyter_ownedkernels.cli import servers

CLI = [sys.executable, "-W", "error", "-m", "jupyter_ownedkernels.cli", "list"]
NOTEBOOK = "a folder/with more in it/Übersicht der Zahlen.ipynb"
SPEC = "a-kernel-with-quite-a-long-name"


@pytest.fixture(scope="module")
def server() -> Iterator[RestServer]:
    """One with a kernel of a notebook, and one of none."""
    workspace = Workspace()
    workspace.mini(SPEC)
    with RestServer(workspace, base_url="/user/x/") as server:
        server.start_kernel(SPEC, NOTEBOOK)
        server.start_kernel(SPEC)
        yield server
    assert not workspace.close()


def environment(server: RestServer, **extra: str) -> dict[str, str]:
    return {**server.workspace.environment(), "TERM": "xterm", **extra}


def piped(server: RestServer, *options: str, **extra: str) -> str:
    done = subprocess.run(
        [*CLI, *options],
        env=environment(server, **extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode()


def on_terminal(server: RestServer, **extra: str) -> list[str]:
    """The lines on a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        CLI, env=environment(server, **extra), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:
        pass
    os.close(ours)
    assert child.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).replace("\r\n", "\n").splitlines()


def listed(server: RestServer) -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = json.loads(piped(server, "--json"))["kernels"]
    return kernels


def test_it_is_what_the_server_says_itself(server: RestServer) -> None:
    kernels = {one["kernel_id"]: one for one in server.get("kernels")["kernels"]}
    mine = {one["kernel_id"]: one for one in listed(server)}
    assert set(mine) == set(kernels)
    for kernel_id, kernel in kernels.items():
        assert set(mine[kernel_id]) == set(kernel)
        for name in ("session", "execution_state", "display_name", "owner", "state", "pid"):
            assert mine[kernel_id][name] == kernel[name]
    assert sorted(one["session"]["path"] for one in mine.values() if one["session"]) == [NOTEBOOK]


def test_a_notebook_that_is_renamed_has_its_new_name(server: RestServer) -> None:
    (session,) = json.loads(server.ask("GET", "/api/sessions").body)
    for name in ("renamed.ipynb", NOTEBOOK):
        server.ask("PATCH", f"/api/sessions/{session['id']}", {"path": name})
        assert [one["session"]["path"] for one in listed(server) if one["session"]] == [name]
        assert name in piped(server)


@pytest.mark.parametrize("extra", [{}, {"COLUMNS": "40"}, {"FORCE_COLOR": "1", "COLUMNS": "40"}])
def test_in_a_pipe_it_is_complete(server: RestServer, extra: dict[str, str]) -> None:
    text = piped(server, **extra)
    of_notebook, other = sorted(
        (line for line in text.splitlines() if SPEC in line), key=lambda line: NOTEBOOK not in line
    )
    (owner,) = {f"{one['owner']['pid']} {one['owner']['url']}" for one in listed(server)}
    for line in (of_notebook, other):
        assert line.rstrip().endswith(owner)
        assert "…" not in line
    assert NOTEBOOK in of_notebook
    assert "Notebook" in text


@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize("columns", [60, 80, 120, 160, 300])
def test_on_a_terminal_nothing_of_worth_is_cut(server: RestServer, columns: int, term: str) -> None:
    lines = on_terminal(server, TERM=term, COLUMNS=str(columns))
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert (SPEC in text) == (columns > 70)
    for kernel in listed(server):
        row = next(line for line in lines if line.startswith(kernel["kernel_id"][:8]))
        assert re.search(rf"\srunning\s+{kernel['pid']}\s+\d+ (s|min)\s+[\d.]+ [kM]B\s+1", row)
        for piece in (*NOTEBOOK.split(), str(kernel["owner"]["pid"]), kernel["owner"]["url"]):
            assert piece in text
    # Side by side, or below each row, but never a column of a few signs.
    assert ("Notebook" in text) == (columns >= 160)


def test_a_server_that_does_not_answer_is_listed_without(server: RestServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        kernels = listed(server)
        text = piped(server)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert len(kernels) == 2
    assert {one["session"] for one in kernels} == {None}
    assert "Notebook" not in text


def test_a_token_goes_to_its_own_server_only(server: RestServer, tmp_path: Path) -> None:
    owner = listed(server)[0]["owner"]
    folders = [str(server.workspace.runtime)]
    url, token = servers._address(owner, folders) or ("", "")
    assert (url, token) == (owner["url"], server.token)
    path = server.workspace.runtime / f"jpserver-{owner['pid']}.json"
    content = json.loads(path.read_text())
    for change in (
        {"url": "http://127.0.0.1:1/"},  # of one that had this pid before
        {"pid": 1},
        {"token": ""},
        {"token": None},
    ):
        (tmp_path / path.name).write_text(json.dumps({**content, **change}))
        assert servers._address(owner, [str(tmp_path)]) is None
    for text in ("", "[]", "{}", "null", "\xff"):
        (tmp_path / path.name).write_text(text, encoding="latin-1")
        assert servers._address(owner, [str(tmp_path)]) is None
    assert servers._address({**owner, "url": ""}, folders) is None
    if os.geteuid() == 0:
        (tmp_path / path.name).write_text(json.dumps(content))
        assert servers._address(owner, [str(tmp_path)]) == (url, token)
        os.chown(tmp_path / path.name, 1234, 1234)
        assert servers._address(owner, [str(tmp_path)]) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{",
        b'HTTP/1.1 200 OK\r\n\r\n{"kernels": 5}',
        b'HTTP/1.1 200 OK\r\n\r\n{"kernels": [5]}',
        b'HTTP/1.1 200 OK\r\n\r\n{"kernels": [{}]}',
    ],
)
def test_an_answer_that_makes_no_sense(tmp_path: Path, answer: bytes) -> None:
    program = (
        "import socket, sys\n"
        "with socket.create_server(('127.0.0.1', 0)) as listener:\n"
        "    print(listener.getsockname()[1], flush=True)\n"
        "    link, _ = listener.accept()\n"
        "    link.recv(65536)\n"
        f"    link.sendall({answer!r})\n"
        "    link.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        url = f"http://127.0.0.1:{other.stdout.readline().strip()}/"
        owner = {"pid": other.pid, "url": url}
        info = {**owner, "token": "x"}
        (tmp_path / f"jpserver-{other.pid}.json").write_text(json.dumps(info))
        assert servers.ask([owner], [str(tmp_path)]) == {}
        assert other.wait(30) == 0, "it was asked"
