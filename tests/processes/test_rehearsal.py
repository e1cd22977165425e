"""A warm spawner boots a kernel that nobody will use; its files do not outlive the owner."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace


def rehearsing(owner: Owner) -> list[census.Proc]:
    """The warm spawner and the kernel that it boots, once there are both."""
    for spawner in census.children(owner.pid, "warm-spawner"):
        children = census.children(spawner.pid)
        if children:
            return [spawner, *children]
    return []


@pytest.mark.parametrize("end", [Owner.die, Owner.leave], ids=["killed", "leaving"])
def test_the_owner_ends_meanwhile(
    workspace: Workspace, owners: Callable[..., Owner], tmp_path: Path, end: Callable[..., object]
) -> None:
    owner = owners(env={"TMPDIR": str(tmp_path)})
    owner.set(warm="auto")
    owner.start("first", workspace.python("python"))
    procs = census.wait_until(lambda: rehearsing(owner), 30, "a rehearsal")
    # It must not come to its end before the owner does.
    os.kill(procs[1].pid, signal.SIGSTOP)
    assert list(tmp_path.iterdir())
    end(owner)
    assert census.describe(census.left_after(procs, 10)) == []
    assert list(tmp_path.iterdir()) == []
