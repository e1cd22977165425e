"""Launches that meet trouble: timeouts, cancellation, a suspended owner, a failing spawner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from support import census
from support.machine import needs_namespaces
from support.owner import Owner
from support.workspace import Workspace

from jupyter_ownedkernels.runtime import procfs

GONE_WITHIN = 10.0


def kernels_of(workspace: Workspace, name: str) -> set[census.Proc]:
    """Kernels that run, by the note that their command names. Their scene is to be idle."""
    note = str(workspace.notes / name)
    return {proc for proc in workspace.processes() if note in census.command(proc.pid)}


def test_late_spawner_gives_no_second_kernel(workspace: Workspace, owner: Owner) -> None:
    """The spawner is stopped, the launch given up and made the stock way; then it goes on."""
    owner.set(launch_timeout=0.3, ready_timeout=0.0)
    owner.start("before", workspace.mini("before"))
    # It would run on whatever connection file it is given, or none.
    spec = workspace.spec("late", workspace.mini_argv("late", "idle", "--bind-after", "-1"))
    spawner = owner.spawner()
    owner.run("os.kill(pid, 19)", pid=spawner.pid)
    told = owner.start("late", spec)
    assert told["kind"] == "StockProcess"
    workspace.note("late")
    first_file = told["file"]
    workspace.forget_note("late")
    owner.run("os.kill(pid, 18)", pid=spawner.pid)
    # The request is served, and its keeper finds the lease ended: a later one is served after it.
    owner.start("after", workspace.mini("after"))
    workspace.note("after")
    census.wait_until(lambda: len(owner.keepers()) == 2, GONE_WITHIN, "the late keeper leaves")
    assert {proc.pid for proc in kernels_of(workspace, "late")} == {told["pid"]}
    assert not (workspace.notes / "late").exists(), "a second kernel has run"
    assert owner.is_alive("late")
    assert first_file in census.command(told["pid"])
    owner.shut_down("late", now=True)
    assert kernels_of(workspace, "late") == set()


def test_a_launch_that_is_made_again_is_the_same(workspace: Workspace, owner: Owner) -> None:
    """Extra arguments are not lost, and the kernelspec's variables are filled in once."""
    owner.set(launch_timeout=0.3, ready_timeout=0.0)
    owner.start("before", workspace.mini("before"))
    owner.run("os.environ['OK_GROWS'] = 'once'")
    spec = workspace.mini("again", env={"OK_GROWS": "${OK_GROWS}+"})
    spawner = owner.spawner()
    owner.run("os.kill(pid, 19)", pid=spawner.pid)
    try:
        told = owner.start("again", spec, extra_arguments=["--bind-after", "-1"])
    finally:
        owner.run("os.kill(pid, 18)", pid=spawner.pid)
    assert told["kind"] == "StockProcess"
    workspace.note("again")
    assert census.command(told["pid"])[-2:] == ["--bind-after", "-1"]
    assert (procfs.environ(told["pid"]) or {})["OK_GROWS"] == "once+"
    owner.shut_down("again", now=True)


REAPED_BY_THE_PROGRAM = """
import subprocess
from jupyter_ownedkernels.provisioning.owned_process import StockProcess

# Not a child of this process: that one would be seen as the kernel.
OTHER_PROGRAM = '''
import subprocess, sys
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(int(sys.argv[1]) - 1))
stranger = subprocess.Popen(["sleep", "3600"], start_new_session=True)
print(stranger.pid, flush=True)
sys.stdin.read()
print(stranger.poll())
stranger.kill()
'''
process = StockProcess.start(["true"], {}, retire_timeout=5.0)
os.waitpid(process.pid, 0)
other = subprocess.Popen(
    [sys.executable, "-c", OTHER_PROGRAM, str(process.pid)],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
assert int(other.stdout.readline()) == process.pid
process.send_signal(15)
process.retire(0.0)
process.kill()
result = [process.wait(5), process.poll(), other.communicate()[0]]
"""


