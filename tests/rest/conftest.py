"""Fixtures of the tests that go through HTTP. They need Linux, as the servers' kernels do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rest_server import RestServer
from support import census
from support.workspace import Workspace

collect_ignore_glob = [] if sys.platform.startswith("linux") else ["test_*.py", "*/test_*.py"]


@pytest.fixture(scope="session")
def workspace() -> Iterator[Workspace]:
    """Folders for all of these tests; nothing that bears its mark may be left at the end."""
    made = Workspace()
    made.python("python3")
    made.mini("mini")
    yield made
    left = made.processes()
    told = census.describe(census.left_after(left, 10))
    made.close()
    assert not told, f"left behind: {told}"


@pytest.fixture(scope="session")
def server(workspace: Workspace) -> Iterator[RestServer]:
    """One server for all tests that do not need one of their own."""
    with RestServer(workspace) as made:
        yield made


@pytest.fixture
def servers(workspace: Workspace) -> Iterator[Callable[..., RestServer]]:
    """Make servers with options and configuration of their own."""
    made: list[RestServer] = []

    def make(*options: str, **more: Any) -> RestServer:
        made.append(RestServer(workspace, *options, **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def private() -> Iterator[Workspace]:
    """A workspace of the test's own, where nobody else's findings are."""
    made = Workspace()
    made.python("python3")
    made.mini("mini")
    yield made
    assert not made.close()


@pytest.fixture
def kernel(server: RestServer) -> Iterator[str]:
    """A Python kernel in the shared server; its id."""
    kernel_id = server.start_kernel("python3")
    yield kernel_id
    if server.ask("GET", f"/api/kernels/{kernel_id}").status == 200:
        server.end_kernel(kernel_id)
