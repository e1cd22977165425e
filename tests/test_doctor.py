"""The doctor at work on real processes and files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support import census
from support.census import Proc
from support.fence import look_of, scope_of
from support.owner import Owner
from support.tables import Table
from support.workspace import IPYKERNEL, SHELL, Workspace

from jupyter_ownedkernels import doctor, identity, recovery
from jupyter_ownedkernels.doctor import unjournaled as doctor_unjournaled
from jupyter_ownedkernels.doctor.cleaning import clean, result_of
from jupyter_ownedkernels.doctor.examination import examine
from jupyter_ownedkernels.doctor.findings import file_id, of_process
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import CleanResult, Finding, LaunchRecord, Survivor
from jupyter_ownedkernels.processes.orphans import Ended, target_of
from jupyter_ownedkernels.runtime import files
from jupyter_ownedkernels.runtime.retire import Leftover

SOAK = os.environ.get("OWNEDKERNELS_SOAK", "") not in ("", "0")
pytestmark = pytest.mark.timeout(3000 if SOAK else 240)

OLD = time.time() - 100 * 86400
ALL = ("stray_kernel", "stray_process", "detached", "stale_file", "foreign", "unknown")


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    made.mini("core", "children", wrapper=SHELL)
    made.mini("plain", "children")
    made.mini("detached", "detached")
    made.mini("stubborn", "stubborn", wrapper=SHELL)
    made.mini("gil", "gil_held")
    made.mini("stopped", "stopped")
    made.spec("deaf", made.mini_argv("deaf", "idle", "--bind-after", "-1"))
    made.spec("python", IPYKERNEL)
    yield made
    left = census.describe(census.left_after(made.processes(), 10))
    made.close()
    assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True)
def alone(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody waits here until a kernel is a minute old; nothing is left for the next test."""
    monkeypatch.setattr(doctor_unjournaled, "MIN_AGE", 0.0)
    yield
    recover(workspace)
    for path in workspace.runtime.glob("kernel-*.json"):
        path.unlink()


def scan(workspace: Workspace) -> dict[str, list[Finding]]:
    report = doctor.scan(scope_of(workspace))
    assert report.complete, report.incomplete_reason
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.kind, []).append(finding)
    return found


def fix(workspace: Workspace, **options: object) -> list[CleanResult]:
    return clean(dry_run=False, scope=scope_of(workspace), **options)  # type: ignore[arg-type]


def recover(workspace: Workspace) -> None:
    folder = workspace.runtime
    recovery.recover([str(folder / "ownedkernels")], [str(folder)], look=look_of(workspace))


def crashed(workspace: Workspace, *specs: str) -> dict[str, dict[str, Proc]]:
    """Kernels of an owner that was killed together with all of its helpers."""
    notes: dict[str, dict[str, Proc]] = {}
    with Owner(workspace) as owner:
        for spec in specs:
            owner.start(spec, spec)
            notes[spec] = workspace.note(spec)
            workspace.forget_note(spec)
        helpers = {owner.spawner(), *owner.keepers()}
        above = {w for k in owner.keepers() for w in census.children(k.pid, "sh")}
        for proc in helpers:
            os.kill(proc.pid, signal.SIGSTOP)
        for proc in helpers:
            census.wait_until(lambda: census.line(proc.pid).state == "T", 5, "it stops")  # type: ignore[union-attr]  # noqa: B023
        owner.die()
        census.end(helpers)
        assert not census.left_after(helpers | above, 5)
    return notes


@contextmanager
def stock(workspace: Workspace, spec: str) -> Iterator[tuple[Owner, dict[str, Proc], str]]:
    """A kernel that an owner without this package has started."""
    with Owner(workspace, provisioner="local-provisioner") as owner:
        about = owner.start(spec, spec)
        note = workspace.note(spec)
        workspace.forget_note(spec)
        yield owner, note, about["file"]
    census.end(workspace.processes())


def age(path: str | Path) -> None:
    os.utime(path, (OLD, OLD))


def leftover(workspace: Workspace, name: str, text: str = "") -> Path:
    path = workspace.runtime / name
    path.write_text(text or json.dumps({"ip": "127.0.0.1", "shell_port": 1, "key": "s3cret"}))
    age(path)
    return path


# -- journaled -------------------------------------------------------------------------


