"""A removal that a crash has cut short leaves a file under a hidden name: it goes later."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import census
from support.fence import look_of, scope_of
from support.owner import Owner
from support.tables import NOW, UID, Table, launch, view
from support.workspace import Workspace
from test_doctor_files import FILE, FOLDER, judge, stale

from jupyter_ownedkernels import connections, doctor, recovery
from jupyter_ownedkernels.connections import Candidate, FileIdentity
from jupyter_ownedkernels.doctor.cleaning import clean
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord
from jupyter_ownedkernels.runtime import files

pytestmark = pytest.mark.timeout(120)

KILLED_BEFORE_UNLINK = """
import os, sys
from jupyter_ownedkernels.runtime import files
os.unlink = lambda *_, **__: os.kill(os.getpid(), 9)
# As it was loaded already: the module looks the function up when it is called.
files.remove(sys.argv[1])
"""
ASIDE = f"{FOLDER}/.ownedkernels-12-0123456789abcdef-kernel-1.json"


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    made.mini("plain")
    yield made
    made.close()


def cut_short(path: Path) -> Path:
    """Have the file removed by a process that is killed on the way; what it leaves."""
    before = set(path.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", KILLED_BEFORE_UNLINK, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    (left,) = set(path.parent.iterdir()) - before
    assert left.name.startswith(".ownedkernels-")
    return left


def unused(path: Path) -> Path:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path.write_text(f'{{"ip": "127.0.0.1", "shell_port": {port}, "key": "s3cret"}}')
    return path


@pytest.mark.parametrize(
    "name", ["kernel-1.json", f"kernel-{'x' * 240}.json", "kernel-\udcff.json"]
)
def test_it_is_found_and_removed(workspace: Workspace, name: str) -> None:
    left = cut_short(unused(workspace.runtime / name))
    assert doctor.scan(scope_of(workspace)).findings == (), "it is young"
    scope = scope_of(workspace, stale_file_age=0.0)
    (finding,) = doctor.scan(scope).findings
    assert (finding.kind, finding.path) == ("stale_file", str(left))
    (result,) = clean(dry_run=False, scope=scope)
    assert (result.outcome, result.reason) == ("removed", "")
    assert not list(workspace.runtime.glob(".*"))


def test_cut_short_twice_it_keeps_its_name(tmp_path: Path) -> None:
    left = cut_short(cut_short(unused(tmp_path / "kernel-1.json")))
    assert files.name_before(left.name) == "kernel-1.json"


def test_recovery_takes_it_along(workspace: Workspace) -> None:
    path = unused(workspace.runtime / "kernel-1.json")
    folder = str(workspace.runtime / "ownedkernels")
    code = (
        "import sys\nfrom jupyter_ownedkernels.journal import journal\n"
        "from jupyter_ownedkernels.models import LaunchRecord\n"
        "one = journal.Journal(journal.this_owner('dead'), [sys.argv[1]])\n"
        "one.launching(LaunchRecord('l', 'k', 1, 'python3', sys.argv[2]))\n"
    )
    subprocess.run([sys.executable, "-c", code, folder, str(path)], check=True)
    left = cut_short(path)
    done = recovery.recover([folder], [str(workspace.runtime)], look=look_of(workspace))
    assert done.files == (str(left),)
    assert not left.exists()
    assert journal.find([folder]) == []


def test_that_of_a_living_kernel_stays(workspace: Workspace) -> None:
    """It was renamed by mistake, and the remover had no time to put it back."""
    with Owner(workspace) as owner:
        path = Path(owner.start("plain", "plain")["file"])
        workspace.note("plain")
        left = cut_short(path)
        scope = scope_of(workspace, stale_file_age=0.0)
        assert doctor.scan(scope).findings == ()
        assert clean(dry_run=False, scope=scope) == []
        assert left.exists()
        owner.shut_down("plain", now=True)
        owner.leave()
    census.wait_until(lambda: not workspace.processes(), 20, "all end")
    clean(dry_run=False, scope=scope)
    assert not left.exists()


# -- each of the doubts, without processes -----------------------------------------------


def aside(age: float = 7200.0) -> Candidate:
    made = NOW - age
    return Candidate(ASIDE, FileIdentity(1, 2, int(made * 1e9)), UID, made, None, FILE)


def test_it_is_judged_by_the_name_that_it_had() -> None:
    table = Table()
    assert stale(judge(table, aside())) == [ASIDE]
    assert stale(judge(table, aside(age=3599))) == []
    table.add(100, argv=("kernel", FILE))
    assert stale(judge(table, aside())) == []


@pytest.mark.parametrize("path", [FILE, ASIDE])
def test_one_that_is_open_stays(path: str) -> None:
    table = Table()
    table.add(100)
    table.reader.files[100] = [path]
    assert stale(judge(table, aside())) == []


def test_one_that_a_living_owner_has_on_record_stays() -> None:
    table = Table()
    owner = table.add(50)
    assert stale(judge(table, aside(), views=[view(owner, launch(1, connection_file=FILE))])) == []


def test_only_files_of_jupyters_names_are_taken(tmp_path: Path) -> None:
    bare = ".ownedkernels-12-0123456789abcdef"
    good = [f"{bare}-kernel-1.json", f"{bare}-jpserver-12.json", bare]
    bad = [f"{bare}-notes.txt", f"{bare}x", ".ownedkernels-12-kernel-1.json", f"{bare}-"]
    for name in good + bad:
        (tmp_path / name).touch()
    (tmp_path / f"{bare}-kernel-link.json").symlink_to(tmp_path / bare)
    found, _ = connections.candidates([str(tmp_path)])
    assert sorted(os.path.basename(one.path) for one in found) == sorted(good)
    (server,) = [one for one in found if one.server_pid]
    assert (server.server_pid, server.named) == (12, str(tmp_path / "jpserver-12.json"))
    for name in bad:
        path = str(tmp_path / name)
        expected = connections.identity_of(path)
        assert expected is not None
        outcome = connections.remove(path, expected=expected, runtime_dirs=[str(tmp_path)])
        assert outcome.outcome == "refused"


def test_a_journal_of_this_process_protects_it(workspace: Workspace) -> None:
    path = unused(workspace.runtime / "kernel-1.json")
    one = Journal(journal.this_owner("living"), [str(workspace.runtime / "ownedkernels")])
    one.launching(LaunchRecord("l", "k", 1, "python3", str(path)))
    left = cut_short(path)
    assert doctor.scan(scope_of(workspace, stale_file_age=0.0)).findings == ()
    one.ended("l", None)
    one.close()
    assert left.exists()
