"""The Unix sockets of kernels with transport ipc: they go with their connection file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import census, elsewhere
from support.fence import look_of, scope_of
from support.owner import Owner
from support.tables import Table, gone, launch, view
from support.workspace import Workspace
from test_doctor_files import FILE, FOLDER, file, judge, stale

from jupyter_ownedkernels import connections, doctor, recovery
from jupyter_ownedkernels.doctor.cleaning import clean
from jupyter_ownedkernels.runtime import files, procfs, sockets

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc"),
]

STOPPED = census.Line(census.Proc(0, 0), "", "T", 0, 0, 0, 1)
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
START = """
manager = new_manager(name, 'plain')
manager.transport = 'ipc'
manager.ip = os.path.splitext(manager.connection_file)[0] + '-ipc'
manager.start_kernel()
result = about(name)
"""


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    made.mini("plain")
    yield made
    left = census.describe(census.left_after(made.processes(), 10))
    made.close()
    assert not left, f"left behind: {left}"


@pytest.fixture
def runtime(workspace: Workspace) -> Path:
    """A folder with a short path, as Unix sockets need it."""
    return workspace.runtime


def started(owner: Owner, name: str = "plain") -> tuple[Path, list[Path]]:
    """Start a kernel with transport ipc: its connection file and its sockets."""
    path = Path(owner.run(START, name=name)["file"])
    owner.workspace.note("plain")
    owner.workspace.forget_note("plain")
    # A start waits for what clients need; the heartbeat comes last.
    census.wait_until(lambda: len(beside(path)) == 5, 20, "all sockets are bound")
    return path, beside(path)


def beside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}-ipc-*"))


def left_by(path: Path) -> Path:
    """A socket that was listened on until its process ended."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
    return path


def ended_kernel(runtime: Path, name: str = "kernel-1", **changes: object) -> tuple[Path, Path]:
    """A connection file, and one of the sockets that it names."""
    path = runtime / f"{name}.json"
    ports = {port: number for number, port in enumerate(PORTS, 1)}
    content = {"transport": "ipc", "ip": str(runtime / f"{name}-ipc"), **ports, **changes}
    path.write_text(json.dumps(content))
    return path, left_by(runtime / f"{name}-ipc-2")


def remove(path: Path) -> tuple[str, str]:
    return tuple(sockets.remove_file(str(path), connections.identity_of(str(path))))


def recover(workspace: Workspace) -> recovery.Recovery:
    folder = workspace.runtime
    return recovery.recover([str(folder / "ownedkernels")], [str(folder)], look=look_of(workspace))


# -- who removes them ----------------------------------------------------------------------


def test_they_go_with_the_owner(workspace: Workspace) -> None:
    other = left_by(workspace.runtime / "another-1")
    with Owner(workspace) as living, Owner(workspace) as owner:
        spared, of_the_living = started(living)
        path, of_the_dead = started(owner)
        keepers = owner.keepers()
        owner.die()
        assert not census.left_after(keepers, 10)
        assert not path.exists()
        assert not any(one.exists() for one in of_the_dead)
        assert spared.exists()
        assert beside(spared) == of_the_living
        assert other.exists()
        living.shut_down("plain", now=True)


def test_a_real_kernel_leaves_none(workspace: Workspace) -> None:
    workspace.python("python")
    with Owner(workspace) as owner:
        path = Path(owner.run(START.replace("'plain'", "'python'"), name="real")["file"])
        assert owner.execute("real", "print(6 * 7)") == ["42\n"]
        assert len(beside(path)) == 5
        keepers = owner.keepers()
        owner.die()
        assert not census.left_after(keepers, 10)
        assert not path.exists()
        assert beside(path) == []


