"""Journals from before the machine was started: proven over, or foreign for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fence import look_of, scope_of
from support.journals import owner_process, word
from support.workspace import Workspace

from jupyter_ownedkernels import doctor, identity, recovery
from jupyter_ownedkernels.doctor.cleaning import clean
from jupyter_ownedkernels.identity import Verdict
from jupyter_ownedkernels.journal import journal, machine, place, retention
from jupyter_ownedkernels.journal.journal import JournalView
from jupyter_ownedkernels.models import Finding
from jupyter_ownedkernels.recovery import Recovery
from jupyter_ownedkernels.runtime import records
from jupyter_ownedkernels.runtime.files import FileIdentity

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="worlds are told by /proc"),
]

OWNER = """
from jupyter_ownedkernels.journal import machine
machine.this_machine = lambda: "0123456789abcdef"
from jupyter_ownedkernels.journal import owner
owner.this_machine = machine.this_machine
folder, path = sys.argv[1:]
one = Journal(journal.this_owner("before"), [folder])
me = identity.of_self()
one.launching(launch(1, connection_file=path))
one.running("launch-1", keeper=me, process=me, sessions=[me.pid])
one.launching(launch(2))
one.running("launch-2", keeper=me, process=me, sessions=[me.pid])
one.ended("launch-2", exit_(2), [survivor(me)])
print("true", flush=True)
sys.stdin.read()
"""
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with an id, seen from its own pid namespace: a test may run in a container."""
    monkeypatch.setattr(machine, "this_machine", lambda: "0123456789abcdef")
    monkeypatch.setattr(machine, "INITIAL_NAMESPACE", identity.this_world().pid_ns)
    monkeypatch.setattr(machine, "why_shared", lambda folder: "")


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    yield made
    made.close()


def folder(workspace: Workspace) -> str:
    return str(workspace.runtime / "ownedkernels")


def rewrite(path: str, change: Change) -> None:
    """Change every record as another boot, or another machine, would have written it."""
    found, damaged = records.parse(Path(path).read_bytes())
    assert not damaged
    lines = []
    for record in found:
        for part in (record, *record.values()):
            if isinstance(part, dict):
                change(part)
        del record["v"]
        lines.append(records.encode(record))
    Path(path).write_bytes(b"".join(lines))


def another_boot(part: dict[str, Any]) -> None:
    if "boot_id" in part:
        part["boot_id"] = "11111111-2222-3333-4444-555555555555"


def before(workspace: Workspace, *changes: Change) -> tuple[str, Path]:
    """The journal and the connection file of an owner that a power cut has ended."""
    file = workspace.runtime / "kernel-1.json"
    file.write_text(json.dumps({"ip": "127.0.0.1", "shell_port": 1, "key": "s3cret"}))
    with owner_process(OWNER, folder(workspace), file) as owner:
        assert word(owner) is True
    (path,) = journal.find([folder(workspace)])
    for change in changes:
        rewrite(path, change)
    return path, file


def findings(workspace: Workspace) -> tuple[Finding, ...]:
    report = doctor.scan(scope_of(workspace))
    assert report.complete, report.incomplete_reason
    return report.findings


def recover(workspace: Workspace) -> Recovery:
    return recovery.recover([folder(workspace)], [str(workspace.runtime)], look=look_of(workspace))


def test_all_of_it_is_proven_gone(workspace: Workspace) -> None:
    path, file = before(workspace, another_boot)
    view = journal.read(path)
    assert journal.owner_verdict(view) is Verdict.GONE
    (finding,) = findings(workspace)
    assert (finding.kind, finding.path) == ("stale_file", str(file))
    assert "started again" in finding.proofs[0]
    done = recover(workspace)
    assert (done.files, done.processes) == ((str(file),), 0)
    assert not file.exists()
    assert journal.find([folder(workspace)]) == []
    ended = {e.launch_id: e for e in journal.history([folder(workspace)]) if e.event == "ended"}
    assert set(ended) == {"launch-1", "launch-2"}
    told = ended["launch-1"].exit
    assert told is not None
    assert "machine was started again" in told.summary
    assert told.at == pytest.approx(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), abs=5)


def test_the_doctor_removes_its_files(workspace: Workspace) -> None:
    _, file = before(workspace, another_boot)
    (result,) = clean(dry_run=False, scope=scope_of(workspace))
    assert result.outcome == "removed"
    assert not file.exists()


def test_a_number_that_is_taken_again_means_nothing(workspace: Workspace) -> None:
    """Another process has the pid, and by chance even the start time, of the dead one."""
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, **workspace.environment()})
    try:
        now = identity.of_pid(child.pid)
        assert now is not None

        def same_number(part: dict[str, Any]) -> None:
            if "pid" in part and "start_ticks" in part:
                part.update(pid=now.pid, start_ticks=now.start_ticks)

        before(workspace, another_boot, same_number)
        assert {one.kind for one in findings(workspace)} == {"stale_file"}
        clean(kinds=["stray_kernel", "stray_process", "detached", "stale_file"], dry_run=False,
              scope=scope_of(workspace))  # fmt: skip
        assert recover(workspace).processes == 0
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def other(**fields: object) -> Change:
    def change(part: dict[str, Any]) -> None:
        part.update({name: value for name, value in fields.items() if name in part})

    return change


