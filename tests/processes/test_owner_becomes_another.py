"""An owner that executes another program keeps its number and its start time, not its kernels."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

from support import census
from support.fence import scope_of
from support.owner import Owner
from support.workspace import Workspace

from jupyter_ownedkernels import doctor
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import JournalView

RECOVER = """
import json, os, sys
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels import recovery
runtime, note = sys.argv[1:]
folders = [os.path.join(runtime, "ownedkernels")]
# It is an owner of its own by now, as a server that executes itself is.
mine = journal.Journal(journal.this_owner("again"), folders)
mine.open()
done = recovery.recover(folders, [runtime])
left = [os.path.basename(path) for path in journal.find(folders)]
with open(note + ".part", "w") as stream:
    json.dump({"kernels": len(done.kernels), "left": left}, stream)
os.rename(note + ".part", note)
mine.close()
"""


def records(workspace: Workspace) -> list[JournalView]:
    return [journal.read(p) for p in journal.find([str(workspace.runtime / "ownedkernels")])]


def test_its_kernels_end_and_their_files_go(
    workspace: Workspace, owners: Callable[..., Owner]
) -> None:
    workspace.mini("becomes", "children")
    owner = owners()
    owner.start("becomes", "becomes")
    note = workspace.note("becomes")
    workspace.forget_note("becomes")
    owner.tell("os.execv('/bin/sleep', ['sleep', '600'])")
    assert not census.left_after(note.values(), 10)
    # A second later: until then the keeper waits whether its owner is only slow to end.
    census.wait_until(lambda: not workspace.connection_files(), 20, "the file goes")
    census.wait_until(lambda: not records(workspace)[0].open, 20, "its end is on record")
    assert census.runs(owner.proc)
    (view,) = records(workspace)
    (launch,) = view.launches.values()
    assert (launch.ended_by, launch.exit and launch.exit.cause) == ("keeper", "owner-died")
    assert doctor.scan(scope_of(workspace)).findings == ()
    owner.die()


def test_an_owner_that_gives_a_kernel_up_keeps_its_file(
    workspace: Workspace, owners: Callable[..., Owner]
) -> None:
    """It holds its journal, so the file is its own affair: it may be the next launch's."""
    workspace.mini("given up")
    owner = owners()
    owner.start("given up", "given up")
    note = workspace.note("given up")
    (keeper,) = owner.keepers()
    owner.run("managers['given up'].provisioner.process.launch.close()")
    assert not census.left_after([*note.values(), keeper], 20)
    assert len(workspace.connection_files()) == 1
    owner.shut_down("given up", now=True)


def test_when_it_is_an_owner_again_it_clears_up_after_its_former_self(
    workspace: Workspace, owners: Callable[..., Owner]
) -> None:
    """Also what keepers could not do: they have died with the other program."""
    workspace.mini("again", "children", wrapper=["sh", "-c", '"$@"; exit $?', "sh"])
    owner = owners()
    owner.start("again", "again")
    note = workspace.note("again")
    helpers = [owner.spawner(), *owner.keepers()]
    for proc in helpers:
        os.kill(proc.pid, signal.SIGSTOP)
    told = workspace.notes / "told"
    owner.tell(
        "os.execv(sys.executable, [sys.executable, '-c', code, runtime, note])",
        code=RECOVER,
        runtime=str(workspace.runtime),
        note=str(told),
    )
    census.end(helpers)
    census.wait_until(told.exists, 30, "the new program has looked")
    answer = json.loads(told.read_text())
    told.unlink()
    assert answer == {"kernels": 1, "left": ["owner-again.jsonl"]}
    assert not census.left_after(note.values(), 5)
    assert not workspace.connection_files()
