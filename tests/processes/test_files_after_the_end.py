"""The connection file of a kernel that has ended, when its owner dies before it has removed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

from jupyter_ownedkernels.journal import journal

GONE_WITHIN = 10.0


def crashed(workspace: Workspace, owner: Owner, name: str) -> Path:
    """Start a kernel and kill it; its connection file, which nobody has removed yet."""
    told = owner.start(name, workspace.mini(name))
    workspace.note(name)
    census.end([census.find(told["pid"])])
    ended = (
        "from jupyter_ownedkernels import ownership\n"
        "result = ownership.current().kernels()[-1].state.value == 'ended'"
    )
    census.wait_until(lambda: owner.run(ended), 10, "the end is on record")
    path = Path(told["file"])
    assert path.exists()
    return path


def test_it_goes_with_the_owner(workspace: Workspace, owner: Owner) -> None:
    path = crashed(workspace, owner, "crashed")
    (keeper,) = owner.keepers()
    owner.die()
    assert not census.left_after([keeper], GONE_WITHIN)
    assert not path.exists()
    (launch,) = (
        launch
        for found in journal.find([str(workspace.runtime / "ownedkernels")])
        for launch in journal.read(found).launches.values()
        if launch.connection_file == str(path)
    )
    assert launch.exit is not None
    assert (launch.exit.cause, launch.ended_by) == ("killed", "owner")


def test_one_that_others_have_written_since_stays(workspace: Workspace, owner: Owner) -> None:
    path = crashed(workspace, owner, "replaced")
    (keeper,) = owner.keepers()
    path.write_text("{}")
    owner.die()
    assert not census.left_after([keeper], GONE_WITHIN)
    assert path.read_text() == "{}"


def test_that_of_a_kernel_started_again_is_not_its_affair(
    workspace: Workspace, owner: Owner
) -> None:
    """Not even where nobody else looks after the new kernel, which is to outlive its owner."""
    path = crashed(workspace, owner, "again")
    (keeper,) = owner.keepers()
    workspace.forget_note("again")
    owner.run("call('again', 'restart_kernel', independent=True)")
    kernel = workspace.note("again")["kernel"]
    try:
        assert not census.left_after([keeper], GONE_WITHIN)
        owner.die()
        assert census.runs(kernel)
        assert path.exists()
    finally:
        census.end([kernel])


ENDS = {
    "shut down": "call('done', 'shutdown_kernel', now=True)",
    "restarted": "call('done', 'restart_kernel', now=True)",
    "forgotten": "import gc; del managers['done']; gc.collect()",
}


@pytest.mark.parametrize("how", ENDS)
def test_its_keeper_goes_when_the_owner_has_done_its_part(
    workspace: Workspace, owner: Owner, how: str
) -> None:
    crashed(workspace, owner, "done")
    (keeper,) = owner.keepers()
    owner.run(ENDS[how])
    assert not census.left_after([keeper], GONE_WITHIN)
    assert census.runs(owner.proc)


def test_nor_does_it_wait_for_an_owner_that_owns_nothing_more(
    workspace: Workspace, owner: Owner
) -> None:
    """Several servers may run in one process, one after the other."""
    path = Path(owner.start("closed", workspace.mini("closed"))["file"])
    (keeper,) = owner.keepers()
    owner.run("from jupyter_ownedkernels import ownership\nownership.close_current()")
    assert not census.left_after([keeper], GONE_WITHIN)
    assert not path.exists()
    assert census.runs(owner.proc)