@pytest.mark.parametrize(
    "change",
    [
        other(host="another"),
        other(machine="fedcba9876543210"),
        other(machine=""),
        lambda part: part.pop("machine", None),
        other(pid_ns=4026532999),
        other(boot_id=""),
    ],
    ids=["host", "machine", "no machine", "older version", "container", "no boot id"],
)
def test_what_is_not_proven_is_never_touched(workspace: Workspace, change: Change) -> None:
    path, file = before(workspace, another_boot, change)
    assert journal.owner_verdict(journal.read(path)) in (Verdict.FOREIGN, Verdict.UNKNOWN)
    assert {one.kind for one in findings(workspace)} <= {"foreign", "unknown"}
    assert clean(dry_run=False, scope=scope_of(workspace)) == []
    assert not recover(workspace).did_something
    assert (file.exists(), os.path.exists(path)) == (True, True)


@pytest.mark.parametrize("what", ["shared", "seen from a container", "no id here", "no id at all"])
def test_from_where_it_cannot_be_proven(
    workspace: Workspace, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [other(machine="")] if what == "no id at all" else []
    path, file = before(workspace, another_boot, *changes)
    if what == "shared":
        monkeypatch.setattr(machine, "why_shared", lambda folder: "on a network file system")
    elif what.startswith("no id"):
        monkeypatch.setattr(machine, "this_machine", lambda: "")
    else:
        monkeypatch.setattr(machine, "INITIAL_NAMESPACE", place.INITIAL_NAMESPACE + 100)
    assert {one.kind for one in findings(workspace)} == {"foreign"}
    assert not recover(workspace).did_something
    assert (file.exists(), os.path.exists(path)) == (True, True)


def test_the_folder_is_what_is_asked_about(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(machine, "why_shared", lambda folder: asked.append(folder) or "")
    path, _ = before(workspace, another_boot)
    journal.read(path)
    assert asked == [folder(workspace)]


def test_somebody_who_holds_the_journal_lives(workspace: Workspace) -> None:
    """Processes that were frozen and thawed on another boot, say."""
    path, file = before(workspace, another_boot)
    hold = "one = journal.claim(sys.argv[1])\nprint('true', flush=True)\nsys.stdin.read()\n"
    with owner_process(hold, path) as holder:
        assert word(holder) is True
        assert all(one.action is None for one in findings(workspace))
        assert not recover(workspace).did_something
    assert file.exists()


def test_this_boot_is_no_earlier_one(workspace: Workspace) -> None:
    path, _ = before(workspace)
    assert not journal.read(path).over


# -- those of other worlds -----------------------------------------------------------------


def aged(number: int, days: float) -> JournalView:
    now = 1_000_000_000.0
    file = FileIdentity(1, number, int((now - days * 86400) * 1e9))
    return JournalView(f"/j/{number}", None, {}, 0, False, True, "", file)


def test_their_number_is_bounded() -> None:
    def kept(*days: float) -> int:
        views = [aged(number, age) for number, age in enumerate(days)]
        return len(views) - len(retention.outdated(views, 1_000_000_000.0))

    assert kept(0.1, 29.9) == 2
    assert kept(0.1, 30.1) == 1
    assert kept(*[2.0] * 150) == retention.MOST_FOREIGN
    assert kept(*[0.9] * 150) == 150
    assert kept() == 0
    newest = [aged(number, 2 + number) for number in range(12)]
    assert not retention.outdated(newest, 1_000_000_000.0)


@pytest.mark.parametrize("state", ["free", "locked", "young", "no locks", "network"])
def test_an_old_one_goes_alone(
    workspace: Workspace, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the journal: its kernels may run, where nobody here can see them."""
    path, file = before(workspace, other(host="another"))
    if state != "young":
        os.utime(path, (time.time() - retention.FOREIGN_AGE - 60,) * 2)
    if state == "network":
        # The lock of an owner on another machine may not be seen here.
        monkeypatch.setattr(place.journal_folder, "is_network", lambda folder: True)
    if state == "no locks":
        from jupyter_ownedkernels.runtime import lock

        monkeypatch.setattr(lock, "take", lambda fd: lock.Lock.UNKNOWN)
    hold = "one = journal.claim(sys.argv[1])\nprint('true', flush=True)\nsys.stdin.read()\n"
    with owner_process(hold if state == "locked" else "print('true', flush=True)", path) as other_:
        assert word(other_) is True
        recover(workspace)
    assert os.path.exists(path) == (state != "free")
    assert file.exists()
    told = journal.history([folder(workspace)])
    assert [entry.launch_id for entry in told] == ["launch-2"]


def test_the_doctor_and_a_report_leave_old_ones_alone(workspace: Workspace) -> None:
    path, _ = before(workspace, other(host="another"))
    os.utime(path, (time.time() - retention.FOREIGN_AGE - 60,) * 2)
    clean(dry_run=False, scope=scope_of(workspace))
    recovery.recover(
        [folder(workspace)], [str(workspace.runtime)], mode="report", look=look_of(workspace)
    )
    assert os.path.exists(path)


def test_one_that_came_to_life_is_not_forgotten(workspace: Workspace) -> None:
    """Between the look and the claim it has become a journal of this world."""
    path, _ = before(workspace)
    with journal.claim(path) as claim:  # type: ignore[union-attr]
        result = claim.forget(100)
    assert result.outcome == "refused"
    assert os.path.exists(path)


def test_a_world_that_is_over_is_not_told_apart_on_disk() -> None:
    me = identity.of_self()
    over = replace(me, world=replace(me.world, over=True))
    assert over.to_json() == me.to_json()
    assert identity.compare(over) is Verdict.GONE
