"""Each layer alone: what happens when keepers and the spawner are killed."""

from __future__ import annotations

import pytest
from support import census
from support.census import Proc
from support.owner import Owner
from support.workspace import SHELL, Workspace

GONE_WITHIN = 10.0
# What has a clean environment can only be found by its place below keeper or spawner.
KINDS = {
    "children": ("children", []),
    "orphans": ("orphans", []),
    "bare_environment": ("bare_environment", []),
    "stubborn": ("stubborn", []),
    "gil_held": ("gil_held", []),
    "shell": ("children", SHELL),
    "setsid": ("children", [*SHELL, "setsid", "--wait"]),
    "socket_holder": ("socket_holder", []),
}


def furnish(workspace: Workspace, owner: Owner, kinds: list[str]) -> dict[str, set[Proc]]:
    specs = {kind: workspace.mini(kind, *KINDS[kind]) for kind in kinds}
    for kind in kinds:
        workspace.forget_note(kind)
    started = owner.run("result = start_together(specs)", specs=specs)
    procs = {}
    for kind in kinds:
        noted = set(workspace.note(kind).values())
        top = started[kind]["pid"]
        procs[kind] = noted | census.below(top) | {census.find(top)}
    return procs


def left(procs: dict[str, set[Proc]]) -> dict[str, list[str]]:
    remaining = census.left_after(set().union(*procs.values()), GONE_WITHIN)
    census.end(remaining)
    told = {kind: census.describe(mine & remaining) for kind, mine in procs.items()}
    return {kind: lines for kind, lines in told.items() if lines}


def test_keeper_killed(workspace: Workspace, owner: Owner) -> None:
    """The kernel is gone at once, and what it started; the kernel beside it lives."""
    procs = furnish(workspace, owner, list(KINDS))
    owner.start("beside", workspace.mini("beside"))
    workspace.note("beside")
    beside = owner.run("result = about('beside')['pid']")
    keepers = {kind: owner.keeper_of(min(mine).pid) for kind, mine in procs.items()}
    census.end(keepers.values())
    assert left(procs) == {}
    for kind in KINDS:
        assert not owner.is_alive(kind)
    assert owner.is_alive("beside")
    assert census.line(beside) is not None


def test_keeper_killed_whose_kernel_has_no_pidfd(workspace: Workspace, owner: Owner) -> None:
    """As with an owner that had no descriptor left for it: the end is seen all the same."""
    (mine,) = furnish(workspace, owner, ["children"]).values()
    owner.run("managers['children'].provisioner.process.launch.close_pidfd()")
    census.end([owner.keeper_of(min(mine).pid)])
    assert census.describe(census.left_after(mine, GONE_WITHIN)) == []
    census.wait_until(lambda: not owner.is_alive("children"), GONE_WITHIN, "the end is seen")
    owner.shut_down("children", now=True)


def test_spawner_killed(workspace: Workspace, owner: Owner) -> None:
    """Kernels live on, watched; the next launch works and has another spawner."""
    procs = furnish(workspace, owner, ["children", "orphans"])
    old = owner.spawner()
    census.end([old])
    owner.start("next", workspace.mini("next"))
    procs["next"] = set(workspace.note("next").values())
    assert owner.spawner() != old
    for name, mine in procs.items():
        assert owner.is_alive(name)
        assert all(census.runs(proc) for proc in mine)
    owner.shut_down("children", now=True)
    assert left({"children": procs.pop("children")}) == {}
    assert all(census.runs(proc) for mine in procs.values() for proc in mine)
    owner.die()
    assert left(procs) == {}


@pytest.mark.parametrize("order", ["spawner first", "keepers first"])
def test_spawner_and_keepers_killed(workspace: Workspace, owner: Owner, order: str) -> None:
    """As if the keepers alone had been: kernels at once, the rest by proof of its environment."""
    kinds = [kind for kind in KINDS if kind != "bare_environment"]
    procs = furnish(workspace, owner, kinds)
    keepers, spawner = owner.keepers(), owner.spawner()
    census.end([spawner, *keepers] if order == "spawner first" else [*keepers, spawner])
    assert left(procs) == {}
    for kind in kinds:
        assert not owner.is_alive(kind)
    owner.start("next", workspace.mini("next"))
    assert owner.is_alive("next")


def test_all_killed_at_once(workspace: Workspace, owner: Owner) -> None:
    """No kernel is left. What it started is for the next owner's recovery to end."""
    procs = furnish(workspace, owner, list(KINDS))
    helpers = {owner.spawner(), *owner.keepers()}
    kernels = {kind: set(workspace.note(kind).values()) for kind in ("gil_held",)}
    for kind in ("children", "orphans", "stubborn"):
        kernels[kind] = {workspace.note(kind)["kernel"]}
    everything = set().union(helpers, *procs.values())
    try:
        census.end([owner.proc, *helpers])
        assert left(kernels) == {}
    finally:
        census.end(everything)


@pytest.fixture
def in_a_thread(workspace: Workspace, owner: Owner) -> set[Proc]:
    """The owner's first kernel, started in a thread of an event loop; both have ended."""
    spec = workspace.mini("thread")
    owner.run(
        "import threading\n"
        "thread = threading.Thread(target=lambda: start_together({'thread': spec}))\n"
        "thread.start(); thread.join()",
        spec=spec,
    )
    return {*workspace.note("thread").values(), owner.spawner(), *owner.keepers()}


def test_started_in_a_thread_that_ends(owner: Owner, in_a_thread: set[Proc]) -> None:
    """A signal on a parent's death would come at the end of the thread, and at once."""
    assert all(census.runs(proc) for proc in in_a_thread)
    assert owner.is_alive("thread")
    # A second thread starts and ends while the first one's kernel runs.
    owner.run("thread = threading.Thread(target=os.getpid); thread.start(); thread.join()")
    assert all(census.runs(proc) for proc in in_a_thread)
    owner.die()
    assert census.describe(census.left_after(in_a_thread, GONE_WITHIN)) == []
