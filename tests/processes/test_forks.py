"""Forks: of the kernel, which hold its ports; and of the owner, which must hold no lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

GONE_WITHIN = 10.0
FORK = (
    "import os, time\n"
    "pid = os.fork()\n"
    "if pid == 0:\n"
    "    os.setsid()\n"
    "    time.sleep(3600)\n"
    "    os._exit(0)\n"
    "print(pid)"
)
# After this it looks like another program, and only the kernel's sockets betray it.
DISGUISED = FORK.replace(
    "    time.sleep(3600)\n",
    "    flags = [os.set_inheritable(fd, True) for fd in range(3, 200) if is_open(fd)]\n"
    "    os.execvp('sleep', ['sleep', '3600'])\n",
)
IS_OPEN = "def is_open(fd):\n    try:\n        return bool(__import__('os').fstat(fd))\n"
IS_OPEN += "    except OSError:\n        return False\n"


@pytest.mark.parametrize("code", [FORK, IS_OPEN + DISGUISED], ids=["fork", "exec"])
def test_restart_on_the_same_ports(workspace: Workspace, owner: Owner, code: str) -> None:
    """A fork in a session of its own has the kernel's sockets: the restart needs its ports."""
    owner.start("forked", workspace.python("forked"))
    ports = "result = managers['forked'].ports"
    before = owner.run(ports)
    fork = census.find(int(owner.execute("forked", code)[-1]))
    seen = census.line(fork.pid)
    assert seen is not None
    assert seen.session == fork.pid
    owner.run("call('forked', 'restart_kernel', now=True); clients.pop('forked').stop_channels()")
    assert not census.runs(fork)
    assert owner.run(ports) == before
    assert owner.execute("forked", "print(6 * 7)") == ["42\n"]
    again = census.find(int(owner.execute("forked", code)[-1]))
    owner.die()
    assert census.describe(census.left_after([again], GONE_WITHIN)) == []


def test_a_fork_of_the_owner_holds_nothing(workspace: Workspace, owner: Owner) -> None:
    """A worker of multiprocessing that outlives its owner does not keep kernels alive.

    Looked at from outside, since the owner's pidfd ends the kernel too.
    """
    owner.start("held", workspace.mini("held"))
    procs = {*workspace.note("held").values(), *owner.keepers(), owner.spawner()}
    lines = packet_sockets(owner.pid)
    assert len(lines) == 2, "a control socket and a lease were to be there"
    worker = census.find(
        owner.run(
            "from multiprocessing import get_context\n"
            "worker = get_context('fork').Process(target=time.sleep, args=(3600,))\n"
            "worker.start()\n"
            "result = worker.pid"
        )
    )
    try:
        census.wait_until(
            lambda: not packet_sockets(worker.pid), GONE_WITHIN, "the fork closes what it got"
        )
        owner.die()
        assert census.describe(census.left_after(procs, GONE_WITHIN)) == []
        assert census.runs(worker)
    finally:
        census.end([worker])


def test_a_fork_of_the_owner_may_own_kernels(workspace: Workspace, owner: Owner) -> None:
    """Each process has a spawner of its own; the end of one leaves the other's kernels alone."""
    owner.start("parents", workspace.mini("parents"))
    workspace.note("parents")
    spec = workspace.mini("childs")
    child = census.find(
        owner.run(
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    start_together({'childs': spec})\n"
            "    time.sleep(3600)\n"
            "    os._exit(0)\n"
            "result = pid",
            spec=spec,
        )
    )
    of_child = set(workspace.note("childs").values()) | census.below(child.pid)
    names = [census.line(proc.pid).name for proc in of_child]  # type: ignore[union-attr]
    assert names.count("kernel-spawner") == 1
    census.end([child])
    assert census.describe(census.left_after(of_child, GONE_WITHIN)) == []
    assert owner.is_alive("parents")
    owner.start("more", workspace.mini("more"))
    assert owner.is_alive("more")


def packet_sockets(pid: int) -> set[str]:
    """Its sockets of the kind that only the package uses: SOCK_SEQPACKET is 0005 there."""
    rows = (row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:])
    wanted = {f"socket:[{row[6]}]" for row in rows if row[4] == "0005"}
    return wanted & set(census.descriptors(pid).values())


# The child has its parent's event loop, the executor of which counts on threads of the parent.
CHILD_LAUNCHES = """
import os, sys
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name=sys.argv[1])
manager.start_kernel()
child = os.fork()
if child == 0:
    own = KernelManager(kernel_name=sys.argv[1])
    own.start_kernel()
    alive = own.is_alive()
    own.shutdown_kernel(now=True)
    os._exit(0 if alive else 1)
status = os.waitpid(child, 0)[1]
assert manager.is_alive()
manager.shutdown_kernel(now=True)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_fork_of_the_owner_may_launch_kernels(workspace: Workspace) -> None:
    command = [sys.executable, "-c", CHILD_LAUNCHES, workspace.mini("launched")]
    owner = subprocess.Popen(command, env=workspace.environment(), cwd=workspace.path)
    try:
        assert owner.wait(60) == 0
    finally:
        for one in census.below(owner.pid):
            os.kill(one.pid, signal.SIGKILL)
        owner.kill()
        owner.wait()
