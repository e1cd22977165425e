"""Whatever goes wrong with a warm start, the kernel starts all the same."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import threads
from warm_kernels import Kennel, until

from jupyter_ownedkernels.errors import WarmLost
from jupyter_ownedkernels.launching import warm as launcher_warm
from jupyter_ownedkernels.runtime.warm import gate, template


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(tmp_path: Path, clock: Clock) -> Iterator[Kennel]:
    told: list[tuple[str, str]] = []
    made = Kennel(
        tmp_path, clock=clock, on_disabled=lambda python, reason: told.append((python, reason))
    )
    made.told = told  # type: ignore[attr-defined]
    yield made
    made.close()


def package(kennel: Kennel, name: str, source: str) -> None:
    """A module that every kernel of this kennel can import."""
    folder = kennel.folder / "packages"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    kennel.environment["PYTHONPATH"] = str(folder)


def test_before_the_template_is_ready_the_launch_is_left_to_exec(kennel: Kennel) -> None:
    assert kennel.forked() is None
    assert kennel.states() == ["starting"]


def test_off_means_no_process_at_all(tmp_path: Path) -> None:
    kennel = Kennel(tmp_path, enabled=False)
    kennel.pool.prepare([*kennel.argv, "x"], kennel.environment, "x")
    assert kennel.forked() is None
    assert kennel.pool.to_json() == []
    kennel.close()


def test_an_interpreter_without_ipykernel_is_switched_off_with_its_reason(
    timed: Kennel, clock: Clock
) -> None:
    timed.argv[1:1] = ["-S"]
    entry = timed.warm_up()
    assert entry["state"] == "off"
    assert "ModuleNotFoundError" in entry["reason"]
    assert timed.told == [(sys.executable, entry["reason"])]  # type: ignore[attr-defined]
    assert timed.forked() is None
    clock.now += launcher_warm.RETRY_AFTER - 1
    assert timed.forked() is None
    assert timed.states() == ["off"]
    clock.now += 2
    assert timed.forked() is None
    assert timed.states() == ["starting"]


def test_where_no_thread_can_be_had_kernels_are_executed(
    timed: Kennel, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.refuse(monkeypatch, "ownedkernels-warm")
    for state in ("failed", "failed", "off"):
        assert timed.forked() is None
        assert timed.states() == [state]
    monkeypatch.undo()
    clock.now += launcher_warm.RETRY_AFTER
    assert timed.warm_up()["state"] == "ready"


def test_a_module_that_is_not_built_on_ipykernel_is_never_run_or_imported(kennel: Kennel) -> None:
    trace = kennel.folder / "trace"
    package(kennel, "stranger", f"open({str(trace)!r}, 'w')")
    kennel.argv = [sys.executable, "-m", "stranger", "-f"]
    entry = kennel.warm_up()
    assert entry["state"] == "off"
    assert "not seen to be built on ipykernel" in entry["reason"]
    assert not trace.exists()


def test_a_kernel_built_on_ipykernel_is_forked(kennel: Kennel) -> None:
    source = (
        "from ipykernel.kernelapp import IPKernelApp\n"
        "from ipykernel.ipkernel import IPythonKernel\n"
        "class Mine(IPythonKernel):\n"
        "    banner = 'mine'\n"
        "if __name__ == '__main__':\n"
        "    IPKernelApp.launch_instance(kernel_class=Mine)\n"
    )
    package(kennel, "my_kernel", source)
    kennel.argv = [sys.executable, "-m", "my_kernel", "-f"]
    assert kennel.warm_up()["state"] == "ready"
    kernel = kennel.start("fork")
    assert kernel.value("type(get_ipython().kernel).__name__") == "Mine"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
         "2 threads"),
        ("import zmq; kept = zmq.Context().socket(zmq.PUB)", "3 threads"),
        ("import asyncio; loop = asyncio.new_event_loop()", "anon_inode:[eventpoll]"),
        ("import socket; kept = socket.socket()", "socket:"),
        ("device = open('/dev/full')", "/dev/full"),
        ("import tempfile; kept = tempfile.TemporaryFile()", "open"),
    ],
)  # fmt: skip
def test_a_preloaded_module_that_makes_forks_unsound_is_left_out(
    tmp_path: Path, source: str, reason: str
) -> None:
    kennel = Kennel(tmp_path, preload=["unsound"])
    package(kennel, "unsound", source)
    try:
        entry = kennel.warm_up()
        assert entry["state"] == "ready"
        assert entry["preload"] == []
        assert reason in entry["reason"]
        assert kennel.start("fork").value("1 + 1") == 2
    finally:
        kennel.close()


def test_a_template_that_becomes_unsound_later_refuses_with_the_reason(kennel: Kennel) -> None:
    source = (
        "import os\n"
        "forks, kept = [], []\n"
        "def after():\n"
        "    forks.append(1)\n"
        "    if len(forks) == 2:\n"
        "        kept.append(open('/dev/full'))\n"
        "os.register_at_fork(after_in_parent=after)\n"
    )
    package(kennel, "treacherous", source)
    kennel.pool.preload = ("treacherous",)
    assert kennel.warm_up()["state"] == "ready"
    assert kennel.forked() is not None
    assert kennel.forked() is None
    entry = kennel.pool.to_json()[0]
    assert (entry["state"], entry["failures"]) == ("failed", 1)
    assert "/dev/full" in entry["reason"]


def test_three_failures_in_a_row_switch_it_off_for_a_while(timed: Kennel, clock: Clock) -> None:
    for failures in (1, 2, 3):
        assert timed.warm_up()["state"] == "ready"
        slot = next(iter(timed.pool._slots.values()))
        assert slot.process is not None
        slot.process._control.shutdown(socket.SHUT_RDWR)
        assert timed.forked() is None
        assert timed.pool.to_json()[0]["failures"] == failures
    assert timed.states() == ["off"]
    assert len(timed.told) == 1  # type: ignore[attr-defined]
    assert timed.forked() is None
    clock.now += launcher_warm.RETRY_AFTER
    assert timed.warm_up()["state"] == "ready"
    assert timed.forked() is not None
    assert timed.pool.to_json()[0]["failures"] == 0


def test_a_template_that_was_killed_is_replaced_and_its_kernels_live_on(kennel: Kennel) -> None:
    kennel.warm_up()
    kernel = kennel.start("fork")
    os.kill(kennel.pool.to_json()[0]["pid"], signal.SIGKILL)
    until(lambda: not next(iter(kennel.pool._slots.values())).process.alive, "its end")  # type: ignore[union-attr]
    assert kennel.forked() is None
    assert kennel.warm_up()["state"] == "ready"
    assert kennel.start("fork").value("1 + 1") == 2
    assert kernel.value("2 + 2") == 4
    kernel.launch.retire(1.0)
    assert kernel.launch.retired.result(30) == ()


def pidfds(pid: int) -> int:
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/{pid}/fd/{name}") == "anon_inode:[pidfd]"
    return found


def test_a_template_forks_while_it_ends_what_a_dead_keeper_left(kennel: Kennel) -> None:
    """It holds what is to end until that has ended; the next keeper has nothing of it."""
    kennel.pool.standby.count = 0
    kennel.warm_up()
    template = kennel.pool.to_json()[0]["pid"]
    assert pidfds(template) == 1, "the owner's alone"
    kernel = kennel.start("fork", grace=60.0)
    left = kernel.run(
        "import subprocess\n"
        "deaf = \"trap '' TERM; echo; exec sleep 3600\"\n"
        "child = subprocess.Popen(['sh', '-c', deaf], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid)"
    )
    os.kill(kernel.launch.started.result(0).keeper_pid, signal.SIGKILL)
    until(lambda: pidfds(template) > 1, "that the spawner ends what is left")
    try:
        launch = kennel.forked()
        entry = kennel.pool.to_json()[0]
        assert (entry["state"], entry["failures"], entry["pid"]) == ("ready", 0, template)
        assert launch is not None
        keeper = launch.started.result(0).keeper_pid
        # It sends one of its kernel first, and closes it.
        until(lambda: pidfds(keeper) == 1, "a keeper with its owner's pidfd alone")
        assert pidfds(template) > 1, "too late to show anything"
    finally:
        os.kill(int(left), signal.SIGKILL)
    until(lambda: pidfds(template) == 1, "the end of what was left")


def test_a_template_that_does_not_answer_costs_the_connection_file(
    kennel: Kennel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_warm, "_ANSWER_TIMEOUT", 0.3)
    kennel.pool.standby.count = 0  # It would live on for the sake of that one.
    kennel.warm_up()
    pid = kennel.pool.to_json()[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    request = kennel.request()
    try:
        with pytest.raises(WarmLost):
            kennel.forked(request)
    finally:
        os.kill(pid, signal.SIGCONT)
    # It wakes up, finds the lease ended, and starts nothing.
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the template's end")
    assert not holds(request.connection_file)
    assert kennel.start("exec").value("1 + 1") == 2


def holds(path: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                if path.encode() in stream.read():
                    found.append(int(name))
        except (OSError, ValueError):
            continue
    return found


def test_a_failure_at_the_very_end_of_a_fork_is_no_start(kennel: Kennel) -> None:
    """Up to where the kernel's own code begins: that one can be executed all the same."""
    package(kennel, "spoils", "import ipykernel.kernelapp as k; del k.IPKernelApp.init_kernel")
    kennel.pool.preload = ("spoils",)
    assert kennel.warm_up()["state"] == "ready"
    request = kennel.request()
    assert kennel.forked(request) is None
    assert kennel.pool.to_json()[-1]["failures"] == 0
    assert kennel.kernel(kennel.executed(request)).value("1 + 1") == 2


