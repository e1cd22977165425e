"""Shared by all tests. Its folder is on the path, so ``from support import …`` works."""

from __future__ import annotations

import os
import signal

import pytest

# Behind nohup or "&" a shell has the tests ignore them, and so all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether rounds are to be run by the hundred (OWNEDKERNELS_SOAK=1)."""
    return os.environ.get("OWNEDKERNELS_SOAK", "") not in ("", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make soak` runs every test that knows a longer form of itself."""
    for item in items:
        if "soak" in getattr(item, "fixturenames", ()):
            item.add_marker("soak")
