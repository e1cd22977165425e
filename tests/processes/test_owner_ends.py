"""The owner ends in some way: what it started is gone, whatever state that was in.

One owner with a kernel of each kind for each way to end; a test then looks at one kind.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pty
import signal
import termios
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from support import census
from support.census import Proc
from support.cgroup import MemoryGroup
from support.owner import Owner
from support.workspace import SHELL, Workspace

# Hang guards. Without the mechanism most kinds stay for ever.
GONE_WITHIN = 10.0

SCENES = [
    "idle",
    "gil_held",
    "stopped",
    "children",
    "other_group",
    "orphans",
    "bare_environment",
    "stopped_child",
    "stubborn",
    "respawning",
    "thread_left",
    "pool_fork",
    "pool_spawn",
    "socket_holder",
]
WRAPPERS = {
    "shell": SHELL,
    "setsid_wait": ["setsid", "--wait"],
    "setsid_away": ["setsid"],
    "shell_setsid": [*SHELL, "setsid", "--wait"],
    "no_parent_pid": ["env", "-u", "JPY_PARENT_PID"],
}
KINDS = [*SCENES, *WRAPPERS, "sleep"]


class Aftermath(NamedTuple):
    """What was there when the owner died, and what of it was left."""

    way: str
    procs: dict[str, set[Proc]]
    left: dict[str, list[str]]
    strays: list[str]
    connection_files: list[str]


def by_signal(signum: int, owner: Owner) -> None:
    owner.die(signum)


def by_abort(owner: Owner) -> None:
    owner.tell("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()")
    assert owner.process.wait(30) == -signal.SIGABRT


def by_os_exit(owner: Owner) -> None:
    owner.tell("os._exit(3)")
    assert owner.process.wait(30) == 3


def by_return(owner: Owner) -> None:
    assert owner.leave(4) == 4


def by_exec(owner: Owner) -> None:
    """The pid lives on, as another program."""
    owner.tell("os.execvp('sleep', ['sleep', '3600'])")
    census.wait_until(lambda: census.command(owner.pid)[:1] == ["sleep"], 30, "exec of the owner")


def by_thread(owner: Owner) -> None:
    """An error of the C library in a thread that no kernel belongs to."""
    owner.tell(
        "import resource, threading, ctypes\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "threading.Thread(target=ctypes.string_at, args=(1,)).start()"
    )
    assert owner.process.wait(30) == -signal.SIGSEGV


def by_memory(owner: Owner) -> None:
    """Helpers and kernels are in the group too; the owner is the largest."""
    # Touched page by page, so that the group meets its limit whatever is overcommitted.
    owner.tell("hoard = [bytearray(b'x') * (16 << 20) for _ in range(64)]")
    assert owner.process.wait(60) == -signal.SIGKILL


WAYS: dict[str, Callable[[Owner], None]] = {
    "SIGKILL": functools.partial(by_signal, signal.SIGKILL),
    "SIGTERM": functools.partial(by_signal, signal.SIGTERM),
    "SIGHUP": functools.partial(by_signal, signal.SIGHUP),
    "abort": by_abort,
    "segfault": by_thread,
    "os._exit": by_os_exit,
    "return": by_return,
    "exec": by_exec,
    "out of memory": by_memory,
}


def furnish(workspace: Workspace, owner: Owner, names: dict[str, str]) -> dict[str, set[Proc]]:
    """Start a kernel for each kind and set its scene; the processes of each kind."""
    specs = {}
    for kind, name in names.items():
        if kind == "sleep":
            specs[kind] = workspace.spec("sleep", ["sleep", "3600"])
        elif kind in WRAPPERS:
            # Its children show whether the session of the kernel was learnt.
            specs[kind] = workspace.mini(name, "children", WRAPPERS[kind])
        else:
            specs[kind] = workspace.mini(name, kind)
    # Nothing binds a port in the kernel that is a sleep.
    owner.set(ready_timeout=0.0)
    started = owner.run("result = start_together(specs)", specs=specs)
    procs = {}
    for kind, name in names.items():
        top = started[kind]["pid"]
        noted = set(workspace.note(name).values()) if kind != "sleep" else set()
        alive = census.below(top) | noted
        if census.line(top) is not None:
            alive.add(census.find(top))
        procs[kind] = alive
    return procs


def aftermath(
    way: str, workspace: Workspace, owner: Owner, procs: dict[str, set[Proc]]
) -> Aftermath:
    everything = set().union(*procs.values()) | workspace.processes()
    everything -= {owner.proc}
    left = census.left_after(everything, GONE_WITHIN)
    # And whoever has come since.
    left |= census.left_after(workspace.processes() - {owner.proc}, GONE_WITHIN)
    told = {kind: census.describe(mine & left) for kind, mine in procs.items()}
    strays = census.describe(left - set().union(*procs.values()))
    census.end(left)
    return Aftermath(way, procs, told, strays, workspace.connection_files())


@pytest.fixture(scope="module", params=WAYS)
def ended(request: pytest.FixtureRequest) -> Iterator[Aftermath]:
    way, workspace = request.param, Workspace()
    try:
        with contextlib.ExitStack() as stack:
            group, prefix = None, []
            if way == "out of memory":
                if MemoryGroup.obstacle():
                    pytest.skip(MemoryGroup.obstacle())
                group = stack.enter_context(MemoryGroup(640 << 20))
                prefix = group.prefix()
            owner = stack.enter_context(Owner(workspace, prefix))
            procs = furnish(workspace, owner, {kind: kind for kind in KINDS})
            WAYS[way](owner)
            assert group is None or group.oom_kills() == 1
            yield aftermath(way, workspace, owner, procs)
    finally:
        workspace.close()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_it_is_left(ended: Aftermath, kind: str) -> None:
    assert ended.procs[kind], "the kind was not there to begin with"
    assert ended.left[kind] == []


def test_no_helper_and_no_file_is_left(ended: Aftermath) -> None:
    assert ended.strays == []
    if ended.way != "exec":
        # After an exec the owner lives, as far as anybody can tell, and the files are its own.
        assert ended.connection_files == []


STANDBY = "ownership.current().warm.standby.pids()"


@pytest.fixture(scope="module", params=["executed", "forked"])
def real_kernels_ended(request: pytest.FixtureRequest) -> Iterator[Aftermath]:
    """As above for SIGKILL, with Python kernels: scenes are cells that a client runs."""
    workspace = Workspace()
    wrapped = ["shell", "setsid_wait", "no_parent_pid"]
    cells = [
        scene for scene in SCENES if scene not in ("thread_left", "stopped_child", "respawning")
    ]
    specs = {kind: workspace.python(kind, WRAPPERS[kind]) for kind in wrapped}
    specs.update(dict.fromkeys(cells, workspace.python("plain")))
    try:
        with Owner(workspace) as owner:
            if request.param == "forked":
                owner.set(warm="auto", standby=1)
                owner.start("first", "plain")
                owner.wait_until_warm()
            started = owner.run("result = start_together(specs)", specs=specs)
            (spawner, *_) = census.children(owner.pid, "warm-spawner") or [owner.spawner()]
            keepers = census.children(spawner.pid, "kernel-keeper")
            # Forked ones have one more: a kernel that stands by.
            wanted = len(cells) + 1 if request.param == "forked" else len(specs)
            if request.param == "forked":
                census.wait_until(lambda: owner.run(f"result = {STANDBY}"), 60, "a standby kernel")
                keepers = census.children(spawner.pid, "kernel-keeper")
            assert len(keepers) == wanted
            procs = {"keepers": set(keepers)}
            procs["keepers"].update(*(census.below(keeper.pid) for keeper in keepers))
            for kind in specs:
                scene = "children" if kind in wrapped else kind
                owner.submit(kind, workspace.scene_code(kind, scene))
            for kind in specs:
                noted = set(workspace.note(kind).values())
                top = started[kind]["pid"]
                procs[kind] = census.below(top) | noted | {census.find(top)}
            owner.die(signal.SIGKILL)
            yield aftermath("SIGKILL", workspace, owner, procs)
    finally:
        workspace.close()


def test_nothing_of_real_kernels_is_left(real_kernels_ended: Aftermath) -> None:
    assert {kind: told for kind, told in real_kernels_ended.left.items() if told} == {}
    assert real_kernels_ended.strays == []
    assert real_kernels_ended.connection_files == []


def test_a_closed_terminal(workspace: Workspace) -> None:
    """The system sends SIGHUP to the owner in the foreground, and to nobody else."""
    ours, theirs = pty.openpty()
    try:
        with Owner(
            workspace,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as owner:
            os.close(theirs)
            owner.start("terminal", workspace.mini("terminal", "children"))
            procs = set(workspace.note("terminal").values()) | workspace.processes()
            os.close(ours)
            assert owner.process.wait(30) == -signal.SIGHUP
            assert census.describe(census.left_after(procs, GONE_WITHIN)) == []
    finally:
        for fd in (ours, theirs):
            with contextlib.suppress(OSError):
                os.close(fd)


def test_the_grace_is_not_waited_out(workspace: Workspace, owner: Owner) -> None:
    """Whatever honours SIGTERM leaves at once, a stopped process too; a kill is a kill."""
    owner.set(terminate_grace=60.0, retire_timeout=100.0)
    kinds = {"stopped": "stopped", "held": "gil_held", "child": "stopped_child"}
    specs = {name: workspace.mini(name, scene) for name, scene in kinds.items()}
    specs["killed"] = workspace.mini("killed", "stubborn")
    owner.run("result = start_together(specs)", specs=specs)
    procs = {name: set(workspace.note(name).values()) for name in specs}
    killed = procs.pop("killed")
    owner.run(
        "process = managers['killed'].provisioner.process; process.terminate(); process.kill()"
    )
    assert census.describe(census.left_after(killed, GONE_WITHIN)) == []
    owner.die()
    assert census.describe(census.left_after(set().union(*procs.values()), GONE_WITHIN)) == []


def test_a_fork_that_has_the_lease_does_not_matter(workspace: Workspace, owner: Owner) -> None:
    """A fork by foreign code, past Python's hooks, has copies of all the owner's sockets."""
    owner.start("held", workspace.mini("held"))
    procs = set(workspace.note("held").values())
    child = owner.run(
        "import ctypes\n"
        "child = ctypes.CDLL(None).fork()\n"
        "if child == 0:\n"
        "    ctypes.CDLL(None).sleep(3600)\n"
        "result = child"
    )
    held = census.find(child)
    try:
        owner.die(signal.SIGKILL)
        assert census.describe(census.left_after(procs, GONE_WITHIN)) == []
        assert census.runs(held), "the fork was to live on"
    finally:
        census.end([held])


def test_it_exits_without_a_word(workspace: Workspace) -> None:
    """At the end of the interpreter no warning may come, with a kernel still running."""
    with Owner(workspace, python=("-W", "error")) as owner:
        owner.start("quiet", workspace.mini("quiet"))
        procs = set(workspace.note("quiet").values())
        assert owner.leave() == 0
        assert census.describe(census.left_after(procs, GONE_WITHIN)) == []
        assert owner.errors() == ""


def test_the_spawner_leaves_with_an_owner_that_has_no_kernel(
    workspace: Workspace, owner: Owner
) -> None:
    owner.start("gone", workspace.mini("gone"))
    workspace.note("gone")
    owner.shut_down("gone", now=True)
    spawner = owner.spawner()
    assert owner.keepers() == []
    owner.die()
    assert census.describe(census.left_after([spawner], GONE_WITHIN)) == []
