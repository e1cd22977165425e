"""Warm starts are Linux's: elsewhere every kernel is executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_kernels import Kennel, Kernel

from jupyter_ownedkernels.launching.spawners import unsupported_reason


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = unsupported_reason()
    if reason is not None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def kennel(tmp_path: Path) -> Iterator[Kennel]:
    """Kernels of a template of their own."""
    made = Kennel(tmp_path, standby=1)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kennel]:
    """One template for the tests that only run something in a forked kernel."""
    made = Kennel(tmp_path_factory.mktemp("kennel"), standby=1)
    assert made.warm_up()["state"] == "ready"
    yield made
    made.close()


@pytest.fixture(params=["fork", "standby"])
def warm(shared: Kennel, request: pytest.FixtureRequest) -> Kernel:
    """A forked kernel, and one that was booted before."""
    return shared.start(request.param)