def test_a_stray_kernel_is_found_ended_and_forgotten(workspace: Workspace) -> None:
    note = crashed(workspace, "core")["core"]
    (finding,) = scan(workspace)["stray_kernel"]
    assert finding.pid == note["kernel"].pid
    assert finding.rss_bytes is not None
    assert finding.rss_bytes > 1e6
    assert finding.path is not None
    assert os.path.exists(finding.path)
    (dry,) = clean([finding.id], scope=scope_of(workspace))
    assert (dry.outcome, census.runs(note["kernel"])) == ("kept", True)
    (result,) = fix(workspace, ids=[finding.id])
    assert result.outcome == "terminated"
    assert result.reason == "with 3 more processes"
    assert not census.left_after(note.values(), 2)
    assert not os.path.exists(finding.path)
    assert scan(workspace) == {}
    (again,) = fix(workspace, ids=[finding.id])
    assert again.outcome == "already-gone"


def test_only_what_was_asked_for_is_ended(workspace: Workspace) -> None:
    notes = crashed(workspace, "core", "stubborn")
    first, second = sorted(scan(workspace)["stray_kernel"], key=lambda one: one.kernel_name or "")
    assert first.kernel_name == "core"
    fix(workspace, ids=[first.id])
    assert not census.left_after(notes["core"].values(), 2)
    assert all(census.runs(proc) for proc in notes["stubborn"].values())
    assert second.path is not None
    assert os.path.exists(second.path)
    (result,) = fix(workspace, ids=[second.id], grace=0.2)
    assert result.outcome in ("terminated", "killed")
    assert not census.left_after(notes["stubborn"].values(), 2)
    assert scan(workspace) == {}


def test_what_ignores_sigterm_is_killed_and_the_result_says_so(workspace: Workspace) -> None:
    note = crashed(workspace, "stubborn")["stubborn"]
    census.end([note["kernel"]])
    assert not census.left_after([note["kernel"]], 5)
    found = scan(workspace)["stray_process"]
    results = {one.pid: one for one in fix(workspace, grace=0.2)}
    assert results[note["child"].pid].outcome == "killed"
    assert "SIGTERM" in results[note["child"].pid].reason
    assert len(found) == 2
    assert not census.left_after(note.values(), 1)


def test_detached_processes_end_only_when_they_are_named(workspace: Workspace) -> None:
    note = crashed(workspace, "detached")["detached"]
    bare = note.pop("bare")
    kept = {note[name] for name in ("new_session", "nohup", "daemon")}
    assert {one.pid for one in scan(workspace)["detached"]} == {proc.pid for proc in kept}
    fix(workspace)
    fix(workspace, kinds=["stray_kernel", "stray_process", "stale_file"])
    assert all(census.runs(proc) for proc in kept)
    assert {one.pid for one in scan(workspace)["detached"]} == {proc.pid for proc in kept}
    results = fix(workspace, kinds=["detached"])
    assert {one.outcome for one in results} == {"terminated"}
    assert not census.left_after(kept, 1)
    assert scan(workspace) == {}
    census.end([bare])