def test_an_owner_that_leaves_in_order_removes_them(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        path, _ = started(owner)
        owner.leave()
    census.wait_until(lambda: not workspace.processes(), 20, "all end")
    assert not path.exists()
    assert beside(path) == []


def killed_with_its_helpers(workspace: Workspace) -> Path:
    with Owner(workspace) as owner:
        path, _ = started(owner)
        helpers = {owner.spawner(), *owner.keepers()}
        for one in helpers:
            os.kill(one.pid, signal.SIGSTOP)
            census.wait_until(lambda: (census.line(one.pid) or STOPPED).state == "T", 5, "it stops")  # noqa: B023
        owner.die()
        census.end(helpers)
    census.wait_until(lambda: not workspace.processes(), 20, "the kernel ends with its keeper")
    assert path.exists()
    assert len(beside(path)) == 5
    return path


def test_recovery_removes_them(workspace: Workspace) -> None:
    path = killed_with_its_helpers(workspace)
    done = recover(workspace)
    assert done.files == (str(path),)
    assert beside(path) == []


def test_the_doctor_tells_of_them_and_removes_them(workspace: Workspace) -> None:
    path = killed_with_its_helpers(workspace)
    (finding,) = doctor.scan(scope_of(workspace)).findings
    assert (finding.kind, finding.path) == ("stale_file", str(path))
    assert "with it: 5 sockets" in finding.proofs
    (result,) = clean(dry_run=False, scope=scope_of(workspace))
    assert (result.outcome, result.reason) == ("removed", "with 5 sockets")
    assert not path.exists()
    assert beside(path) == []


# -- what proves that they may go ----------------------------------------------------------


def test_a_file_goes_with_its_socket(runtime: Path) -> None:
    path, one = ended_kernel(runtime)
    assert remove(path) == ("removed", "with 1 socket")
    assert not path.exists()
    assert not one.exists()


@pytest.mark.parametrize("listens", [True, False])
def test_all_stay_while_one_is_bound(workspace: Workspace, listens: bool) -> None:
    """A kernel that starts binds first and listens then."""
    runtime, scope = workspace.runtime, scope_of(workspace, stale_file_age=0.0)
    path, one = ended_kernel(runtime)
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(runtime / "kernel-1-ipc-5"))
        if listens:
            used.listen()
        assert remove(path)[0] == "refused"
        assert doctor.scan(scope).findings == ()
        assert len(beside(path)) == 2
        assert path.exists()
    assert len(doctor.scan(scope).findings) == 1
    assert remove(path) == ("removed", "with 2 sockets")
    assert not one.exists()


@elsewhere.needs_root
def test_all_stay_while_one_is_listened_on_in_another_network_namespace(runtime: Path) -> None:
    path, _ = ended_kernel(runtime)
    listen = (
        "import socket, sys; one = socket.socket(socket.AF_UNIX); one.bind(sys.argv[1]);"
        "one.listen(); print(flush=True); sys.stdin.read()"
    )
    used = str(runtime / "kernel-1-ipc-5")
    with subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", listen, used],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert used not in (procfs.unix_names() or ())
        assert remove(path)[0] == "refused"
        assert len(beside(path)) == 2


@elsewhere.needs_root
def test_none_goes_where_the_system_does_not_list_them(runtime: Path) -> None:
    path, one = ended_kernel(runtime)
    orphan = left_by(runtime / "kernel-2-ipc-1")
    outcomes = elsewhere.run(
        """
        mount("-t", "tmpfs", "none", "/proc")
        from jupyter_ownedkernels.runtime import sockets
        path, orphan = sys.argv[1:]
        answer([
            sockets.remove(orphan, files.identity_of(orphan)).outcome,
            sockets.remove_file(path, files.identity_of(path)).outcome,
        ])
        """,
        path,
        orphan,
        unshare=["--mount"],
    )
    assert outcomes == ["refused", "removed"]
    assert one.exists()
    assert orphan.exists()


