"""Processes that left the kernel's session on purpose: kept or ended, as the policy says.

The same on every path: delete, restart, crash of the kernel, death of the owner.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from support import census
from support.census import Proc
from support.owner import Owner
from support.workspace import Workspace

GONE_WITHIN = 10.0
WAYS = ["delete", "orderly delete", "restart", "crash", "owner's death"]
POLICIES = ["keep", "kill"]
DETACHED = {"new_session", "nohup", "daemon", "bare"}


def override(policy: str) -> dict[str, object]:
    return {"ownedkernels": {"detached_processes": policy}}


def end_kernel(owner: Owner, name: str, way: str, kernel: Proc) -> None:
    if way == "delete":
        owner.run("shut_down(name, now=True)", name=name)
    elif way == "orderly delete":
        # Nobody in a mini kernel hears the message; the manager goes on to SIGTERM.
        owner.run(
            "managers[name].shutdown_wait_time = 0.4; managers[name].shutdown_kernel()", name=name
        )
    elif way == "restart":
        owner.run("managers[name].restart_kernel(now=True)", name=name)
    elif way == "crash":
        census.end([kernel])
    else:
        owner.die()


@pytest.fixture(scope="module")
def before_and_after(workspace: Workspace) -> Iterator[dict[tuple[str, str], dict[str, bool]]]:
    """For each way and policy: which processes, by name, run on after the kernel's end."""
    seen: dict[tuple[str, str], dict[str, bool]] = {}
    spared: set[Proc] = set()
    try:
        with Owner(workspace) as owner:
            scenes: dict[tuple[str, str], dict[str, Proc]] = {}
            for way in WAYS:
                for policy in POLICIES:
                    name = f"{policy}-{way.replace(' ', '-').replace(chr(39), '')}"
                    spec = workspace.mini(name, "detached", metadata=override(policy))
                    owner.start(name, spec)
                    scenes[way, policy] = procs = workspace.note(name)
                    spared |= set(procs.values())
                    workspace.forget_note(name)
                    if way == "owner's death":
                        continue
                    end_kernel(owner, name, way, procs["kernel"])
                    if way == "restart":
                        spared |= set(workspace.note(name).values())
            owner.die()
            spared |= workspace.processes()
            for case, procs in scenes.items():
                doomed = [proc for name, proc in procs.items() if name == "kernel"]
                if case[1] == "kill":
                    doomed = list(procs.values())
                census.left_after(doomed, GONE_WITHIN)
            # Whoever was to end has ended by now, or never will.
            for case, procs in scenes.items():
                seen[case] = {name: census.runs(proc) for name, proc in procs.items()}
        yield seen
    finally:
        census.end(spared)


@pytest.mark.parametrize("way", WAYS)
def test_kept(before_and_after: dict[tuple[str, str], dict[str, bool]], way: str) -> None:
    alive = before_and_after[way, "keep"]
    assert not alive.pop("kernel")
    assert alive == dict.fromkeys(DETACHED, True)


@pytest.mark.parametrize("way", WAYS)
def test_killed(before_and_after: dict[tuple[str, str], dict[str, bool]], way: str) -> None:
    alive = before_and_after[way, "kill"]
    assert alive == dict.fromkeys({*DETACHED, "kernel"}, False)


def test_the_trait_is_the_default_of_kernelspecs(workspace: Workspace, owner: Owner) -> None:
    owner.set(detached_processes="kill")
    owner.run("import logging; logging.basicConfig()")
    names = {
        "told": workspace.mini("told", "detached", metadata=override("keep")),
        "odd": workspace.mini("odd", "detached", metadata=override("perhaps")),
        "silent": workspace.mini("silent", "detached"),
    }
    owner.run("result = start_together(specs)", specs=names)
    procs = {name: workspace.note(name) for name in names}
    owner.die(signal.SIGKILL)
    kept = {proc for name, proc in procs["told"].items() if name in DETACHED}
    doomed = set().union(*(one.values() for one in procs.values())) - kept
    try:
        assert census.describe(census.left_after(doomed, GONE_WITHIN)) == []
        assert all(census.runs(proc) for proc in kept)
        assert "perhaps" in owner.errors(), "an odd word in a kernelspec is to be told"
    finally:
        census.end(kept)


def test_kept_ones_outlive_keeper_and_spawner(workspace: Workspace, owner: Owner) -> None:
    """Also when it is the helpers that die: they are not taken for orphans to be ended."""
    owner.start("helpers", workspace.mini("helpers", "detached"))
    procs = workspace.note("helpers")
    kept = {proc for name, proc in procs.items() if name in DETACHED}
    try:
        census.end([owner.keeper_of(procs["kernel"].pid)])
        assert census.left_after([procs["kernel"]], GONE_WITHIN) == set()
        spawner = owner.spawner()
        owner.die()
        assert census.left_after([spawner], GONE_WITHIN) == set()
        assert all(census.runs(proc) for proc in kept)
    finally:
        census.end(kept)


def test_what_a_terminal_started_lives_as_after_a_logout(
    workspace: Workspace, owner: Owner
) -> None:
    """Commands with ``!`` have a terminal: it goes with the kernel, and they with it."""
    owner.start("bang", workspace.python("bang"))
    said = owner.execute(
        "bang",
        "import os\n"
        "pid, fd = os.forkpty()\n"
        "if pid == 0:\n"
        "    loop = 'nohup sleep 3600 >/dev/null 2>&1 & echo $!; exec sleep 3600'\n"
        "    os.execvp('sh', ['sh', '-c', loop])\n"
        "print(pid, int(os.read(fd, 100)))",
    )
    shell, nohup = (census.find(int(word)) for word in said[-1].split())
    try:
        owner.die()
        assert census.left_after([shell], GONE_WITHIN) == set()
        assert census.runs(nohup)
    finally:
        census.end([shell, nohup])


@pytest.mark.parametrize(
    ("cell", "is_kept"),
    [
        ("%%bash\n{}", False),
        ("%%bash\nnohup {}", False),
        ("%%bash\nsetsid {}", True),
        ("import os\nos.system('nohup {}')", False),
        ("import os\nos.system('setsid {}')", True),
    ],
)
def test_what_the_readme_says_of_cells(
    workspace: Workspace, owner: Owner, cell: str, is_kept: bool
) -> None:
    """Whether its session was left decides, and nohup leaves none."""
    owner.start("cells", workspace.python("cells"))
    told = workspace.path / "pid"
    command = f"sleep 3600 >/dev/null 2>&1 & echo $! >{told}"
    owner.execute("cells", cell.format(command))
    started = census.find(int(told.read_text()))
    # On its way there it is neither: setsid has begun, and nohup has become the program.
    census.wait_until(
        lambda: census.command(started.pid)[:1] == ["sleep"], GONE_WITHIN, "the program"
    )
    try:
        owner.shut_down("cells")
        if is_kept:
            assert census.runs(started)
        else:
            assert census.left_after([started], GONE_WITHIN) == set()
    finally:
        census.end([started])
