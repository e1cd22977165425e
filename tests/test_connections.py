"""Connection files: which may be removed, who uses them, and that no other ever goes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import elsewhere
from support.census import wait_until

from jupyter_ownedkernels import connections
from jupyter_ownedkernels.connections import Answer, FileIdentity, Ports, Removal
from jupyter_ownedkernels.processes import look as processes_look
from jupyter_ownedkernels.runtime import files

INFO = {
    "shell_port": 5001,
    "iopub_port": 5002,
    "stdin_port": 5003,
    "control_port": 5004,
    "hb_port": 5005,
    "ip": "127.0.0.1",
    "key": "planted-s3cret",
    "transport": "tcp",
    "signature_scheme": "hmac-sha256",
    "kernel_name": "python3",
}


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    return folder


def write(path: Path, **changes: object) -> Path:
    path.write_text(json.dumps({**INFO, **changes}))
    return path


def identity(path: Path | str) -> FileIdentity:
    found = connections.identity_of(str(path))
    assert found is not None
    return found


# -- listing ---------------------------------------------------------------------------------


def test_only_files_of_jupyters_names_directly_in_the_folder(runtime: Path) -> None:
    good = ["kernel-1.json", "kernel-two\nlines.json", "kernel- a b .json", "kernel-\udcff.json",
            "kernel-4f.json", "jpserver-12.json", "jpserver-12-open.html"]  # fmt: skip
    bad = ["kernel-.json", "kernel-1.json.bak", "mykernel-1.json", "kernel-1.txt",
           "kernel-1.json\n",
           "nbserver-1.json", "jpserver-x.json", "jpserver-1.json~", "jupyter_cookie_secret",
           ".ownedkernels-1-00"]  # fmt: skip
    for name in good + bad:
        (runtime / name).touch()
    (runtime / "kernel-folder.json").mkdir()
    (runtime / "kernel-link.json").symlink_to(runtime / "kernel-1.json")
    (runtime / "kernel-dangling.json").symlink_to(runtime / "nothing")
    os.mkfifo(runtime / "kernel-fifo.json")
    (runtime / "below").mkdir()
    (runtime / "below" / "kernel-9.json").touch()
    found, unreadable = connections.candidates([str(runtime)])
    assert sorted(one.path for one in found) == sorted(str(runtime / name) for name in good)
    assert unreadable == []
    assert {one.server_pid for one in found if "jpserver" in one.path} == {12}
    assert all(one.server_pid is None for one in found if "kernel-" in one.path)
    assert all(one.file == identity(one.path) and one.uid == os.geteuid() for one in found)


def test_a_folder_that_is_a_link_and_one_given_twice(runtime: Path, tmp_path: Path) -> None:
    write(runtime / "kernel-1.json")
    (tmp_path / "link").symlink_to(runtime)
    found, _ = connections.candidates([str(tmp_path / "link"), str(runtime), str(tmp_path / "no")])
    assert [one.path for one in found] == [str(tmp_path / "link" / "kernel-1.json")]


def test_oldest_first(runtime: Path) -> None:
    for number in (3, 1, 2):
        os.utime(write(runtime / f"kernel-{number}.json"), (number, number))
    found, _ = connections.candidates([str(runtime)])
    assert [one.modified_at for one in found] == [1, 2, 3]


@elsewhere.needs_root
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    found, unreadable = elsewhere.run(
        """
        os.mkdir("/mnt/closed", 0o700)
        become_nobody()
        answer(connections.candidates(["/mnt/closed"]))
        """,
        unshare=["--mount", "--", "sh", "-c", 'mount -t tmpfs none /mnt && exec "$@"', "sh"],
    )
    assert found == []
    assert unreadable == ["/mnt/closed: Permission denied"]


# -- reading ------------------------------------------------------------------------------------


def test_ports_without_the_key(runtime: Path) -> None:
    found = connections.ports_of(str(write(runtime / "kernel-1.json")))
    assert found == Ports("tcp", "127.0.0.1", (5001, 5002, 5003, 5004, 5005))
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 50_000, b'{"ip": "x"}', b'{"shell_port": 1}',
     b'{"shell_port": "5", "ip": "x"}', b'{"shell_port": true, "ip": "x"}',
     b'{"shell_port": 5, "ip": 7}', b'{"shell_port": 5, "ip": "x", "transport": 1}',
     b'{"shell_port": 5, "ip": "x"}' + b" " * 70_000],
)  # fmt: skip
def test_what_tells_no_ports(content: bytes, runtime: Path) -> None:
    path = runtime / "kernel-1.json"
    path.write_bytes(content)
    assert connections.ports_of(str(path)) is None


@given(st.binary(max_size=40))
def test_no_content_raises(content: bytes) -> None:
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    try:
        assert connections.ports_of(f"/proc/self/fd/{reader}") is None  # a pipe, not a file
    finally:
        os.close(reader)


def test_links_and_pipes_are_not_read(runtime: Path) -> None:
    real = write(runtime / "real.json")
    (runtime / "kernel-link.json").symlink_to(real)
    os.mkfifo(runtime / "kernel-fifo.json")
    for name in ("kernel-link.json", "kernel-fifo.json", "none", "."):
        assert connections.ports_of(str(runtime / name)) is None


def test_a_server_without_its_token(runtime: Path) -> None:
    path = runtime / "jpserver-12.json"
    info = {"pid": 12, "port": 8888, "token": "planted-s3cret", "root_dir": "/home/me"}
    path.write_text(json.dumps({**info, "url": "http://x/?token=planted-s3cret"}))
    found = connections.server_of(str(path))
    assert found == (12, 8888)
    assert "s3cret" not in repr(found)
    path.write_text("{}")
    assert connections.server_of(str(path)) is None
    assert connections.server_of(str(runtime / "none")) is None


# -- listeners -----------------------------------------------------------------------------------


def ports_now(port: int, ip: str = "127.0.0.1") -> Ports:
    return Ports("tcp", ip, (0, port))


def asked_now(ports: Ports) -> Answer:
    return connections.has_listener(ports, processes_look.take().listeners)


def test_a_listener_on_any_port_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert asked_now(ports_now(port)) is Answer.YES
        assert asked_now(Ports("tcp", "127.0.0.1", (1, port))) is Answer.YES
        assert asked_now(ports_now(port, "10.99.98.97")) is Answer.YES
    assert asked_now(ports_now(port)) is Answer.NO


def test_an_ipc_listener_is_seen(tmp_path: Path) -> None:
    ports = Ports("ipc", str(tmp_path / "kernel-1-ipc"), (1, 2))
    assert asked_now(ports) is Answer.NO
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{ports.ip}-2")
        assert asked_now(ports) is Answer.NO
        server.listen()
        assert asked_now(ports) is Answer.YES
        elsewhere_seen = Ports("ipc", "kernel-1-ipc", (1, 2))
        assert asked_now(elsewhere_seen) is Answer.YES


@pytest.mark.parametrize(
    "ports",
    [
        None,
        Ports("tcp", "127.0.0.1", ()),
        Ports("tcp", "127.0.0.1", (0, 0)),
        Ports("carrier-pigeon", "127.0.0.1", (5,)),
        Ports("tcp", "10.99.98.97", (5,)),
        Ports("tcp", "2001:db8::1", (5,)),
        Ports("tcp", "another.host", (5,)),
    ],
)
def test_where_it_cannot_be_told(ports: Ports | None) -> None:
    assert connections.has_listener(ports, (set(), set())) is Answer.UNKNOWN


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.0.0.53", "0.0.0.0", "localhost", "::1", "*"])
def test_addresses_of_this_machine(ip: str) -> None:
    assert connections.has_listener(Ports("tcp", ip, (5,)), (set(), set())) is Answer.NO
    assert connections.has_listener(Ports("tcp", ip, (5,)), ({5}, set())) is Answer.YES


# -- users ---------------------------------------------------------------------------------------


def users(path: Path) -> connections.Users:
    return connections.users_of(str(path), processes_look.take())


@pytest.mark.parametrize("name", ["kernel-1f3a.json", "kernel- a b.json", "kernel-two\nlines.json"])
@pytest.mark.parametrize("form", ["{}", "-f={}", "sh -c 'python -f \"{}\"'"])
def test_a_process_that_names_the_file_uses_it(name: str, form: str, runtime: Path) -> None:
    path = write(runtime / name)
    assert users(path).pids == ()
    script = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, form.format(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert users(path)[:2] == (Answer.YES, (child.pid,))
    assert users(path).pids == ()


def test_a_process_that_has_the_file_open_uses_it(runtime: Path) -> None:
    path = write(runtime / "kernel-open.json")
    script = "import sys; print(flush=True); sys.stdin.read()"
    with (
        path.open() as stream,
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[stream.fileno()],
        ) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        stream.close()
        assert users(path).answer is Answer.YES
        child.kill()
        child.wait()
    wait_until(lambda: users(path).answer is not Answer.YES, 10, "nobody has it open")


@dataclass
class Table:
    mentions: frozenset[int] = frozenset()
    incomplete: str = ""
    open_names: tuple[frozenset[str], str] = field(default=(frozenset(), ""))

    def mentioned_by(self, path: str) -> frozenset[int]:
        return self.mentions


def test_three_answers_about_users() -> None:
    def ask(*, unheard: bool = False, **known: object) -> connections.Users:
        table = Table(**known)  # type: ignore[arg-type]
        return connections.users_of("/run/kernel-1.json", table, unheard=unheard)

    assert ask().answer is Answer.NO
    assert ask(incomplete="hidden").answer is Answer.UNKNOWN
    assert ask(open_names=(frozenset(), "blind")) == (Answer.UNKNOWN, (), "blind")
    assert ask(open_names=(frozenset({"kernel-1.json"}), "blind")).answer is Answer.YES
    assert ask(open_names=(frozenset(), "blind"), unheard=True) == (Answer.NO, (), "blind")
    assert ask(incomplete="hidden", unheard=True).answer is Answer.UNKNOWN
    assert ask(mentions=frozenset({7, 3}), incomplete="x")[:2] == (Answer.YES, (3, 7))


# -- removing ------------------------------------------------------------------------------------


def remove(path: Path | str, expected: FileIdentity, *where: Path, recorded: bool = False) -> str:
    dirs = [str(one) for one in where]
    return connections.remove(
        str(path), expected=expected, runtime_dirs=dirs, recorded=recorded
    ).outcome


@pytest.mark.parametrize(
    "name",
    ["kernel-1.json", "kernel-two\nlines.json", "kernel- a b.json", "kernel-\udcff.json",
     "jpserver-5.json", "jpserver-5-open.html"],
)  # fmt: skip
def test_the_file_that_was_meant_goes_and_nothing_else(name: str, runtime: Path) -> None:
    path, other = write(runtime / name), write(runtime / "kernel-other.json")
    assert remove(path, identity(path), runtime) == "removed"
    assert os.listdir(runtime) == [other.name]
    assert remove(path, identity(other), runtime) == "already-gone"
    assert os.listdir(runtime) == [other.name]


def test_the_folder_may_be_a_link(runtime: Path, tmp_path: Path) -> None:
    path = write(runtime / "kernel-1.json")
    (tmp_path / "link").symlink_to(runtime)
    through = tmp_path / "link" / path.name
    assert remove(through, identity(path), runtime) == "removed"


def test_a_file_that_was_written_again_stays(runtime: Path) -> None:
    """A restart keeps the name, and often even the inode."""
    path = write(runtime / "kernel-1.json")
    expected = identity(path)
    with path.open("r+") as stream:
        stream.write("{")
    os.utime(path, ns=(expected.mtime_ns + 1, expected.mtime_ns + 1))
    assert remove(path, expected, runtime) == "identity-changed"
    assert path.exists()


def test_a_file_swapped_for_another_stays(runtime: Path) -> None:
    path, other = write(runtime / "kernel-1.json"), write(runtime / "new")
    expected = identity(path)
    os.utime(other, ns=(expected.mtime_ns, expected.mtime_ns))
    os.replace(other, path)
    assert remove(path, expected, runtime) == "identity-changed"
    assert path.exists()


@pytest.mark.parametrize("swap", ["file", "link", "folder", "gone"])
def test_a_swap_at_the_very_last_moment_removes_nothing(
    swap: str, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(runtime / "kernel-1.json")
    precious = write(runtime / "precious")
    expected = identity(path)
    real = os.rename

    def swapped(source: str, target: str, **dirs: int) -> None:
        monkeypatch.setattr(os, "rename", real)
        path.unlink()
        if swap == "file":
            shutil.copy(precious, path)
        elif swap == "link":
            path.symlink_to(precious)
        elif swap == "folder":
            path.mkdir()
            (path / "inside").touch()
        real(source, target, **dirs)

    monkeypatch.setattr(os, "rename", swapped)
    outcome = remove(path, expected, runtime)
    left = sorted(one.name for one in runtime.iterdir())
    if swap == "gone":
        assert (outcome, left) == ("already-gone", ["precious"])
        return
    assert (outcome, left) == ("identity-changed", ["kernel-1.json", "precious"])
    if swap == "file":
        assert path.read_text() == precious.read_text()
    elif swap == "link":
        assert path.is_symlink()
    else:
        assert (path / "inside").exists()


def test_what_came_under_the_name_meanwhile_is_not_overwritten(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two new files, one after the other: the newest is what the name stands for."""
    path = write(runtime / "kernel-1.json")
    expected = identity(path)
    real = os.rename

    def swapped(source: str, target: str, **dirs: int) -> None:
        monkeypatch.setattr(os, "rename", real)
        path.unlink()
        path.write_text("second")
        real(source, target, **dirs)
        path.write_text("third")

    monkeypatch.setattr(os, "rename", swapped)
    assert remove(path, expected, runtime) == "identity-changed"
    assert path.read_text() == "third"
    assert os.listdir(runtime) == ["kernel-1.json"]


