"""Reading /proc against real processes with every oddity that they may have."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import elsewhere
from support.census import wait_until

from jupyter_ownedkernels.runtime import procfs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP) as child:
        yield child
        child.kill()


def zombie() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


@given(name=st.binary(max_size=15), numbers=st.lists(st.integers(0, 2**40), min_size=49))
def test_no_name_breaks_the_columns(name: bytes, numbers: list[int]) -> None:
    rest = b" ".join(b"%d" % number for number in numbers)
    entry = procfs.parse_stat(b"4711 (" + name + b") R " + rest + b"\n")
    assert entry.pid == 4711
    assert entry.state == "R"
    assert (entry.ppid, entry.pgrp, entry.session) == tuple(numbers[:3])
    assert entry.threads == numbers[16]
    assert entry.start_ticks == numbers[18]
    assert entry.rss_pages == numbers[20]
    assert entry.cpu_ticks == numbers[10] + numbers[11]


@pytest.mark.parametrize("name", ["a) R 1 (b", "two\nlines", "S 1 1 1)", "\udcff\udcfe"])
def test_a_process_may_choose_any_name(name: str) -> None:
    script = "import ctypes, os, sys; ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]));"
    script += "print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        entry = procfs.stat(child.pid)
        assert entry is not None
        assert entry.ppid == os.getpid()
        assert entry.name == os.fsencode(name).decode("utf-8", "replace")


def test_own_entry_agrees_with_the_system() -> None:
    entry = procfs.stat(os.getpid())
    assert entry is not None
    assert entry.alive
    assert (entry.ppid, entry.pgrp, entry.session) == (os.getppid(), os.getpgrp(), os.getsid(0))


def test_three_answers(sleeper: subprocess.Popen[bytes]) -> None:
    assert procfs.stat(sleeper.pid) is not None
    assert procfs.cmdline(sleeper.pid) == tuple(SLEEP)
    assert procfs.exists(sleeper.pid) is True
    sleeper.kill()
    sleeper.wait()
    assert procfs.stat(sleeper.pid) is None
    assert procfs.cmdline(sleeper.pid) is None
    assert procfs.environ(sleeper.pid) is None
    assert procfs.executable(sleeper.pid) is None
    assert procfs.uid(sleeper.pid) is None
    assert procfs.children(sleeper.pid) is None
    assert procfs.socket_inodes(sleeper.pid) == frozenset()
    assert procfs.exists(sleeper.pid) is False


def test_a_number_beyond_all_pids_proves_nothing() -> None:
    assert procfs.exists(2**70) is None


def test_a_zombie_is_not_alive_and_has_no_arguments() -> None:
    pid = zombie()
    try:
        entry = procfs.stat(pid)
        assert entry is not None
        assert not entry.alive
        assert procfs.cmdline(pid) == ()
        assert procfs.exists(pid) is True
    finally:
        os.waitpid(pid, 0)


def test_a_process_lives_on_when_its_main_thread_has_left() -> None:
    script = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()

        def left() -> procfs.Stat | None:
            entry = procfs.stat(child.pid)
            return entry if entry is not None and entry.state == "Z" else None

        entry = wait_until(left, 10, "the main thread leaves")
        assert entry is not None
        assert entry.alive
        child.kill()


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"1 (x) R 1 2", b"1 (x"])
def test_what_is_no_stat_line_is_an_error_not_a_death(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "_read", lambda path: raw)
    with pytest.raises(OSError, match="not a stat line"):
        procfs.stat(1)
    monkeypatch.setattr(procfs, "pids", lambda: iter([1]))
    assert procfs.table() == ({}, {1})


def test_arguments_keep_their_borders() -> None:
    odd = ["", "two\nlines", "a b", "\udcff", ""]
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", *odd]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert procfs.cmdline(child.pid) == tuple(command)


def test_environment() -> None:
    env = {"WITH": "a=b\nc", "EMPTY": "", "ODD": "\udcff"}
    with subprocess.Popen(["/bin/cat"], env=env, stdin=subprocess.PIPE) as child:
        wait_until(lambda: procfs.environ(child.pid) == env, 10, "exec is done")


def test_descendants_by_lists_and_by_table_agree() -> None:
    script = "sh -c 'sleep 600 & sleep 600 & wait' & sleep 600 & wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as shell:
        try:
            wait_until(lambda: len(procfs.descendants(shell.pid)) == 4, 10, "all are there")
            found = procfs.descendants(shell.pid)
            assert found.keys() == procfs.descendants(shell.pid, procfs.table()[0]).keys()
            assert {entry.session for entry in found.values()} == {shell.pid}
            assert procfs.children(shell.pid) is not None
            assert set(procfs.children(shell.pid) or ()) < found.keys()
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_listeners_are_listed_and_other_sockets_are_not(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket() as bound,
    ):
        path = str(tmp_path / "a socket")
        unix.bind(path)
        bound.bind(("127.0.0.1", 0))
        assert path not in procfs.unix_listeners()
        unix.listen()
        with socket.create_connection(four.getsockname()) as client:
            tcp = procfs.tcp_listeners()
            assert {four.getsockname()[1], six.getsockname()[1]} <= tcp.keys()
            assert bound.getsockname()[1] not in tcp
            assert client.getsockname()[1] not in tcp
            assert path in procfs.unix_listeners()
            assert tcp[four.getsockname()[1]] == {os.fstat(four.fileno()).st_ino}
            assert os.fstat(client.fileno()).st_ino in procfs.socket_inodes(os.getpid())


def test_this_world_is_told() -> None:
    assert len(procfs.boot_id()) == 36
    assert procfs.pid_namespace() > 0
    assert procfs.pid_namespace() == procfs.pid_namespace(os.getpid())
    assert procfs.is_own_view()
    assert procfs.host() == os.uname().nodename


@elsewhere.needs_root
@pytest.mark.parametrize(
    ("unshare", "own"),
    [
        ((), True),
        (("--pid", "--fork", "--mount-proc"), True),
        (("--pid", "--fork"), False),
        (("--time", "--boottime", "1000", "--fork"), False),
        (("--time", "--boottime", "0", "--fork"), True),
    ],
)
def test_a_view_of_other_numbers_or_times_is_noticed(unshare: tuple[str, ...], own: bool) -> None:
    assert elsewhere.run("answer(procfs.is_own_view())", unshare=unshare) is own


@elsewhere.needs_root
@pytest.mark.parametrize("level", ["1", "2"])
def test_hidden_processes_are_never_taken_for_gone(level: str) -> None:
    hidden, raised, exists = elsewhere.run(
        """
        mount("-t", "proc", "-o", "hidepid=" + sys.argv[1], "none", "/proc")
        become_nobody()
        try:
            raised = procfs.stat(1)
        except PermissionError:
            raised = "PermissionError"
        answer([1 in procfs.table()[1], raised, procfs.exists(1)])
        """,
        level,
        unshare=["--mount"],
    )
    assert exists is True
    # Level 2 hides the entry as if it were not there; only exists() tells the truth.
    assert (hidden, raised) == ((True, "PermissionError") if level == "1" else (False, None))


@elsewhere.needs_root
def test_user_of_a_process_that_must_not_be_dumped() -> None:
    secret, user = elsewhere.run(
        """
        import ctypes
        become_nobody()
        ctypes.CDLL(None).prctl(4, 0)
        answer([os.stat(f"/proc/{os.getpid()}/environ").st_uid, procfs.uid(os.getpid())])
        """
    )
    assert secret == 0
    assert user == elsewhere.NOBODY


def test_user_of_a_process() -> None:
    assert procfs.uid(os.getpid()) == os.geteuid()
