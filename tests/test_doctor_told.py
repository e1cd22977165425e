"""What a clean tells and puts on record is what has really happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from support import census
from support.fence import scope_of
from support.owner import Owner
from support.workspace import SHELL, Workspace

from jupyter_ownedkernels import doctor
from jupyter_ownedkernels.doctor.cleaning import clean
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.models import HistoryEntry

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    made.mini("core", "children", wrapper=SHELL)
    made.mini("detached", "detached")
    made.mini("stubborn", "stubborn", wrapper=SHELL)
    made.mini("deaf", wrapper=["sh", "-c", 'trap "" TERM; exec "$@"', "sh"])
    yield made
    left = census.describe(census.left_after(made.processes(), 10))
    made.close()
    assert not left, f"left behind: {left}"


def cleaned(workspace: Workspace) -> list[HistoryEntry]:
    entries = journal.history([str(workspace.runtime / "ownedkernels")], 1000)
    return [entry for entry in entries if entry.event == "cleaned"]


def left_on_purpose(workspace: Workspace, owner: Owner) -> tuple[str, set[int]]:
    """Detached processes of a kernel that has ended; its id and their numbers."""
    owner.start("detached", "detached")
    kept = {proc.pid for name, proc in workspace.note("detached").items() if name != "kernel"}
    workspace.forget_note("detached")
    owner.shut_down("detached", now=True)
    (path,) = journal.find([str(workspace.runtime / "ownedkernels")])
    (launch,) = journal.read(path).launches.values()
    return launch.kernel_id, kept


@pytest.mark.parametrize("lives", [True, False], ids=["living owner", "dead owner"])
def test_the_end_of_detached_processes_is_on_record(workspace: Workspace, lives: bool) -> None:
    before = len(cleaned(workspace))
    with Owner(workspace) as owner:
        kernel_id, kept = left_on_purpose(workspace, owner)
        if not lives:
            owner.die()
        results = clean(kinds=["detached"], dry_run=False, scope=scope_of(workspace))
        assert {(one.pid, one.outcome) for one in results} == {(pid, "terminated") for pid in kept}
        entries = cleaned(workspace)[: len(cleaned(workspace)) - before]
        assert [(entry.kernel_id, entry.count, entry.message) for entry in entries] == [
            (kernel_id, 1, "terminated")
        ] * len(kept)
        if lives:
            # Its owner goes on writing to the same journal, and moves it to the history.
            owner.start("core", "core")
            workspace.note("core")
            workspace.forget_note("core")
            owner.shut_down("core", now=True)
            assert len(cleaned(workspace)) == before + len(kept)
            owner.leave()
    assert len(cleaned(workspace)) == before + len(kept)
    assert journal.find([str(workspace.runtime / "ownedkernels")]) == []


def test_what_could_not_be_put_on_record_is_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_ownedkernels.runtime import records

    def full(*_: object) -> int:
        raise OSError("no space left")

    with Owner(workspace) as owner:
        left_on_purpose(workspace, owner)
        monkeypatch.setattr(records, "append", full)
        results = clean(kinds=["detached"], dry_run=False, scope=scope_of(workspace))
        assert {one.outcome for one in results} == {"terminated"}
        assert all("could not be put on record" in one.reason for one in results)
        owner.leave()


@pytest.mark.parametrize(("spec", "outcome"), [("core", "terminated"), ("deaf", "killed")])
def test_a_keeper_that_was_woken_ends_its_kernel_and_the_person_is_told(
    workspace: Workspace, spec: str, outcome: str
) -> None:
    with Owner(workspace) as owner:
        # Whoever honours SIGTERM gets the time for it, on a busy machine too.
        owner.set(terminate_grace=10.0 if outcome == "terminated" else 0.2)
        owner.start(spec, spec)
        note = workspace.note(spec)
        workspace.forget_note(spec)
        (keeper,) = owner.keepers()
        os.kill(keeper.pid, signal.SIGSTOP)
        census.wait_until(lambda: census.line(keeper.pid).state == "T", 5, "it stops")  # type: ignore[union-attr]
        owner.die()
        (finding,) = doctor.scan(scope_of(workspace)).findings
        (result,) = clean([finding.id], dry_run=False, scope=scope_of(workspace))
        assert "its keeper, which had been stopped and was continued" in result.reason
        assert result.outcome == outcome
        assert result.pid == note["kernel"].pid
        assert not census.left_after(note.values(), 5)


def test_a_keeper_at_work_is_left_to_it(workspace: Workspace) -> None:
    """It ends the kernel between our look and our signal: nothing was done here."""
    with Owner(workspace) as owner:
        owner.set(terminate_grace=3.0)
        owner.start("deaf", "deaf")
        note = workspace.note("deaf")
        workspace.forget_note("deaf")
        owner.die()
        (finding,) = doctor.scan(scope_of(workspace)).findings
        (result,) = clean([finding.id], dry_run=False, scope=scope_of(workspace), grace=10.0)
        assert result.outcome == "already-gone"
        assert result.reason == "its keeper has ended it meanwhile"
        assert not census.left_after(note.values(), 5)
