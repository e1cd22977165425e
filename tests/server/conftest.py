"""Fixtures of the tests with a real server and its manager."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import census
from support.workspace import Workspace

PROGRAM = Path(__file__).parents[1] / "support" / "server_program.py"
collect_ignore_glob = [] if sys.platform.startswith("linux") else ["test_*.py"]


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    """A home for one server; nothing of it may be left."""
    made = Workspace()
    yield made
    left = made.close()
    assert not left, f"left behind: {census.describe(left)}"


@pytest.fixture
def play(workspace: Workspace) -> Callable[..., Any]:
    """Run a script of the server program; what it has found."""

    def run(script: str, *arguments: object, prefix: list[str] | None = None, **env: str) -> Any:
        environment = workspace.environment(**env)
        del environment["JUPYTER_DEFAULT_PROVISIONER_NAME"]
        environment["PYTHONWARNINGS"] = "default"
        command = [sys.executable, str(PROGRAM), script, *map(str, arguments)]
        done = subprocess.run(
            [*(prefix or []), *command],
            env=environment,
            cwd=workspace.path,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        for sign in ("InvalidStateError", "never retrieved", "was destroyed but it is pending"):
            assert sign not in done.stderr, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
