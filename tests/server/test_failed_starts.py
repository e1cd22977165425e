"""A start that fails leaves nothing behind in the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.workspace import Workspace


def test_its_ports_are_given_back(workspace: Workspace, play: Callable[..., Any]) -> None:
    """Nobody cleans up after it; with its manager go the ports that it was promised."""
    name = workspace.spec("absent", ["/nowhere/at/all", "{connection_file}"])
    left = play("failing", name, name, name, TEST_SERVER_OPTIONS="--OwnedKernels.warm=off")
    assert left == [[0, 0]] * 3
