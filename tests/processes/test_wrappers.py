"""Kernels behind commands of all sorts, some of which leave before the kernel does."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import census
from support.owner import Owner
from support.workspace import SHELL, Workspace

from jupyter_ownedkernels.runtime import tree

GONE_WITHIN = 10.0
LEAVES = ["sh", "-c", '"$@" & sleep 0.7', "sh"]
LEAVES_AT_ONCE = ["sh", "-c", '"$@" &', "sh"]
SLOW = ["sh", "-c", 'sleep 1; "$@"; exit $?', "sh", "setsid", "--wait"]
STATUS = [sys.executable, "-I", "-S", "-c", "import sys; sys.exit(7)"]


@pytest.mark.parametrize("wrapper", [LEAVES, LEAVES_AT_ONCE], ids=["later", "at once"])
@pytest.mark.parametrize("then", ["owner", "kernel", "delete"])
def test_wrapper_that_leaves_early(
    workspace: Workspace, owner: Owner, wrapper: list[str], then: str
) -> None:
    """The kernel lives on, is watched, and ends with its owner; its own end is seen too."""
    owner.start("early", workspace.mini("early", "children", wrapper))
    procs = workspace.note("early")
    workspace.forget_note("early")
    top = owner.run("result = about('early')['pid']")
    census.wait_until(lambda: census.line(top) is None, GONE_WITHIN, "the wrapper leaves")
    assert all(census.runs(proc) for proc in procs.values())
    assert owner.is_alive("early")
    if then == "owner":
        owner.die()
    elif then == "kernel":
        census.end([procs["kernel"]])
        census.wait_until(lambda: not owner.is_alive("early"), 10, "the end of the kernel is seen")
        assert owner.run("result = call('early', '_async_is_alive')") is False
    else:
        owner.shut_down("early", now=True)
    assert census.describe(census.left_after(procs.values(), GONE_WITHIN)) == []


@pytest.mark.parametrize("then", ["owner", "kernel"])
def test_wrapper_slower_than_the_wait(workspace: Workspace, owner: Owner, then: str) -> None:
    """The launch is called ready before the kernel exists: the wrapper is not taken for it."""
    owner.set(ready_timeout=0.2)
    workspace.forget_note("slow")
    owner.start("slow", workspace.mini("slow", "children", SLOW))
    procs = workspace.note("slow")
    seen = census.line(procs["child"].pid)
    assert seen is not None
    assert seen.session not in (owner.run("result = about('slow')['pid']"), procs["child"].pid)
    if then == "owner":
        owner.die()
    else:
        # As a server's restarter asks every few seconds.
        assert owner.is_alive("slow")
        census.wait_until(
            lambda: owner.run(
                "result = managers['slow'].provisioner.process.launch.kernel is not None"
            ),
            10,
            "the kernel is found",
        )
        census.end([procs["kernel"]])
    assert census.describe(census.left_after(procs.values(), GONE_WITHIN)) == []


def test_a_process_in_the_middle_of_an_exec(workspace: Workspace) -> None:
    """It has no arguments for a moment, and must not be taken for one without."""
    script = workspace.path / "again"
    script.write_text('#!/bin/sh\nexec "$0" "$@"\n')
    script.chmod(0o755)
    process = subprocess.Popen([str(script), "connection-file"])
    try:
        census.wait_until(lambda: "connection-file" in tree.looks(process.pid).argv, 10, "exec")
        unseen = [
            number
            for number in range(2000)
            if "connection-file" not in tree.looks(process.pid).argv
        ]
        assert unseen == []
    finally:
        process.kill()
        process.wait(30)


def test_exit_status_comes_through(workspace: Workspace, owner: Owner) -> None:
    owner.set(ready_timeout=20.0)
    owner.start("status", workspace.spec("status", STATUS))
    assert not owner.is_alive("status")
    assert owner.run("result = managers['status'].provisioner.process.returncode") == 7


def test_killed_below_a_shell(workspace: Workspace, owner: Owner) -> None:
    """The shell tells of the signal by its status; the rest goes with the kernel."""
    owner.start("below", workspace.mini("below", "children", SHELL))
    procs = workspace.note("below")
    census.end([procs["kernel"]])
    census.wait_until(lambda: not owner.is_alive("below"), 10, "the end is seen")
    assert census.describe(census.left_after(procs.values(), GONE_WITHIN)) == []