def test_a_missing_folder_is_the_kernels_own_error(kennel: Kennel) -> None:
    kennel.warm_up()
    request = kennel.request(cwd=str(kennel.folder / "none"))
    assert kennel.forked(request) is None
    with pytest.raises(FileNotFoundError):
        kennel.executed(request)
    assert kennel.pool.to_json()[0]["failures"] == 0
    assert kennel.start("fork").value("1 + 1") == 2


def test_an_upgraded_package_replaces_the_template(kennel: Kennel) -> None:
    package(kennel, "mine", "version = 1")
    kennel.pool.preload = ("mine",)
    kennel.warm_up()
    assert kennel.start("fork").value("__import__('mine').version") == 1
    package(kennel, "mine", "version = 22")
    old = kennel.pool.to_json()[0]["pid"]
    assert kennel.forked() is None
    entry = kennel.warm_up()
    assert (entry["state"], entry["failures"]) == ("ready", 0)
    assert entry["pid"] != old
    assert kennel.start("fork").value("__import__('mine').version") == 22


@pytest.mark.parametrize("inside", ["", "site-packages"])
def test_of_pythons_own_library_the_folders_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """An upgrade is seen there as well. What is installed below it is looked at file by file."""
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    module = folder / "of_python.py"
    module.write_text("version = 1")
    monkeypatch.setattr(gate, "_LIBRARY", f"{tmp_path}/")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("of_python")
    try:
        known = gate.known_files()
    finally:
        del sys.modules["of_python"]
    assert (str(module) in known) == bool(inside)
    assert gate.changed(known) is None
    if inside:
        module.write_text("version = 22")
    else:
        module.with_suffix(".new").write_text("version = 2")
        module.with_suffix(".new").replace(module)
    assert gate.changed(known) == str(module if inside else folder)


