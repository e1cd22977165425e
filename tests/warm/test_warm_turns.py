"""Forked kernels boot a few at a time, and none of them can hold the others up."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from warm_kernels import Kennel, until

from jupyter_ownedkernels.launching import warm as launching
from jupyter_ownedkernels.runtime.warm import turns

MOST = len(os.sched_getaffinity(0)) + 2
TICK = 1 / os.sysconf("SC_CLK_TCK")

# Of a kernel, so it is run in its boot. Whoever reads the pipe waits until somebody writes to it.
HANGING = """
import os
with open({log!r}, "a") as stream:
    stream.write(f"{{os.getpid()}}\\n")
open({pipe!r}).read()
"""


class Hanging(Kennel):
    """Kernels that hang in their boot until the test lets them go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, standby=0)
        self.pipe, self.log = folder / "pipe", folder / "log"
        os.mkfifo(self.pipe)
        self.log.touch()
        profile = folder / "ipython" / "profile_default"
        profile.mkdir(parents=True)
        code = HANGING.format(log=str(self.log), pipe=str(self.pipe))
        (profile / "ipython_kernel_config.py").write_text(code)

    def hanging(self) -> list[int]:
        """Process numbers of those that have come that far."""
        return [int(line) for line in self.log.read_text().split()]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    made = Hanging(tmp_path)
    assert made.warm_up()["state"] == "ready"
    yield made
    made.close()


def test_the_next_kernel_waits_for_its_turn_but_not_for_long(hanging: Hanging) -> None:
    with ThreadPoolExecutor(MOST + 2) as threads:
        asked = [threads.submit(hanging.forked) for _ in range(MOST + 2)]
        launches = [future.result() for future in asked]
    until(lambda: len(hanging.hanging()) == MOST + 2, "kernels in their boot")
    begun = sorted(
        launch.started.result(0).keeper_start_ticks for launch in launches if launch is not None
    )
    assert len(begun) == MOST + 2
    assert (begun[MOST] - begun[0]) * TICK > turns.PATIENCE - 2 * TICK


def test_only_a_kernel_in_its_boot_can_end_a_turn(hanging: Hanging) -> None:
    launch = hanging.forked()
    assert launch is not None
    until(hanging.hanging, "a kernel in its boot")
    started = launch.started.result(0)
    spawners = pipes(hanging.pool.to_json()[-1]["pid"])
    assert len(pipes(started.pid) & spawners) == 1
    assert not pipes(started.keeper_pid) & spawners
    hanging.pipe.open("w").close()
    until(lambda: not pipes(started.pid) & spawners, "the end of the boot")


def pipes(pid: int) -> set[str]:
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return {link for link in links if link.startswith("pipe:")}


def test_many_that_hang_are_waited_for_and_not_given_up(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "_ANSWER_TIMEOUT", 0.5)
    count = 6 * MOST
    with ThreadPoolExecutor(count) as threads:
        asked = [threads.submit(hanging.forked) for _ in range(count)]
        launches = [future.result() for future in asked]
    assert None not in launches
    assert hanging.pool.to_json()[-1]["failures"] == 0
    until(lambda: len(hanging.hanging()) == count, "kernels in their boot")


def test_an_owner_that_is_killed_while_launches_wait_leaves_nothing(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from test_warm_turns import Hanging, until
kennel = Hanging(Path({str(tmp_path)!r}))
kennel.warm_up()
threads = ThreadPoolExecutor(40)
asked = [threads.submit(kennel.forked) for _ in range(40)]
until(kennel.hanging, "the first kernel")
print(kennel.pool.to_json()[-1]["pid"], flush=True)
sys.stdin.read()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    template = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    owner.stdin.close()
    until(lambda: not os.path.exists(f"/proc/{template}"), "the end of the spawner", 10)
    for pid in map(int, (tmp_path / "log").read_text().split()):
        until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), f"the end of {pid}", 10)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> turns.Turns:
    """All turns are taken, by kernels that will not end their boot by themselves."""
    monkeypatch.setattr(turns, "PATIENCE", 1e9)
    made = turns.Turns()
    # One of them is kept by whoever is the parent of this process.
    made.take(os.getppid())
    for number in range(-2, -1 - MOST, -1):
        assert made.pause() is None
        made.take(number)
    return made


def test_a_keeper_that_is_gone_holds_no_turn(taken: turns.Turns) -> None:
    assert taken.pause() is not None
    taken.end(os.getppid())
    assert taken.pause() is None


def test_whoever_boots_late_ends_nobody_elses_turn(taken: turns.Turns) -> None:
    for _ in range(3 * MOST):
        os.write(taken.fds[1], turns._WORD.pack(-1))
    assert taken.pause() is not None


def test_a_number_that_is_somebody_elses_by_then_stays_open(
    taken: turns.Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipykernel.kernelapp import IPKernelApp

    writer = os.dup(taken.fds[1])
    null = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(IPKernelApp, "init_kernel", lambda app: os.dup2(null, writer))
    turns.end_with_boot(writer)
    app: Any = IPKernelApp
    app.init_kernel(None)
    assert os.path.samestat(os.fstat(writer), os.fstat(null))
    os.close(writer)
    os.close(null)


@pytest.mark.parametrize("fails", [False, True])
def test_a_turn_ends_when_the_kernel_has_its_shell(
    taken: turns.Turns, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    from ipykernel.kernelapp import IPKernelApp

    def init_kernel(app: Any) -> None:
        assert taken.pause() is not None
        if fails:
            raise RuntimeError("no shell")

    monkeypatch.setattr(IPKernelApp, "init_kernel", init_kernel)
    turns.end_with_boot(os.dup(taken.fds[1]))
    assert taken.pause() is not None
    app: Any = IPKernelApp
    if fails:
        with pytest.raises(RuntimeError, match="no shell"):
            app.init_kernel(None)
    else:
        app.init_kernel(None)
    assert taken.pause() is None
    assert IPKernelApp.init_kernel is init_kernel


def test_a_kernel_whose_spawner_is_gone_goes_on(taken: turns.Turns, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done: list[object] = []
    from ipykernel.kernelapp import IPKernelApp

    app: Any = IPKernelApp
    before = app.init_kernel
    try:
        app.init_kernel = done.append
        turns.end_with_boot(writer)
        app.init_kernel("booted")
    finally:
        app.init_kernel = before
    assert done == ["booted"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer)
