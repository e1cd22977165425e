"""Interrupts stop the cell and nothing else; wrappers and starting kernels live through them."""

from __future__ import annotations

import sys
import time

import pytest
from support import census
from support.owner import Owner
from support.workspace import SHELL, Workspace

GONE_WITHIN = 10.0
# As ``conda run`` and ``uv run`` do it: they leave at an interrupt, and the kernel with them.
FRAGILE = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import subprocess, sys\n"
    "child = subprocess.Popen(sys.argv[1:])\n"
    "try:\n"
    "    sys.exit(child.wait())\n"
    "except KeyboardInterrupt:\n"
    "    child.kill()\n"
    "    sys.exit(130)\n",
]
BUSY = (
    "import os, subprocess, time\n"
    "child = subprocess.Popen(['sleep', '3600'])\n"
    "apart = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
    "aside = subprocess.Popen(['sleep', '3600'], preexec_fn=os.setpgrp)\n"
    "open({note!r}, 'w').write(f'{{child.pid}} {{apart.pid}} {{aside.pid}}')\n"
    "time.sleep(3600)"
)


@pytest.mark.parametrize("wrapper", [[], FRAGILE, SHELL], ids=["plain", "fragile", "shell"])
def test_only_the_cell_stops(workspace: Workspace, owner: Owner, wrapper: list[str]) -> None:
    owner.start("busy", workspace.python("busy", wrapper))
    note = workspace.notes / "busy"
    note.unlink(missing_ok=True)
    top = census.find(owner.run("client('busy'); result = about('busy')['pid']"))
    owner.submit("busy", BUSY.format(note=str(note)))
    census.wait_until(lambda: note.exists() and note.read_text(), 30, "the cell runs")
    child, apart, aside = (census.find(int(word)) for word in note.read_text().split())
    try:
        owner.run("call('busy', 'interrupt_kernel')")
        # As with a signal to the group: what the cell runs in the foreground stops too.
        assert census.left_after([child], GONE_WITHIN) == set()
        polls = "print(child.wait(), apart.poll(), aside.poll())"
        assert owner.execute("busy", polls) == ["-2 None None\n"]
        # A wrapper in Python gives its child a quarter of a second before it leaves.
        time.sleep(0.6)
        assert census.runs(top), "the wrapper was to live on"
        assert owner.is_alive("busy")
    finally:
        census.end([apart, aside])


def test_a_stock_launch_spares_the_same(workspace: Workspace, owner: Owner) -> None:
    owner.start("stock", workspace.python("stock"), independent=True)
    note = workspace.notes / "stock"
    owner.run("client('stock')")
    owner.submit("stock", BUSY.format(note=str(note)))
    census.wait_until(lambda: note.exists() and note.read_text(), 30, "the cell runs")
    child, apart, aside = (census.find(int(word)) for word in note.read_text().split())
    try:
        owner.run("call('stock', 'interrupt_kernel')")
        assert census.left_after([child], GONE_WITHIN) == set()
        polls = "print(child.wait(), apart.poll(), aside.poll())"
        assert owner.execute("stock", polls) == ["-2 None None\n"]
        owner.shut_down("stock", now=True)
        # It is of the kernel's session all the same, and ends with it.
        assert census.left_after([aside], GONE_WITHIN) == set()
    finally:
        census.end([apart, aside])


def test_while_starting(workspace: Workspace, owner: Owner) -> None:
    """Before a kernel is up there is no cell to stop, and a signal would end the kernel."""
    spec = workspace.python("starting")
    owner.run(
        "async def run():\n"
        "    made = [new_manager(f'starting{n}', spec, 'AsyncKernelManager') for n in range(3)]\n"
        "    tasks = [asyncio.ensure_future(manager.start_kernel()) for manager in made]\n"
        "    sent = 0\n"
        "    while not all(task.done() for task in tasks):\n"
        "        for manager in made:\n"
        "            if manager.has_kernel:\n"
        "                await manager.interrupt_kernel()\n"
        "                sent += 1\n"
        "        await asyncio.sleep(0.01)\n"
        "    await asyncio.gather(*tasks)\n"
        "    return sent\n"
        "result = asyncio.run(run())",
        spec=spec,
    )
    sent = owner.run("result = asyncio.run(run())")
    assert sent >= 3, "no interrupt met a kernel that was starting"
    for number in range(3):
        assert owner.execute(f"starting{number}", "print(6 * 7)") == ["42\n"]


WRONG = """
import errno
launch = managers["wrong"].provisioner.process.launch
begun = time.monotonic()
for number in (99, 1 << 40):
    try:
        call("wrong", "signal_kernel", number)
    except OSError as error:
        assert error.errno == errno.EINVAL
    else:
        raise AssertionError("it was to fail, as it does in stock Jupyter")
assert time.monotonic() - begun < 1.5, "nobody has answered"
result = [launch.signal(signum).result(10) for signum in (0, 18)]
"""


def test_a_signal_that_does_not_exist(workspace: Workspace, owner: Owner) -> None:
    """It is an error of its own, and the next ones get the answers that are theirs."""
    owner.start("wrong", workspace.mini("wrong"))
    assert owner.run(WRONG) == [0, 0]
    assert owner.is_alive("wrong")


def test_after_the_end(workspace: Workspace, owner: Owner) -> None:
    """Neither an ended kernel nor one that is being ended makes an interrupt an error."""
    owner.start("stubborn", workspace.mini("stubborn", "stubborn"))
    procs = workspace.note("stubborn")
    keeper = owner.keepers()[0]
    census.end([procs["kernel"]])
    # Its keeper is still busy with the child for the grace.
    for _ in range(20):
        owner.run("managers['stubborn'].provisioner.process.launch.signal(2)")
    assert census.left_after(procs.values(), GONE_WITHIN) == set()
    report = owner.run(
        "retired = managers['stubborn'].provisioner.process.launch.retired\n"
        "exited = managers['stubborn'].provisioner.process.launch.exited\n"
        "result = [len(retired.result(10)), exited.result(10).status]"
    )
    assert report == [0, -9], "the keeper was to come to its regular end"
    owner.shut_down("stubborn", now=True)
    census.wait_until(lambda: not census.runs(keeper), 10, "the keeper leaves")