def test_a_look_at_the_files_holds_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Fifty kernels that are started at once do not need fifty looks at a thousand files."""
    looks: list[str | None] = []

    def changed(files: object) -> str | None:
        looks.append("a file" if len(looks) > 1 else None)
        return looks[-1]

    monkeypatch.setattr(template.gate, "changed", changed)
    monkeypatch.setattr(template.time, "monotonic", clock)
    made = template.Template(frozenset())
    assert made.changed(0.2) is None
    assert made.changed(0.2) is None
    assert len(looks) == 1
    assert made.changed() is None
    assert len(looks) == 2
    clock.now += 1.0
    # What it found does not hold: the file may be put back.
    assert made.changed(0.2) == "a file"
    assert made.changed(0.2) == "a file"
    assert len(looks) == 4


def test_kinds_beyond_the_limit_push_out_the_one_unused_for_longest(
    timed: Kennel, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_warm, "MOST_TEMPLATES", 1)
    timed.warm_up()
    first = timed.pool.to_json()[0]["pid"]
    clock.now += 1
    timed.environment["OMP_NUM_THREADS"] = "3"
    timed.warm_up()
    assert [entry["pid"] for entry in timed.pool.to_json()] != [first]
    assert timed.states() == ["ready"]
    until(lambda: not os.path.exists(f"/proc/{first}"), "the first template's end")


def test_an_owner_that_is_killed_while_the_template_imports_leaves_nothing(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from warm_kernels import Kennel, until
kennel = Kennel(Path({str(tmp_path)!r}))
kennel.pool.prepare([*kennel.argv, "x"], kennel.environment, "x")
until(lambda: kennel.pool.to_json()[0]["pid"], "a template")
time.sleep(float(sys.argv[1]))
print(kennel.pool.to_json()[0]["pid"], flush=True)
sys.stdin.read()
"""
    for moment in ("0", "0.1", "0.3", "0.6", "1.0"):
        owner = subprocess.Popen(
            [sys.executable, "-c", program, moment],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert owner.stdout is not None
        assert owner.stdin is not None
        template = int(owner.stdout.readline())
        tree = [template, *children(template)]
        owner.kill()
        owner.wait()
        owner.stdout.close()
        owner.stdin.close()
        for pid in tree:
            until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), f"the end of {pid}", 10)


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as stream:
            return [int(number) for number in stream.read().split()]
    except FileNotFoundError:
        return []


