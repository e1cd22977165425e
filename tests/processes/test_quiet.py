"""Helpers that have nothing to do do nothing: no timer, no loop, no wake-up."""

from __future__ import annotations

import time
from pathlib import Path

from support import census
from support.owner import Owner
from support.workspace import Workspace

WATCHED_FOR = 3.0


def work(pid: int) -> dict[str, str]:
    """What grows with each wake-up and with each tick of processor time."""
    rows = dict(row.split(":\t") for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return {
        "voluntary": rows["voluntary_ctxt_switches"],
        "involuntary": rows["nonvoluntary_ctxt_switches"],
        "ticks": " ".join(ticks),
    }


def test_idle_helpers_never_wake_up(workspace: Workspace, owner: Owner) -> None:
    owner.start("mini", workspace.mini("mini", "children"))
    workspace.note("mini")
    owner.start("python", workspace.python("python"))
    owner.execute("python", "1")
    helpers = [owner.spawner(), *owner.keepers()]
    assert len(helpers) == 3
    # Once, after the launch, each may still be at the end of its work.
    census.wait_until(lambda: all(state(proc) == "S" for proc in helpers), 10, "helpers sleep")
    time.sleep(0.2)
    before = {proc: work(proc.pid) for proc in helpers}
    time.sleep(WATCHED_FOR)
    assert {proc: work(proc.pid) for proc in helpers} == before


def test_a_busy_kernel_does_not_wake_its_keeper(workspace: Workspace, owner: Owner) -> None:
    """Cells that start and end processes of their own are no business of the keeper's."""
    owner.start("python", workspace.python("python"))
    code = "import subprocess\nfor _ in range(20): subprocess.run(['true'])"
    owner.execute("python", code)
    (keeper,) = owner.keepers()
    before = work(keeper.pid)
    owner.execute("python", code)
    assert work(keeper.pid) == before


def state(proc: census.Proc) -> str:
    seen = census.line(proc.pid)
    return seen.state if seen else ""
