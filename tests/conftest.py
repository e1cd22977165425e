"""Shared by all tests. Its folder is on the path, so ``from support import …`` works."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether rounds are to be run by the hundred (OWNEDKERNELS_SOAK=1)."""
    return os.environ.get("OWNEDKERNELS_SOAK", "") not in ("", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make soak` runs every test that knows a longer form of itself."""
    for item in items:
        if "soak" in getattr(item, "fixturenames", ()):
            item.add_marker("soak")