def test_a_name_with_the_end_of_a_line_hides_nothing(runtime: Path) -> None:
    """What a program of anybody's binds must not keep others from being looked at."""
    path = str(runtime / "bound")
    with socket.socket(socket.AF_UNIX) as odd, socket.socket(socket.AF_UNIX) as plain:
        odd.bind(str(runtime / "odd\nb c d e f g h i"))
        plain.bind(path)
        assert path in (procfs.unix_names() or ())
        assert sockets.are_used([path])
    assert not sockets.are_used([path])


def test_in_doubt_it_is_used(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(runtime / "left")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    assert not sockets.are_used([path])

    def unreadable() -> set[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(procfs, "unix_names", unreadable)
    assert sockets.are_used([path])


def test_a_path_may_be_longer_than_an_address(runtime: Path) -> None:
    folder = runtime / ("long" * 30)
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"/proc/self/fd/{fd}/left")
        assert sockets.are_used([str(folder / "left")])
    os.close(fd)
    assert not sockets.are_used([str(folder / "left")])


@pytest.mark.parametrize(
    "changes",
    [
        {"transport": "tcp"},
        {"ip": "kernel-1-ipc"},
        {"ip": "/somewhere/else/kernel-1-ipc"},
        {"ip": "/tmp\0/kernel-1-ipc"},
        {"iopub_port": 3},
        {"iopub_port": "2"},
        {"iopub_port": True},
        {"iopub_port": -2},
    ],
)
def test_what_the_file_does_not_name_stays(runtime: Path, changes: dict[str, object]) -> None:
    path, one = ended_kernel(runtime, **changes)
    assert remove(path) == ("removed", "")
    assert one.exists()


def test_one_named_from_a_folder_that_is_not_told_stays(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the kernel's, which may have been another than ours."""
    monkeypatch.chdir(runtime)
    path, one = ended_kernel(runtime, ip="./kernel-1-ipc")
    assert remove(path) == ("removed", "")
    assert one.exists()


def test_a_socket_in_another_folder_stays(runtime: Path) -> None:
    (runtime / "else").mkdir()
    path, _ = ended_kernel(runtime, ip=str(runtime / "else" / "kernel-1-ipc"))
    far = left_by(runtime / "else" / "kernel-1-ipc-2")
    assert remove(path) == ("removed", "")
    assert far.exists()


def test_the_folder_may_go_by_two_paths(runtime: Path) -> None:
    (runtime.parent / "link").symlink_to(runtime)
    path, one = ended_kernel(runtime, ip=str(runtime.parent / "link" / "kernel-1-ipc"))
    assert remove(path) == ("removed", "with 1 socket")
    assert not one.exists()


KINDS: dict[str, Callable[[Path], Any]] = {
    "file": lambda path: path.write_text("mine"),
    "folder": lambda path: path.mkdir(),
    "link": lambda path: path.symlink_to(path.parent / "kernel-9-ipc-1"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_sockets_go(runtime: Path, kind: str) -> None:
    path, _ = ended_kernel(runtime)
    left_by(runtime / "kernel-9-ipc-1")
    other = runtime / "kernel-1-ipc-3"
    KINDS[kind](other)
    assert remove(path) == ("removed", "with 1 socket")
    assert os.path.lexists(other)
    assert (runtime / "kernel-9-ipc-1").exists()


def test_a_file_is_not_removed_as_a_socket(runtime: Path) -> None:
    path, one = ended_kernel(runtime)
    assert files.remove(str(path), socket=True).outcome == "refused"
    assert files.remove(str(one)).outcome == "refused"
    assert files.remove(str(one), socket=True).removed
    assert path.exists()


@elsewhere.needs_root
def test_only_sockets_of_this_user_go(runtime: Path) -> None:
    path, one = ended_kernel(runtime)
    shutil.chown(one, elsewhere.NOBODY)
    assert remove(path) == ("removed", "")
    assert one.exists()


def test_those_of_a_file_that_was_written_again_stay(runtime: Path) -> None:
    path, one = ended_kernel(runtime)
    expected = connections.identity_of(str(path))
    os.utime(path, (1, 1))
    assert sockets.remove_file(str(path), expected).outcome == "identity-changed"
    assert one.exists()


def test_a_socket_that_is_bound_at_the_last_moment_stays(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, one = ended_kernel(runtime)
    real = sockets.are_used
    with socket.socket(socket.AF_UNIX) as late:

        def then_bound(paths: Any) -> bool:
            answer = real(paths)
            one.unlink()
            late.bind(str(one))
            return answer

        monkeypatch.setattr(sockets, "are_used", then_bound)
        assert remove(path)[0] == "identity-changed"
        assert one.exists()
        assert path.exists()


# -- those whose connection file is gone ---------------------------------------------------


def test_the_doctor_removes_those_without_a_file(workspace: Workspace) -> None:
    path, one = ended_kernel(workspace.runtime)
    other = left_by(workspace.runtime / "another-ipc-1")
    path.unlink()
    assert doctor.scan(scope_of(workspace)).findings == (), "it is young"
    scope = scope_of(workspace, stale_file_age=0.0)
    (finding,) = doctor.scan(scope).findings
    assert (finding.kind, finding.path, finding.by_default) == ("stale_file", str(one), True)
    (result,) = clean(dry_run=False, scope=scope)
    assert (result.outcome, result.reason) == ("removed", "")
    assert not one.exists()
    assert other.exists()


def test_one_whose_removal_was_cut_short_goes_later(workspace: Workspace) -> None:
    path, one = ended_kernel(workspace.runtime)
    path.unlink()
    aside = one.with_name(f".ownedkernels-12-0123456789abcdef-{one.name}")
    one.rename(aside)
    scope = scope_of(workspace, stale_file_age=0.0)
    assert [finding.path for finding in doctor.scan(scope).findings] == [str(aside)]
    assert [result.outcome for result in clean(dry_run=False, scope=scope)] == ["removed"]
    assert not aside.exists()


def test_one_that_is_bound_again_is_no_finding(workspace: Workspace) -> None:
    path, one = ended_kernel(workspace.runtime)
    path.unlink()
    one.unlink()
    scope = scope_of(workspace, stale_file_age=0.0)
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(one))
        used.listen()
        assert doctor.scan(scope).findings == ()
        expected = connections.identity_of(str(one))
        assert expected is not None
        removal = connections.remove(
            str(one), expected=expected, runtime_dirs=[str(workspace.runtime)]
        )
        assert removal.outcome == "refused"
    assert len(doctor.scan(scope).findings) == 1


def test_one_in_no_runtime_folder_is_not_removed(runtime: Path) -> None:
    _, one = ended_kernel(runtime)
    expected = connections.identity_of(str(one))
    assert expected is not None
    for recorded in (True, False):
        removal = connections.remove(str(one), expected=expected, recorded=recorded)
        assert removal.outcome == "refused"
    assert one.exists()


def orphan(age: float = 7200.0) -> connections.Candidate:
    return file(f"{FOLDER}/kernel-1-ipc-2", age, named=FILE, is_socket=True)


def test_each_doubt_keeps_it() -> None:
    def found(table: Table | None = None, age: float = 7200.0, **known: Any) -> list[str | None]:
        given = {"in_use": lambda paths: False, **known}
        return stale(judge(table or Table(), orphan(age), **given))

    assert found() == [orphan().path]
    assert found(age=3599) == []
    assert found(in_use=lambda paths: True) == []
    assert found(why_shared=lambda folder: "others write there") == []
    named = Table()
    named.add(100, argv=("kernel", FILE))
    assert found(named) == []
    owned = Table()
    owner = owned.add(50)
    assert found(owned, views=[view(owner, launch(1, connection_file=FILE))]) == []
    assert found(age=5, views=[view(gone(50), launch(1, connection_file=FILE))]) == [orphan().path]
