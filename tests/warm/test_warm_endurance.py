"""A template forks the thousandth kernel as it forked the first."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path

import pytest
from warm_kernels import Kennel, until

from jupyter_ownedkernels.errors import WarmLost


def memory(pid: int) -> int:
    """Private kilobytes."""
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line[1]) for line in lines if line[0].startswith("Private_"))


def template_of(kennel: Kennel) -> int:
    return int(kennel.pool.to_json()[0]["pid"])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_forks_leave_the_template_as_it_was(tmp_path: Path, soak: bool) -> None:
    rounds = 10_000 if soak else 40
    kennel = Kennel(tmp_path)
    try:
        assert kennel.warm_up()["state"] == "ready"
        pid = template_of(kennel)

        def some(count: int) -> None:
            for _ in range(count):
                launch = kennel.forked()
                assert launch is not None
                kennel._launches.remove(launch)
                launch.close()
                launch.retired.result(60)
                os.unlink(launch.request.connection_file)

        def children() -> str:
            return Path(f"/proc/{pid}/task/{pid}/children").read_text()

        some(10)
        until(lambda: not children(), "that all keepers are reaped")
        before = (memory(pid), sorted(os.listdir(f"/proc/{pid}/fd")))
        some(rounds)
        until(lambda: not children(), "that all keepers are reaped")
        after = (memory(pid), sorted(os.listdir(f"/proc/{pid}/fd")))
        assert after[1] == before[1]
        assert after[0] < before[0] + 1024
        assert template_of(kennel) == pid
        assert kennel.start("fork").value("1 + 1") == 2
    finally:
        kennel.close()


@pytest.mark.parametrize("room", [0, 5])
def test_without_descriptors_left_the_kernel_is_executed(kennel: Kennel, room: int) -> None:
    """None: not even the request's descriptors arrive. Five: there are none for a pipe."""
    kennel.pool.standby.count = 0
    kennel.warm_up()
    pid = template_of(kennel)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = [number for number in range(100) if number not in taken]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[room], limits[1]))
    try:
        launch = None
        with contextlib.suppress(WarmLost):
            launch = kennel.forked()
        assert launch is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert kennel.start("exec").value("1 + 1") == 2
    assert kennel.warm_up()["state"] == "ready"
    assert kennel.start("fork").value("1 + 1") == 2


def test_a_kernel_lives_on_when_its_template_and_a_sibling_die(kennel: Kennel) -> None:
    kennel.warm_up()
    one, other = kennel.start("fork"), kennel.start("fork")
    os.kill(one.pid, signal.SIGKILL)
    assert one.launch.exited.result(30).status == -signal.SIGKILL
    os.kill(template_of(kennel), signal.SIGKILL)
    assert other.value("1 + 1") == 2
    other.run("import subprocess; assert subprocess.run(['true']).returncode == 0")


def test_a_forked_kernel_has_less_memory_of_its_own(kennel: Kennel) -> None:
    kennel.warm_up()
    executed, forked = kennel.start("exec"), kennel.start("fork")
    for kernel in (executed, forked):
        kernel.run("1")
    assert memory(forked.pid) < memory(executed.pid)
    # A collection in the kernel leaves the template's objects, and so their pages, alone.
    assert forked.value("__import__('gc').get_freeze_count()") > 10_000