def test_a_file_that_is_replaced_all_the_time_is_never_lost(runtime: Path) -> None:
    """A restart writes a new file under the name while a doctor removes the old one."""
    path = write(runtime / "kernel-1.json")
    stop = threading.Event()
    outcomes: set[str] = set()

    def doctor() -> None:
        while not stop.is_set():
            found = connections.identity_of(str(path))
            if found is not None:
                outcomes.add(remove(path, found, runtime))

    thread = threading.Thread(target=doctor)
    thread.start()
    for number in range(300):
        new = runtime / "new"
        new.write_text(str(number))
        meant = identity(new)
        os.replace(new, path)
        seen = connections.identity_of(str(path))
        assert seen in (meant, None)
    stop.set()
    thread.join(30)
    assert outcomes <= {"removed", "already-gone", "identity-changed"}
    assert {one.name for one in runtime.iterdir()} <= {"kernel-1.json"}


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "socket"])
def test_only_regular_files_go(kind: str, runtime: Path) -> None:
    path, real = runtime / "kernel-1.json", write(runtime / "real.json")
    server = socket.socket(socket.AF_UNIX)
    if kind == "link":
        path.symlink_to(real)
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        server.bind(str(path))
    server.close()
    assert remove(path, identity(path), runtime) == "refused"
    assert remove(path, identity(path), recorded=True) == "refused"
    assert files.remove(str(path)).outcome == "refused"
    assert os.path.lexists(path)
    assert real.exists()


