"""A kernel that has ended stays on record, and nothing else of it in the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_its_manager_goes(play: Callable[..., Any]) -> None:
    """With its sockets' context, its session and whatever else hangs on it."""
    left = play("ended", TEST_SERVER_OPTIONS="--OwnedKernels.warm=off")
    assert left == [["ended", 0]] * 3
