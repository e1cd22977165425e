"""Fixtures of the tests with real processes. They need Linux."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

collect_ignore_glob = [] if sys.platform.startswith("linux") else ["test_*.py"]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    """One for a module; nothing that bears its mark may be left when the module is through."""
    made = Workspace()
    yield made
    left = made.processes()
    told = census.describe(census.left_after(left, 10))
    made.close()
    assert not told, f"left behind: {told}"


@pytest.fixture
def owner(workspace: Workspace) -> Iterator[Owner]:
    """An owner of the test's own, ended with SIGKILL at the latest after it."""
    with Owner(workspace) as made:
        yield made


@pytest.fixture
def owners(workspace: Workspace) -> Iterator[Callable[..., Owner]]:
    """Make owners with a prefix, an environment and so on."""
    made: list[Owner] = []

    def make(*args: Any, **kwargs: Any) -> Owner:
        made.append(Owner(workspace, *args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()
    if any(one.provisioner == "local-provisioner" for one in made):
        census.end(workspace.processes())