@needs_namespaces
def test_a_stock_kernel_that_the_program_has_reaped(workspace: Workspace) -> None:
    """Its number may be another process's: it counts as ended, and nothing is signalled."""
    with Owner(workspace, ["unshare", "-pf", "--mount-proc"]) as owner:
        assert owner.run(REAPED_BY_THE_PROGRAM) == [0, 0, "None\n"]


CANCEL = """
async def run():
    manager = new_manager("never", spec, "AsyncKernelManager")
    task = asyncio.ensure_future(manager.start_kernel())
    await asyncio.sleep(pause)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    return "started"

result = asyncio.run(run())
"""
SLOWLY = """
from jupyter_ownedkernels import ownership

current = ownership.current()
quickly = current.launch

def slowly(*args):
    time.sleep(0.3)
    return quickly(*args)

current.launch = slowly
"""


def test_cancelled_start_leaves_nothing(workspace: Workspace, owner: Owner) -> None:
    """A request that is given up in the middle, before and after the kernel's process exists."""
    spec = workspace.spec("never", workspace.mini_argv("never", "children", "--bind-after", "-1"))
    owner.set(ready_timeout=60.0)
    owner.start("first", workspace.mini("first"))
    for pause in (0.0, 0.002, 0.005, 0.01, 0.02, 0.5):
        assert owner.run(CANCEL, 30, spec=spec, pause=pause) == "cancelled"
        census.wait_until(lambda: len(owner.keepers()) == 1, GONE_WITHIN, f"after {pause} s")
        assert kernels_of(workspace, "never") == set()
        workspace.forget_note("never")
    assert owner.is_alive("first")


def test_cancelled_while_a_thread_asks(workspace: Workspace, owner: Owner) -> None:
    """The thread cannot be cancelled: what it gets when nobody wants it any more is ended."""
    spec = workspace.spec("never", workspace.mini_argv("never", "children", "--bind-after", "-1"))
    owner.start("first", workspace.mini("first"))
    owner.run(SLOWLY)
    workspace.forget_note("never")
    assert owner.run(CANCEL, 30, spec=spec, pause=0.1) == "cancelled"
    # Requests are served in turn, so the cancelled one has been when this is through.
    owner.start("after", workspace.mini("after"))
    census.wait_until(lambda: len(owner.keepers()) == 2, GONE_WITHIN, "its keeper leaves")
    assert kernels_of(workspace, "never") == set()


MORE_THAN_THREADS = """
import threading

from jupyter_ownedkernels import ownership

current = ownership.current()
quickly = current.launch
held = threading.Event()

def slowly(*args):
    held.wait(60)
    return quickly(*args)

async def all_on_record(count):
    while sum(one.state.value == "launching" for one in current.kernels()) < count:
        await asyncio.sleep(0.01)

async def run():
    many = [new_manager(f"one of many {n}", spec, "AsyncKernelManager") for n in range(count)]
    starts = [asyncio.ensure_future(manager.start_kernel()) for manager in many]
    try:
        await asyncio.wait_for(all_on_record(count), 30)
        starts[-1].cancel()
        await asyncio.wait(starts[-1:])
    finally:
        held.set()
        ends = await asyncio.gather(*starts, return_exceptions=True)
    for manager in many:
        await manager.shutdown_kernel(now=True)
    started = [current.kernel(manager.kernel_id).record.process is not None for manager in many]
    return [sum(end is None for end in ends), sum(started)]

current.launch = slowly
result = asyncio.run(run())
"""


def test_those_that_wait_for_a_thread_are_on_record(workspace: Workspace, owner: Owner) -> None:
    """A connection file that is written already must be known when the owner is killed then."""
    owner.start("first", workspace.mini("first"))
    assert owner.run(MORE_THAN_THREADS, spec=workspace.mini("many"), count=12) == [11, 11]
    census.wait_until(lambda: len(owner.keepers()) == 1, GONE_WITHIN, "their keepers leave")


