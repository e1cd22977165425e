"""Restart, shutdown, interrupt and automatic restart of one kernel that cross each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

Play = Callable[..., Any]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_crossing_wishes_leave_nothing(play: Play, soak: bool) -> None:
    seed = random.randrange(1_000_000)
    rounds, together = (200, 50) if soak else (16, 10)
    print(f"seed {seed}")
    found = play("crossing", seed, rounds, together)
    assert found["wrong"] == [], f"seed {seed}"
    assert found["listed"] == []
    assert found["pending"] == []
    assert found["processes"] == []
    assert found["tasks"] == 0
    assert found["fds"][1] <= found["fds"][0]
    assert found["states"] == ["ended"]
    assert found["files"] == []
