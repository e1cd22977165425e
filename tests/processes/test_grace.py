"""A grace that is longer than ``retire_timeout``: it is kept, and nothing is reported too early."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

from jupyter_ownedkernels.runtime import procfs, retire

DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_what_is_killed_after_the_grace_is_no_leftover() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()

        def find() -> list[procfs.Stat]:
            entry = procfs.stat(deaf.pid)
            return [entry] if entry is not None else []

        try:
            assert retire.run(retire.Retirement(find, grace=0.3, timeout=0.1)) == []
            assert deaf.wait(30) == -signal.SIGKILL
        finally:
            deaf.kill()


def test_the_next_launch_waits_for_the_grace(workspace: Workspace, owner: Owner) -> None:
    """What the kernel has left is gone when the next one starts on the same ports."""
    owner.set(terminate_grace=2.5, retire_timeout=0.1, ready_timeout=0.0)
    owner.start("deaf", workspace.mini("deaf", "stubborn"))
    before = set(workspace.note("deaf").values())
    owner.run(
        "import asyncio\n"
        "asyncio.run(managers['deaf'].provisioner.kill(restart=True))\n"
        "call('deaf', 'start_kernel')"
    )
    assert census.describe({proc for proc in before if census.runs(proc)}) == []
    assert owner.is_alive("deaf")


BUSY = """
import os, signal

def leave(*args):
    with open({note!r}, "a") as file:
        file.write("left")
    os._exit(0)

signal.signal(signal.SIGTERM, leave)
open({note!r}, "w").close()
while True:
    pass
"""


@pytest.mark.parametrize("way", ["shutdown", "restart", "owner"])
def test_a_busy_kernel_may_clear_up_after_itself(
    workspace: Workspace, owner: Owner, way: str
) -> None:
    """What it has started elsewhere, such as jobs of a cluster, is its own to end."""
    note = workspace.notes / f"cleared-{way}"
    kernel = census.find(owner.start("python", "python")["pid"])
    owner.submit("python", BUSY.format(note=str(note)))
    census.wait_until(note.exists, 30, "the cell runs")
    if way == "owner":
        owner.die()
    else:
        owner.run(f"call('python', '{way}_kernel', now=True)")
    assert not census.left_after([kernel], 5)
    assert note.read_text() == "left"


NOTED = """
from jupyter_ownedkernels.provisioning import owned_process

noted, real = [], owned_process.Retirement

def note(find, grace, timeout):
    noted.append(timeout)
    return real(find, grace, timeout)

owned_process.Retirement = note
"""


def test_a_stock_kernel_is_retired_within_the_same_time(workspace: Workspace, owner: Owner) -> None:
    owner.set(retire_timeout=7.5)
    owner.run(NOTED)
    told = owner.start("stock", workspace.mini("stock"), independent=True)
    assert told["kind"] == "StockProcess"
    owner.shut_down("stock", now=True)
    assert owner.run("result = noted") == [7.5]