ELSEWHERE = """
from jupyter_ownedkernels import ownership

current = ownership.current()
begin = current.begin

def begin_elsewhere(**of_launch):
    os.chdir("/")
    return begin(**of_launch)

result = os.getcwd()
current.begin = begin_elsewhere
"""


def test_the_folder_is_that_of_the_moment_in_which_the_start_was_asked_for(
    workspace: Workspace, owner: Owner
) -> None:
    """Not of the one in which a thread comes to it."""
    owner.start("first", workspace.mini("first"))
    folder = owner.run(ELSEWHERE)
    assert folder != "/"
    told = owner.start("here", workspace.mini("here"))
    assert os.readlink(f"/proc/{told['pid']}/cwd") == folder


def test_suspended_owner_loses_nothing(workspace: Workspace, owner: Owner, soak: bool) -> None:
    """A laptop that sleeps, a job control stop: liveness is no matter of elapsed time."""
    owner.start("kept", workspace.python("kept"))
    owner.run("client('kept')")
    owner.submit("kept", "import time; time.sleep(1); after = 42")
    procs = census.below(owner.pid)
    owner.send(signal.SIGSTOP)
    time.sleep(30 if soak else 2.5)
    assert all(census.runs(proc) for proc in procs)
    owner.send(signal.SIGCONT)
    assert owner.execute("kept", "print(after)") == ["42\n"]
    owner.start("next", workspace.mini("next"))
    assert owner.is_alive("next")
    assert all(census.runs(proc) for proc in procs)


def test_suspended_helpers_lose_nothing(workspace: Workspace, owner: Owner) -> None:
    """Nor is a helper that does not run for a while a reason to end anything."""
    pid = owner.start("kept", workspace.mini("kept"))["pid"]
    helpers = [owner.spawner(), *owner.keepers()]
    try:
        for helper in helpers:
            owner.run("os.kill(pid, 19)", pid=helper.pid)
        begun = time.monotonic()
        # A local look: a question to the keeper would have no answer.
        assert owner.run("result = all(call('kept', 'is_alive') for _ in range(500))", 20)
        assert time.monotonic() - begun < 20
    finally:
        for helper in helpers:
            owner.run("os.kill(pid, 18)", pid=helper.pid)
    census.end([census.find(pid)])
    census.wait_until(lambda: not owner.is_alive("kept"), 10, "the end of the kernel is seen")


def test_stopped_keeper_still_ends_with_its_owner(workspace: Workspace, owner: Owner) -> None:
    """A keeper that is stopped when the owner dies does its work as soon as it goes on."""
    owner.start("kept", workspace.mini("kept", "children"))
    procs = set(workspace.note("kept").values())
    keeper = owner.keepers()[0]
    owner.run("os.kill(pid, 19)", pid=keeper.pid)
    owner.die()
    assert all(census.runs(proc) for proc in procs)
    os.kill(keeper.pid, signal.SIGCONT)
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []


# Whoever wants to open a file, also to execute it, waits for the holder of such a lease: as
# long as /proc/sys/fs/lease-break-time says, 45 seconds.
HOLD = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_program_that_cannot_be_opened_yet(workspace: Workspace, owner: Owner) -> None:
    """It may lie on a disk that hangs. The owner dies meanwhile, and its keeper does not wait."""
    owner.start("before", workspace.mini("before"))
    keepers = set(owner.keepers())
    program = workspace.path / "program"
    program.write_text("#!/bin/sh\nexec sleep 3600\n")
    program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=workspace.environment(),
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        owner.tell("start('held', spec)", spec=workspace.spec("held", [str(program)]))
        (keeper,) = census.wait_until(
            lambda: set(owner.keepers()) - keepers, GONE_WITHIN, "the keeper"
        )
        child = census.wait_until(
            lambda: census.children(keeper.pid), GONE_WITHIN, "its child on the way to exec"
        )
        owner.die()
        assert census.describe(census.left_after([keeper, *child], GONE_WITHIN)) == []
        assert holder.poll() is None