def test_files_elsewhere_or_of_other_names_are_refused(runtime: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "kernel-1.json")
    below = runtime / "below"
    below.mkdir()
    deeper = write(below / "kernel-1.json")
    odd = write(runtime / "notes.json")
    for path in (outside, deeper, odd):
        assert remove(path, identity(path), runtime) == "refused"
        assert path.exists()
    inside = f"{runtime}/below/../../kernel-1.json"
    assert remove(inside, identity(outside), runtime) == "refused"
    assert remove(outside, identity(outside)) == "refused"
    os.chdir(runtime)
    assert remove("kernel-1.json", identity(outside), runtime, recorded=True) == "refused"
    assert outside.exists()


def test_a_recorded_file_may_lie_elsewhere_but_must_look_like_one(tmp_path: Path) -> None:
    """KernelManager without an application puts it into the temporary folder."""
    real = write(tmp_path / "tmpab12cd.json")
    precious = tmp_path / "precious.json"
    precious.write_text(json.dumps({"my": "data"}))
    empty = tmp_path / "tmpempty.json"
    empty.touch()
    assert remove(precious, identity(precious), recorded=True) == "refused"
    assert precious.exists()
    assert remove(real, identity(real), recorded=True) == "removed"
    assert remove(empty, identity(empty), recorded=True) == "removed"
    assert remove(real, identity(precious), recorded=True) == "already-gone"