def test_the_gate_sees_a_thread_and_open_files_in_this_very_process() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    assert "threads" in (gate.objection(set()) or "")
    release.set()
    thread.join()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import zmq; kept = zmq.Context.instance(); look()", "a ZeroMQ context"),
        ("import zmq; zmq.Context.instance().term(); look()", None),
        ("import asyncio\nasync def main(): look()\nasyncio.run(main())", "an event loop"),
        ("import threading; t = threading.Thread(target=look); t.start(); t.join()", "2 threads"),
        ("kept = open('/dev/null'); look()", None),
    ],
)
def test_each_rule_of_the_gate_stands_alone(code: str, reason: str | None) -> None:
    """With every descriptor expected, so that no other rule speaks first."""
    program = (
        "import os\n"
        "from jupyter_ownedkernels.runtime.warm import gate\n"
        "def look(): print(gate.objection(set(map(int, os.listdir('/proc/self/fd')))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program + code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (f"the template has {reason}" if reason else "None")


def test_many_at_once(kennel: Kennel) -> None:
    kennel.warm_up()
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(kennel.forked())) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert None not in found


def test_a_launch_that_a_living_owner_gave_up_takes_no_file_with_it(kennel: Kennel) -> None:
    """The next launch may have a connection file of the same name."""
    launch = kennel.executed()
    kennel.kernel(launch)
    launch.close()
    started = launch.started.result(0)
    until(lambda: not os.path.exists(f"/proc/{started.keeper_pid}"), "the keeper's end")
    assert os.path.exists(launch.request.connection_file)


def test_a_template_that_is_stopped_leaves_when_it_is_let_go(kennel: Kennel) -> None:
    """It holds what it was asked for last: whoever reads a server's output would wait for it."""
    kennel.warm_up()
    template = kennel.pool.to_json()[0]["pid"]
    os.kill(template, signal.SIGSTOP)
    kennel.pool.close()
    until(lambda: not os.path.exists(f"/proc/{template}"), "its end", 10)
