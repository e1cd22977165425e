"""The processes of a kernel as they are shown, looked at and handled, with real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import census
from support.owner import Owner
from support.tables import Table
from support.workspace import SHELL, Workspace

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.identity import Identity
from jupyter_ownedkernels.models import LaunchRecord
from jupyter_ownedkernels.processes import look as processes_look
from jupyter_ownedkernels.processes.orphans import left_of, orphans, retire_orphans
from jupyter_ownedkernels.processes.snapshot import names_in
from jupyter_ownedkernels.processes.tree import RecordedProcess, tree, usage
from jupyter_ownedkernels.runtime import procfs

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    made.mini("core", "children", wrapper=SHELL)
    made.mini("detached", "detached")
    yield made
    left = census.describe(census.left_after(made.processes(), 10))
    made.close()
    assert not left, f"left behind: {left}"


# -- the tree --------------------------------------------------------------------------


def test_the_tree_of_a_kernel(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        about = owner.start("core", "core")
        note = workspace.note("core")
        workspace.forget_note("core")
        (keeper,) = owner.keepers()
        found = tree(keeper.pid, about["file"])
        by_pid = {one.pid: one for one in found}
        wrapper = by_pid[about["pid"]]
        kernel, child = by_pid[note["kernel"].pid], by_pid[note["child"].pid]
        assert (wrapper.depth, kernel.depth, child.depth) == (0, 1, 2)
        assert [one.pid for one in found][:2] == [wrapper.pid, kernel.pid]
        assert len(found) == 5
        assert wrapper.ppid == keeper.pid
        assert child.cmdline == ("sleep", "3600")
        assert about["file"] in kernel.cmdline
        assert not any(one.detached for one in found)
        assert abs(kernel.started_at - psutil.Process(kernel.pid).create_time()) < 1.5
        # One look at all processes serves many kernels.
        again = tree(keeper.pid, about["file"], table=procfs.table()[0])
        assert [(one.pid, one.depth) for one in again] == [(one.pid, one.depth) for one in found]


def test_its_figures_are_those_of_psutil(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        about = owner.start("core", "core")
        workspace.note("core")
        workspace.forget_note("core")
        (keeper,) = owner.keepers()
        found = tree(keeper.pid, about["file"])
        for one in found:
            process = psutil.Process(one.pid)
            assert one.rss_bytes == pytest.approx(process.memory_info().rss, rel=0.05)
            times = process.cpu_times()
            assert one.cpu_s == pytest.approx(times.user + times.system, rel=0.05, abs=0.05)
            assert one.name == process.name()
        together = usage(found, pss=True)
        assert together.process_count == 5
        assert together.detached_count == 0
        assert together.rss_bytes == sum(one.rss_bytes for one in found)
        assert together.pss_bytes is not None
        assert 0 < together.pss_bytes <= together.rss_bytes
        assert usage(found).pss_bytes is None


def test_detached_processes_are_told_apart(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        about = owner.start("detached", "detached")
        note = workspace.note("detached")
        workspace.forget_note("detached")
        (keeper,) = owner.keepers()
        found = {one.pid: one.detached for one in tree(keeper.pid, about["file"])}
        assert found.pop(note["kernel"].pid) is False
        assert found == {note[n].pid: True for n in ("new_session", "nohup", "daemon", "bare")}
        assert usage(tree(keeper.pid, about["file"])).detached_count == 4
        owner.shut_down("detached", now=True)
        census.end([note[n] for n in ("new_session", "nohup", "daemon", "bare")])


def test_a_tree_whose_top_is_gone_is_empty() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert tree(gone.pid) == []


# -- orphans of a lost keeper ------------------------------------------------------------


def test_a_living_owner_ends_what_a_lost_keeper_left(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        owner.start("core", "core")
        note = workspace.note("core")
        workspace.forget_note("core")
        (keeper,) = owner.keepers()
        spawner = owner.spawner()
        os.kill(spawner.pid, signal.SIGSTOP)
        census.end([keeper])
        assert not census.left_after(note.values(), 10)
        os.kill(spawner.pid, signal.SIGCONT)
        assert census.runs(owner.proc)


def marked_sleeper(launch_id: str, **popen: object) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "JUPYTER_OWNEDKERNELS_LAUNCH": launch_id}
    return subprocess.Popen(["sleep", "600"], env=environ, **popen)  # type: ignore[call-overload,no-any-return]


def test_retire_orphans_tells_what_was_ended_and_what_is_left() -> None:
    launch_id = f"test-{os.getpid()}"
    core = marked_sleeper(launch_id, start_new_session=True)
    outside = marked_sleeper(launch_id, start_new_session=True)
    try:
        wait_for_exec(core, outside)
        record = LaunchRecord(launch_id, "k", 1, "python3", "", sessions=(core.pid,))
        table = processes_look.take()
        assert [entry.pid for entry in orphans(record, "", table)] == [core.pid]
        reaper = threading.Thread(target=core.wait)
        reaper.start()
        ended, survivors = retire_orphans(record, "", grace=1.0, timeout=5.0)
        reaper.join(5)
        assert core.returncode == -signal.SIGTERM
        assert {target.pid for target in ended.ended} == {core.pid}
        assert ended.killed == frozenset()
        assert [(one.pid, one.reason) for one in survivors] == [(outside.pid, "detached")]
        assert outside.poll() is None
    finally:
        for one in (core, outside):
            one.kill()
            one.wait()


def wait_for_exec(*processes: subprocess.Popen[bytes]) -> None:
    for one in processes:
        census.wait_until(lambda: census.command(one.pid)[:1] == ["sleep"], 5, "exec")  # noqa: B023


def test_what_was_proven_once_stays_proven() -> None:
    """A child with a clean environment, whose parent ends before it, is ended all the same."""
    launch_id = f"test-{os.getpid()}"
    script = "env -i sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' & wait"
    parent = subprocess.Popen(
        ["sh", "-c", script],
        env={**os.environ, "JUPYTER_OWNEDKERNELS_LAUNCH": launch_id},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert parent.stdout is not None
    child = census.find(int(parent.stdout.readline()))
    try:
        record = LaunchRecord(launch_id, "k", 1, "python3", "", sessions=(parent.pid,))
        reaper = threading.Thread(target=parent.wait)
        reaper.start()
        ended, survivors = retire_orphans(record, "", grace=0.3, timeout=5.0)
        reaper.join(5)
        assert not census.left_after([child], 2)
        assert child.pid in {target.pid for target in ended.killed}
        assert survivors == ()
    finally:
        parent.stdout.close()
        census.end([child])


def test_without_environments_only_recorded_processes_are_looked_for() -> None:
    table = Table()
    kernel = table.add(100)
    table.add(101, session=100, launch="l")
    record = LaunchRecord("l", "k", 1, "", "", process=kernel, sessions=(100,))
    left = left_of(record, "o", table.snapshot(), marks=False)
    assert [entry.pid for entry in left.core] == [100]
    assert table.reader.asked == []


def test_a_session_that_is_not_on_record_is_remembered_from_look_to_look() -> None:
    record = LaunchRecord("l", "k", 1, "", "/r/kernel-1.json")
    learned: set[int] = set()
    first, second = Table(), Table()
    first.add(100, launch="l", argv=("kernel", "/r/kernel-1.json"))
    second.add(101, session=100, launch="l")
    second.add(102, session=102, launch="l")
    assert [one.pid for one in orphans(record, "", first.snapshot(), learned=learned)] == [100]
    left = left_of(record, "", second.snapshot(), learned=learned)
    assert [one.pid for one in left.core] == [101]
    assert [one.pid for one in left.detached] == [102]
    assert left_of(record, "", second.snapshot()).core == ()


def test_two_hundred_ends_do_not_take_two_hundred_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    take = processes_look.take

    def look() -> object:
        looks.append(time.monotonic())
        return take()

    monkeypatch.setattr(processes_look, "take", look)
    launch_id = f"test-{os.getpid()}"
    many = [marked_sleeper(launch_id, start_new_session=True) for _ in range(50)]
    try:
        wait_for_exec(*many)
        record = LaunchRecord(launch_id, "k", 1, "", "", sessions=tuple(p.pid for p in many))
        reaper = threading.Thread(target=lambda: [one.wait() for one in many])
        reaper.start()
        ended, _ = retire_orphans(record, "", grace=2.0, timeout=10.0)
        reaper.join(10)
        assert len(ended.ended) == 50
        assert len(looks) < 25
    finally:
        for one in many:
            one.kill()
            one.wait()


# -- a recorded process --------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "600"])
    yield made
    made.kill()
    made.wait()


def handle_on(process: subprocess.Popen[bytes]) -> RecordedProcess:
    recorded = identity.of_pid(process.pid)
    assert recorded is not None
    return RecordedProcess(recorded)


def test_a_recorded_process_is_polled_signalled_and_waited_for(
    sleeper: subprocess.Popen[bytes],
) -> None:
    handle = handle_on(sleeper)
    assert handle.pid == sleeper.pid
    assert handle.poll() is None
    assert handle.returncode is None
    with pytest.raises(subprocess.TimeoutExpired):
        handle.wait(0.05)
    handle.terminate()
    assert handle.wait(5) == RecordedProcess.UNKNOWN_STATUS
    assert handle.poll() == handle.returncode == RecordedProcess.UNKNOWN_STATUS
    assert sleeper.wait() == -signal.SIGTERM
    handle.kill()  # Nothing happens, as with Popen.


def test_it_is_waited_for_without_a_pidfd_too(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = handle_on(sleeper)
    monkeypatch.delattr(os, "pidfd_open")
    threading.Timer(0.1, sleeper.kill).start()
    assert handle.wait(5) == RecordedProcess.UNKNOWN_STATUS


@pytest.mark.parametrize("off", [-1, 1])
def test_another_process_of_that_number_is_left_alone(
    sleeper: subprocess.Popen[bytes], off: int
) -> None:
    recorded = handle_on(sleeper).identity
    handle = RecordedProcess(replace(recorded, start_ticks=recorded.start_ticks + off))
    handle.kill()
    assert handle.poll() == RecordedProcess.UNKNOWN_STATUS
    assert handle.wait(1) == RecordedProcess.UNKNOWN_STATUS
    time.sleep(0.05)
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"boot_id": "another"}, {"pid_ns": 1}, {"boot_id": ""}]
)
def test_what_cannot_be_proven_is_neither_dead_nor_signalled(
    sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    recorded = handle_on(sleeper).identity
    handle = RecordedProcess(Identity(replace(recorded.world, **change), *_numbers(recorded)))  # type: ignore[arg-type]
    assert handle.poll() is None
    with pytest.raises(PermissionError):
        handle.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        handle.wait(0.05)
    assert sleeper.poll() is None


def _numbers(recorded: Identity) -> tuple[int, int]:
    return recorded.pid, recorded.start_ticks


# -- snapshots -----------------------------------------------------------------------------


def test_a_snapshot_of_this_machine(sleeper: subprocess.Popen[bytes]) -> None:
    wait_for_exec(sleeper)
    table = processes_look.take()
    assert sleeper.pid in table.own
    assert table.argv(sleeper.pid) == ("sleep", "600")
    assert os.getpid() in table.own_line
    assert os.getppid() in table.own_line
    assert sleeper.pid not in table.own_line
    assert sleeper.pid in table.children[os.getpid()]
    assert table.is_own(sleeper.pid)
    assert table.marks(sleeper.pid) == {}, "nothing else of an environment is looked at"
    assert 0 <= table.age(table.processes[sleeper.pid]) < 60


def test_the_last_look_at_a_process_is_younger_than_its_journal() -> None:
    """Whatever is in a snapshot was there when it was taken; a later process is not in it."""
    before = processes_look.take()
    late = subprocess.Popen(["sleep", "600"])
    try:
        assert late.pid not in before.processes
        recorded = identity.of_pid(late.pid)
        assert recorded is not None
        assert before.running(recorded) is None
    finally:
        late.kill()
        late.wait()


def test_which_names_an_argument_may_mean() -> None:
    assert names_in("/run/user/1/kernel-1.json") == {"kernel-1.json"}
    assert "kernel-1.json" in (names_in("-f=kernel-1.json") or ())
    shell = "exec python -m x -f '/a b/kernel-1.json' && rm kernel-2.json"
    assert {"kernel-1.json", "kernel-2.json"} <= (names_in(shell) or set())
    assert "kernel-a b.json" in (names_in("x /r/kernel-a b.json y") or ())
    assert names_in("nothing") == set()
    assert names_in("kernel-.json " * 100) is None


@given(
    st.lists(st.text(alphabet="kernl-1 \n'\"=:;/x", max_size=6), max_size=3),
    st.text(alphabet="ab1 \n'=", min_size=1, max_size=6),
)
def test_a_name_is_found_wherever_it_stands(around: list[str], middle: str) -> None:
    name = f"kernel-{middle}.json"
    before = "".join(around)
    names = names_in(f"{before}/{name} {before}") or set()
    assert name in names


def test_a_crowd_of_names_in_one_argument_hides_none() -> None:
    table = Table()
    table.add(100, argv=("x", "kernel-a.json " * 200 + "/r/kernel-wanted.json"))
    snapshot = table.snapshot()
    assert snapshot.mentioned_by("/r/kernel-wanted.json") == {100}
    assert snapshot.mentioned_by("/r/kernel-other.json") == frozenset()


def test_a_name_that_is_no_json_is_looked_for_as_well() -> None:
    table = Table()
    table.add(100, argv=("x", "--conn=/r/connection"))
    assert table.snapshot().mentioned_by("/r/connection") == {100}


@pytest.mark.parametrize(
    ("options", "hidden"),
    [
        ("rw", False),
        ("rw,hidepid=0", False),
        ("rw,hidepid=off", False),
        ("rw,hidepid=2", True),
        ("rw,hidepid=invisible", True),
        ("rw,hidepid=1,gid=424242", True),
        ("rw,subset=pid", True),
    ],
)
def test_mount_options_that_hide_processes(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    hidden: bool,
) -> None:
    path = tmp_path_factory.mktemp("mounts") / "mountinfo"
    path.write_text(
        "21 1 8:1 / / rw - ext4 /dev/sda rw\n"
        f"22 21 0:21 / /proc rw,relatime shared:1 - proc proc {options}\n"
    )
    monkeypatch.setattr(processes_look, "sees_everything", lambda: False)
    assert bool(processes_look.hiding_option(str(path))) is hidden
    # Who may trace every process sees every process.
    monkeypatch.setattr(processes_look, "sees_everything", lambda: True)
    assert bool(processes_look.hiding_option(str(path))) is (options == "rw,subset=pid")


def test_the_adopter_of_orphans_is_found_out() -> None:
    code = (
        "import ctypes, os, sys; from jupyter_ownedkernels.processes import adopter\n"
        "before = adopter.of_this_process()\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "assert adopter.of_this_process() == os.getpid() != before\n"
        "try: os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError: print('reaped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "reaped\n", done.stderr