@elsewhere.needs_root
def test_the_file_of_another_user_stays(runtime: Path) -> None:
    path = write(runtime / "kernel-1.json")
    os.chown(path, elsewhere.NOBODY, elsewhere.NOBODY)
    assert remove(path, identity(path), runtime) == "not-permitted"
    assert path.exists()


@elsewhere.needs_root
@pytest.mark.parametrize("why", ["read-only", "not mine", "closed"])
def test_what_may_not_be_removed_is_said(why: str) -> None:
    outcome, left = elsewhere.run(
        """
        why, info = sys.argv[1:]
        mount("-t", "tmpfs", "-o", "mode=755", "none", "/mnt")
        path = "/mnt/kernel-1.json"
        with open(path, "w") as stream:
            stream.write(info)
        os.chown(path, 65534, 65534)
        expected = connections.identity_of(path)
        if why == "read-only":
            os.chown("/mnt", 65534, 65534)
            mount("-o", "remount,ro", "/mnt")
        if why == "closed":
            os.chmod("/mnt", 0o700)
        pid = os.fork()
        if pid == 0:
            become_nobody()
            answer([connections.remove(path, expected=expected, runtime_dirs=["/mnt"],
                                       recorded=True).outcome, True])
            os._exit(sys.stdout.flush() or 0)
        os.waitpid(pid, 0)
        assert os.listdir("/mnt") == ["kernel-1.json"]
        """,
        why,
        json.dumps(INFO),
        unshare=["--mount"],
    )
    assert (outcome, left) == ("not-permitted", True)


def test_without_directory_descriptors(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HAS_DIR_FD", False)
    path = write(runtime / "kernel-1.json")
    link = runtime / "kernel-2.json"
    link.symlink_to(path)
    other = write(runtime / "kernel-3.json")
    assert remove(path, identity(other), runtime) == "identity-changed"
    assert remove(link, identity(link), runtime) == "refused"
    assert remove(path, identity(path), runtime) == "removed"
    assert remove(path, identity(other), runtime) == "already-gone"


def test_a_keeper_removes_its_own_by_path(runtime: Path) -> None:
    path = write(runtime / "any name at all")
    assert files.remove(str(path)) == Removal("removed", "")
    assert files.remove(str(path)).outcome == "already-gone"
    assert files.remove(str(runtime) + "/").outcome == "refused"
    assert files.remove("/").outcome == "refused"
    assert runtime.exists()


def test_the_keepers_part_runs_in_a_bare_interpreter(runtime: Path) -> None:
    path = write(runtime / "kernel-1.json")
    script = "import sys; sys.path.insert(0, sys.argv[1]); import files; "
    script += "print(files.remove(sys.argv[2]).outcome)"
    folder = str(Path(files.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", script, folder, str(path)]
    assert subprocess.check_output(command, text=True) == "removed\n"