def test_killed_in_the_middle_of_a_launch(workspace: Workspace, owner: Owner) -> None:
    """The keeper dies before it has said a word: the launch is made again, and watched."""
    owner.start("first", workspace.mini("first"))
    spawner = owner.spawner()
    spec = workspace.mini("again")
    # Stopped, so that the request waits; then the spawner is gone with it.
    owner.run("os.kill(pid, 19)", pid=spawner.pid)
    owner.tell("result = start('again', spec)", spec=spec)
    time.sleep(0.2)
    census.end([spawner])
    assert owner.answer()["kind"] == "OwnedProcess"
    procs = set(workspace.note("again").values())
    owner.die()
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []


FORGET = """
import gc
from jupyter_ownedkernels import ownership

del managers["forgotten"]
gc.collect()
result = [kernel.state.value for kernel in ownership.current().kernels()]
"""


def test_a_kernel_whose_manager_nobody_holds_is_owned_all_the_same(
    workspace: Workspace, owner: Owner
) -> None:
    owner.start("forgotten", workspace.mini("forgotten", "children"))
    procs = set(workspace.note("forgotten").values())
    assert owner.run(FORGET) == ["running"]
    assert all(census.runs(proc) for proc in procs)
    owner.die()
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []


def test_independent_kernels_are_left_alone(workspace: Workspace, owner: Owner) -> None:
    """Somebody wanted this one to outlive its owner."""
    told = owner.start("independent", workspace.mini("independent"), independent=True)
    kernel = workspace.note("independent")["kernel"]
    owner.start("watched", workspace.mini("watched"))
    watched = workspace.note("watched")["kernel"]
    try:
        assert told["kind"] == "StockProcess"
        owner.die()
        assert census.left_after([watched], GONE_WITHIN) == set()
        assert census.runs(kernel)
    finally:
        census.end([kernel])


# A keeper whose child is held up between the fork and its first step, a session of its own.
ON_ITS_WAY = """
import os, socket, time
from jupyter_ownedkernels.runtime import child, keeper, lineage, waiting, wire

lineage.become_subreaper()
owner = os.pidfd_open(os.getpid())
ours, theirs = wire.pair()
told, tell = os.pipe()

def held_up():
    os.write(tell, str(os.getpid()).encode())
    time.sleep(3600)

body = os.fork()
if body == 0:
    ours.close()
    os.setsid = held_up
    wakeup, _ = waiting.watch_children()
    null = os.open(os.devnull, os.O_RDWR)
    request = dict.fromkeys(("umask", "oom_score_adj", "cwd", "journal"))
    request.update(argv=["sleep", "3600"], env={}, sigmask=[], connection_file="", ports=[])
    request.update(detached="keep", grace=60.0, retire_timeout=5.0, launch_id="one")
    request.update(remove_connection_file=False)
    stdio = [os.dup(null) for _ in range(3)]
    rest = ({}, lambda session: None, child.execute)
    os._exit(keeper.run(theirs, owner, wakeup, request, stdio, *rest))
theirs.close()
pid = int(os.read(told, 100))
ours.close()
status = os.waitpid(body, 0)[1]
try:
    left = os.waitpid(pid, os.WNOHANG)
except ChildProcessError:
    left = None
print(status, left)
"""


def test_given_up_before_the_process_has_a_session_of_its_own(workspace: Workspace) -> None:
    """It is not taken for one that has left on purpose, and nobody waits for it to be polite."""
    done = subprocess.run(
        [sys.executable, "-c", ON_ITS_WAY],
        env=workspace.environment(),
        capture_output=True,
        text=True,
        timeout=GONE_WITHIN,
        check=False,
    )
    assert done.stdout == "0 None\n", done.stderr