def test_a_living_owners_kernels_are_never_found(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        owner.start("core", "core")
        owner.start("detached", "detached")
        note = {**workspace.note("core"), **workspace.note("detached")}
        for name in ("core", "detached"):
            workspace.forget_note(name)
        for path in workspace.runtime.glob("kernel-*.json"):
            age(path)
        assert scan(workspace) == {}
        fix(workspace, kinds=ALL)
        assert all(census.runs(proc) for proc in note.values())
        assert len(workspace.connection_files()) == 2
        # What an ended kernel of it has left on purpose is shown, and ended when named.
        owner.shut_down("detached", now=True)
        kept = {note[name].pid for name in ("new_session", "nohup", "daemon", "bare")}
        assert {one.pid for one in scan(workspace)["detached"]} == kept
        fix(workspace)
        assert {one.pid for one in scan(workspace)["detached"]} == kept
        fix(workspace, kinds=["detached"])
        assert scan(workspace) == {}
        assert owner.is_alive("core")


def test_a_restart_makes_an_old_verdict_void(workspace: Workspace) -> None:
    """The id of a finding about one launch does not fit the next launch of the kernel."""
    note = crashed(workspace, "core")["core"]
    (finding,) = scan(workspace)["stray_kernel"]
    (path,) = journal.find([str(workspace.runtime / "ownedkernels")])
    view = journal.read(path)
    (launch,) = view.open
    with journal.claim(path) as claim:  # type: ignore[union-attr]
        claim.ended(launch.launch_id, None)
        claim.launching(replace(launch, launch_id="another", generation=2))
        claim.running("another", keeper=None, process=launch.kernel, sessions=launch.sessions)
    (result,) = fix(workspace, ids=[finding.id])
    assert result.outcome == "kept"
    assert all(census.runs(proc) for proc in note.values())
    fix(workspace)
    census.end(note.values())


def test_survivors_that_may_not_be_ended_stay_on_the_list(workspace: Workspace) -> None:
    """An owner that lives reports what it could not end; the doctor tries again."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        one = Journal(journal.this_owner("survivors"), [str(workspace.runtime / "ownedkernels")])
        me = identity.of_self()
        left = identity.of_pid(child.pid)
        assert left is not None
        one.launching(LaunchRecord("l", "k", 1, "python3", ""))
        one.running("l", keeper=None, process=left, sessions=[child.pid])
        one.ended("l", None, [Survivor(child.pid, left.start_ticks, child.pid, "timeout")])
        (finding,) = scan(workspace)["stray_process"]
        assert finding.owner is not None
        assert finding.owner["pid"] == me.pid
        assert finding.by_default
        (result,) = fix(workspace)
        assert result.outcome == "terminated"
        assert child.wait(5) == -signal.SIGTERM
        assert scan(workspace) == {}
    finally:
        child.kill()
        child.wait()
        one.close()


def test_what_another_clean_up_is_at_work_on_is_kept(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the journal between our scan and our clean."""
    note = crashed(workspace, "core")["core"]
    monkeypatch.setattr(journal, "claim", lambda path: None)
    (result,) = fix(workspace)
    assert result.outcome == "kept"
    assert "another clean-up" in result.reason
    assert all(census.runs(proc) for proc in note.values())
    monkeypatch.undo()
    census.end(note.values())


def test_files_are_looked_at_again_before_they_are_removed(workspace: Workspace) -> None:
    """Something opened one between our scan and our clean."""
    path = leftover(workspace, "kernel-late.json")
    looks = []
    opened = []

    def look() -> object:
        if len(looks) == 1:
            opened.append(path.open())
        looks.append(1)
        return look_of(workspace)()

    scope = replace(scope_of(workspace), look=look)  # type: ignore[arg-type]
    (result,) = clean(dry_run=False, scope=scope)
    opened[0].close()
    assert (result.outcome, result.reason) == ("kept", "something may use it now")
    assert path.exists()


def test_the_index_of_a_scan_is_made_once(workspace: Workspace) -> None:
    """Asked for by each item of a clean: made anew each time, 20,000 files took six minutes."""
    for number in range(3):
        leftover(workspace, f"kernel-{number}.json")
    examined = examine(scope_of(workspace))
    assert len(examined.by_id) == 3
    assert examined.by_id is examined.by_id


# -- without a journal -----------------------------------------------------------------


@pytest.mark.parametrize("spec", ["plain", "core", "gil"])
def test_what_a_stock_server_leaked_is_found_and_ended(workspace: Workspace, spec: str) -> None:
    with stock(workspace, spec) as (owner, note, path):
        assert "stray_kernel" not in scan(workspace), "its owner lives"
        owner.die()
        found = scan(workspace)["stray_kernel"]
        (finding,) = found
        assert finding.pid == note["kernel"].pid
        assert finding.by_default
        age(path)
        (result,) = fix(workspace, ids=[finding.id])
        assert result.outcome == "terminated"
        assert "connection file was removed" in result.reason
        assert not census.left_after(note.values(), 2)
        assert not os.path.exists(path)
        assert scan(workspace) == {}


def test_a_real_ipykernel_that_hangs_is_found(workspace: Workspace) -> None:
    with Owner(workspace, provisioner="local-provisioner") as owner:
        about = owner.start("python", "python")
        owner.execute("python", "1")
        busy = workspace.notes / "busy"
        hold = "import ctypes; open({!r}, 'w').close(); ctypes.PyDLL(None).sleep(600)"
        owner.submit("python", hold.format(str(busy)))
        kernel = census.find(about["pid"])
        census.wait_until(busy.exists, 30, "the cell runs")
        owner.die()
        try:
            (finding,) = scan(workspace)["stray_kernel"]
            assert finding.pid == kernel.pid
            assert "ipykernel's launcher" in finding.proofs[0]
            (result,) = fix(workspace)
            assert result.outcome in ("terminated", "killed")
            assert not census.left_after([kernel], 2)
        finally:
            census.end([kernel])
    Path(about["file"]).unlink()


def test_a_young_file_of_an_ended_stray_waits(workspace: Workspace) -> None:
    with stock(workspace, "plain") as (owner, _, path):
        owner.die()
        fix(workspace)
        assert os.path.exists(path), "it is not stale yet"
        age(path)
        assert [one.path for one in scan(workspace)["stale_file"]] == [path]
        fix(workspace)
        assert not os.path.exists(path)


ADOPTED = """
import ctypes, json, os, sys, time
sys.path.insert(0, sys.argv[2])
from support import census, fence
from support.owner import Owner
from support.workspace import Workspace
import jupyter_ownedkernels.doctor.unjournaled as rules
from jupyter_ownedkernels import doctor
from jupyter_ownedkernels.doctor.cleaning import clean, result_of
rules.MIN_AGE = 0.0
if sys.argv[1] == "subreaper":
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
made = Workspace()
made.mini("plain", "children")
scope = fence.scope_of(made)
with Owner(made, provisioner="local-provisioner") as owner:
    owner.start("plain", "plain")
    note = made.note("plain")
    before = [one.kind for one in doctor.scan(scope).findings]
    owner.die()
    findings = doctor.scan(scope).findings
    results = clean(dry_run=False, scope=scope)
    left = census.left_after(note.values(), 5)
parent = census.line(note["kernel"].pid)
made.close()
while sys.argv[1] == "subreaper":
    try:
        os.wait()
    except ChildProcessError:
        break
print(json.dumps([before, [one.kind for one in findings], [one.outcome for one in results],
                  len(left)]))
"""


@pytest.mark.parametrize("adopter", ["subreaper", "pid 1"])
def test_whoever_adopts_orphans_here(adopter: str) -> None:
    """A doctor below a subreaper finds out what that is."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ADOPTED, adopter, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    before, found, outcomes, left = json.loads(done.stdout.splitlines()[-1])
    assert before == []
    assert found == ["stray_kernel"]
    assert outcomes == ["terminated"]
    assert left == 0


# -- files that something uses ---------------------------------------------------------


@pytest.mark.parametrize("spec", ["gil", "stopped", "deaf", "plain"])
@pytest.mark.parametrize("provisioner", ["owned-provisioner", "local-provisioner"])
def test_the_old_file_of_a_living_kernel_is_never_removed(
    workspace: Workspace, spec: str, provisioner: str
) -> None:
    """Busy in C, stopped, not listening yet, another program's: its mtime says nothing."""
    with Owner(workspace, provisioner=provisioner) as owner:
        owner.set(ready_timeout=0.2)
        about = owner.start(spec, spec)
        note = workspace.note(spec)
        workspace.forget_note(spec)
        keep_all_files(workspace, [about["file"]])
        assert census.runs(note["kernel"])
    if provisioner == "local-provisioner":
        census.end(workspace.processes())
    assert not census.left_after(workspace.processes(), 10)
    Path(about["file"]).unlink(missing_ok=True)


def keep_all_files(workspace: Workspace, paths: list[str]) -> None:
    """However old they are made, nothing removes them."""
    ids = []
    for path in paths:
        age(path)
        ids.append(file_id(path, files.FileIdentity.from_stat(os.stat(path))))
    assert "stale_file" not in scan(workspace)
    fix(workspace)
    fix(workspace, kinds=["stale_file"])
    assert {one.outcome for one in fix(workspace, ids=ids)} <= {"kept", "already-gone"}
    recover(workspace)
    assert all(os.path.exists(path) for path in paths)


def test_nor_that_of_a_forked_kernel_without_the_path_in_its_arguments(
    workspace: Workspace,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        path = leftover(
            workspace, "kernel-forked.json", json.dumps({"ip": "127.0.0.1", "hb_port": port})
        )
        keep_all_files(workspace, [str(path)])
    assert [one.path for one in scan(workspace)["stale_file"]] == [str(path)]
    fix(workspace)
    assert not path.exists()


def test_nor_one_that_a_process_has_open(workspace: Workspace) -> None:
    path = leftover(workspace, "kernel-open.json")
    with path.open():
        keep_all_files(workspace, [str(path)])
    fix(workspace)
    assert not path.exists()


def test_nor_one_of_another_host(workspace: Workspace) -> None:
    path = leftover(workspace, "kernel-foreign.json")
    me = identity.of_self()
    elsewhere = replace(me, world=replace(me.world, host="elsewhere"), start_ticks=1)
    owner = replace(journal.this_owner("foreign"), identity=elsewhere, host="elsewhere")
    one = Journal(owner, [str(workspace.runtime / "ownedkernels")])
    one.launching(LaunchRecord("l", "k", 1, "python3", str(path)))
    assert one.path is not None
    journal_path = Path(one.path)
    # Closed without the lock and without forgetting: as another host sees it.
    keep_all_files(workspace, [str(path)])
    (finding,) = scan(workspace)["foreign"]
    assert finding.proofs[0] == "recorded on the host elsewhere"
    (result,) = fix(workspace, ids=[finding.id])
    assert result.outcome == "refused"
    one.close()
    journal_path.unlink(missing_ok=True)
    path.unlink()


# -- files that nothing uses -----------------------------------------------------------


def test_thousands_of_stale_files(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        about = owner.start("plain", "plain")
        workspace.note("plain")
        workspace.forget_note("plain")
        age(about["file"])
        for number in range(2000):
            leftover(workspace, f"kernel-{number}.json")
        report = doctor.scan(scope_of(workspace))
        assert report.counts == {"stale_file": 2000}
        assert report.duration_ms < 10_000
        assert {one.outcome for one in fix(workspace)} == {"removed"}
        assert workspace.connection_files() == [os.path.basename(about["file"])]


def test_files_of_dead_servers(workspace: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sleeper = subprocess.Popen(["sleep", "600"])
        gone = subprocess.Popen(["true"])
        gone.wait()
        try:
            for pid, there in ((sleeper.pid, 1), (gone.pid, 1), (os.getpid(), port)):
                text = json.dumps({"pid": pid, "port": there, "token": "s3cret"})
                leftover(workspace, f"jpserver-{pid}.json", text)
                leftover(workspace, f"jpserver-{pid}-open.html", "<a href='?token=s3cret'>")
            found = scan(workspace)["stale_file"]
            assert len(found) == 4
            assert "s3cret" not in str([one.to_json() for one in found])
            fix(workspace)
            left = sorted(path.name for path in workspace.runtime.glob("jpserver-*"))
            # This process listens on the port that its file names.
            assert left == [f"jpserver-{os.getpid()}-open.html", f"jpserver-{os.getpid()}.json"]
        finally:
            sleeper.kill()
            sleeper.wait()
            for path in workspace.runtime.glob("jpserver-*"):
                path.unlink()


@pytest.mark.parametrize("name", ["kernel-a b.json", "kernel-a\nb.json", "kernel-é'\".json"])
def test_names_with_odd_characters(workspace: Workspace, name: str) -> None:
    path = leftover(workspace, name)
    assert [one.path for one in scan(workspace)["stale_file"]] == [str(path)]
    reader = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", "-f", str(path)]
    )
    try:
        census.wait_until(lambda: len(census.command(reader.pid)) > 3, 5, "exec")
        assert "stale_file" not in scan(workspace)
    finally:
        reader.kill()
        reader.wait()
    fix(workspace)
    assert not path.exists()


def test_links_folders_and_other_names_are_left_alone(workspace: Workspace, tmp_path: Path) -> None:
    target = tmp_path / "thesis.json"
    target.write_text("{}")
    age(target)
    link = workspace.runtime / "kernel-link.json"
    link.symlink_to(target)
    os.utime(link, (OLD, OLD), follow_symlinks=False)
    folder = workspace.runtime / "kernel-folder.json"
    folder.mkdir()
    age(folder)
    other = leftover(workspace, "notebook-1.json")
    below = workspace.runtime / "sub"
    below.mkdir()
    inside = below / "kernel-1.json"
    inside.write_text("{}")
    age(inside)
    try:
        assert "stale_file" not in scan(workspace)
        fix(workspace)
        assert all(path.exists() for path in (target, link, folder, other, inside))
    finally:
        link.unlink()
        folder.rmdir()
        other.unlink()
        inside.unlink()
        below.rmdir()


def test_a_runtime_folder_that_is_a_link(workspace: Workspace, tmp_path: Path) -> None:
    link = tmp_path / "runtime"
    link.symlink_to(workspace.runtime)
    path = leftover(workspace, "kernel-x.json")
    scope = replace(scope_of(workspace), runtime_dirs=(str(link),))
    (finding,) = doctor.scan(scope).findings
    assert finding.path == str(link / "kernel-x.json")
    (result,) = clean([finding.id], dry_run=False, scope=scope)
    assert result.outcome == "removed"
    assert not path.exists()


def test_a_file_that_was_written_again_is_another_one(workspace: Workspace) -> None:
    path = leftover(workspace, "kernel-again.json")
    (finding,) = scan(workspace)["stale_file"]
    path.write_text("{}")
    (result,) = fix(workspace, ids=[finding.id])
    assert result.outcome in ("already-gone", "identity-changed", "kept")
    assert path.exists()
    path.unlink()


@pytest.mark.parametrize(
    ("reason", "outcome", "words"),
    [
        ("uninterruptible", "kept", "uninterruptible state (D)"),
        ("timeout", "kept", "did not end in time"),
        ("not-permitted", "not-permitted", "may not be signalled"),
    ],
)
def test_what_could_not_be_ended_is_told_with_the_reason(
    reason: str, outcome: str, words: str
) -> None:
    table = Table()
    table.add(100)
    table.add(101, ppid=100, session=100)
    entries = table.processes[100], table.processes[101]
    item = of_process("stray_kernel", entries[0], table.snapshot(), [], with_it=entries)
    first, second = (target_of(entry) for entry in entries)
    stuck = Ended(frozenset({second}), frozenset(), (Leftover(first, 100, reason),))
    told = result_of(item, {first, second}, stuck)
    assert told.outcome == outcome
    assert words in told.reason
    half = Ended(frozenset({first}), frozenset({first}), (Leftover(second, 100, reason),))
    told = result_of(item, {first, second}, half)
    assert told.outcome == "killed"
    assert "process 101 is left: it " in told.reason


def test_an_id_that_no_scan_has_given(workspace: Workspace) -> None:
    for text in ("", "1", "p1", "../../etc/passwd", "p1-1-zzzz", "x" * 1000):
        (result,) = fix(workspace, ids=[text])
        assert (result.outcome, result.kind) == ("refused", None)
    (result,) = fix(workspace, ids=["p1-1-000000000000"])
    assert result.outcome == "identity-changed"
    (result,) = fix(workspace, ids=["p999999999-1-000000000000"])
    assert result.outcome == "already-gone"
    (result,) = fix(workspace, ids=["f-000000000000"])
    assert result.outcome == "already-gone"


# -- several at once -------------------------------------------------------------------


def rounds(soak: bool, few: int = 2) -> range:
    return range(100 if soak else few)


def together(*works: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


def test_two_doctors_at_once(workspace: Workspace, soak: bool) -> None:
    for _ in rounds(soak):
        notes = crashed(workspace, "core", "plain")
        stale = leftover(workspace, "kernel-stale.json")
        together(*[lambda: fix(workspace)] * 3)
        fix(workspace)
        assert not census.left_after([p for n in notes.values() for p in n.values()], 5)
        assert not stale.exists()
        assert scan(workspace) == {}


def test_a_doctor_beside_a_recovery(workspace: Workspace, soak: bool) -> None:
    for _ in rounds(soak):
        note = crashed(workspace, "core")["core"]
        together(lambda: fix(workspace), lambda: recover(workspace), lambda: fix(workspace))
        recover(workspace)
        assert not census.left_after(note.values(), 5)
        assert scan(workspace) == {}


def test_a_doctor_beside_starts_restarts_and_shutdowns(workspace: Workspace, soak: bool) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def keep_fixing() -> None:
        while not stop.is_set():
            try:
                fix(workspace, kinds=ALL)
            except BaseException as error:
                failed.append(error)
                return

    doctors = [threading.Thread(target=keep_fixing) for _ in range(2)]
    for one in doctors:
        one.start()
    try:
        for _ in rounds(soak, few=3):
            with Owner(workspace) as owner:
                owner.start("plain", "plain")
                first = workspace.note("plain")
                workspace.forget_note("plain")
                assert census.runs(first["kernel"])
                owner.run("managers['plain'].restart_kernel(now=True)")
                second = workspace.note("plain")
                workspace.forget_note("plain")
                assert all(census.runs(proc) for proc in second.values())
                assert owner.is_alive("plain")
                owner.shut_down("plain", now=True)
    finally:
        stop.set()
        for one in doctors:
            one.join()
    assert failed == []
    assert scan(workspace) == {}
