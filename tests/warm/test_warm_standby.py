"""Standby kernels: kept ready, claimed only where they fit, gone with their owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.connect import LocalPortCache
from support import threads
from support.cgroup import MemoryGroup
from warm_kernels import Kennel, until

from jupyter_ownedkernels.errors import WarmLost
from jupyter_ownedkernels.launching import standby, standby_kernel
from jupyter_ownedkernels.launching import warm as launcher_warm
from jupyter_ownedkernels.runtime import procfs


@pytest.fixture
def ready(kennel: Kennel) -> Kennel:
    """With a first kernel started, and one standing by."""
    assert kennel.warm_up()["state"] == "ready"
    assert kennel.forked() is not None
    waiting(kennel)
    return kennel


def waiting(kennel: Kennel) -> int:
    """The process that stands by; waits for it."""
    until(lambda: kennel.pool.to_json()[0]["standby"], "a standby kernel")
    (pid,) = kennel.pool.standby.pids()
    return pid


def reserve(kennel: Kennel, **environment: str) -> dict[str, int] | None:
    return kennel.pool.reserve(
        [*kennel.argv, "/x.json"], {**kennel.environment, **environment}, "/x.json"
    )


def gone(pid: int) -> None:
    until(lambda: not os.path.exists(f"/proc/{pid}"), f"the end of {pid}")


def test_there_is_none_before_a_first_kernel(kennel: Kennel) -> None:
    assert kennel.warm_up()["state"] == "ready"
    assert reserve(kennel) is None
    assert not kennel.pool.standby.is_making
    assert kennel.pool.standby.pids() == []


def test_a_claim_is_followed_by_another_one(ready: Kennel) -> None:
    first = waiting(ready)
    kernel = ready.start("standby")
    assert kernel.pid == first
    assert kernel.value("1 + 1") == 2
    assert waiting(ready) != first


def test_its_ports_are_promised_to_nobody_else_until_it_has_ended(ready: Kennel) -> None:
    """Any free port may be one that a kernel that starts just now was told to bind."""
    promised = LocalPortCache.instance().currently_used_ports
    pid = waiting(ready)
    (one,) = ready.pool.standby._ready
    assert set(one.ports.values()) <= set(procfs.tcp_listeners(pid))
    assert set(one.ports.values()) <= promised
    ports = reserve(ready)
    assert ports == one.ports
    with pytest.raises(WarmLost):
        ready.forked(ready.request(ports, cwd=str(ready.folder / "none")))
    # In a connection file: they are given back by whoever wrote it.
    assert set(ports.values()) <= promised
    assert ready.forked() is not None
    waiting(ready)
    (other,) = ready.pool.standby._ready
    ready.pool.close()
    assert not set(other.ports.values()) & promised


def test_one_that_is_expected_looks_for_reasons_before_it_is_reserved(ready: Kennel) -> None:
    pid = waiting(ready)
    ready.pool.expect()
    assert ready.start("standby").pid == pid
    pid = waiting(ready)
    profile = ready.folder / "ipython" / "profile_default"
    (profile / "ipython_config.py").write_text("c.InteractiveShell.colors = 'NoColor'")
    ready.pool.expect()
    gone(pid)


def test_where_no_thread_can_be_had_the_launch_is_none_the_worse(
    kennel: Kennel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on processes. Once it is gone kernels stand by again."""
    assert kennel.warm_up()["state"] == "ready"
    threads.refuse(monkeypatch, "ownedkernels-standby")
    assert kennel.forked() is not None
    assert kennel.pool.standby.reason == "can't start new thread"
    assert not kennel.pool.standby.is_making
    monkeypatch.undo()
    assert kennel.forked() is not None
    waiting(kennel)


def test_a_reserved_one_looks_for_reasons_before_it_is_claimed(ready: Kennel) -> None:
    """While the owner writes the connection file, so that the claim need not wait for it."""
    pid = waiting(ready)
    profile = ready.folder / "ipython" / "profile_default"
    (profile / "ipython_config.py").write_text("c.InteractiveShell.colors = 'NoColor'")
    assert os.path.exists(f"/proc/{pid}")
    ports = reserve(ready)
    gone(pid)
    with pytest.raises(WarmLost, match=r"ipython_config\.py"):
        ready.forked(ready.request(ports))


@pytest.mark.parametrize("name", ["a\0b", "\ud800"], ids=["zero", "surrogate"])
def test_what_no_environment_can_hold_is_refused_and_not_found_out_later(
    ready: Kennel, name: str
) -> None:
    """A notebook's path may be any text."""
    pid = waiting(ready)
    environment = {**ready.environment, "JPY_SESSION_NAME": name}
    ports = ready.pool.reserve([*ready.argv, "/x.json"], environment, "/x.json")
    assert ports is not None
    with pytest.raises(WarmLost):
        ready.forked(ready.request(ports, env=environment))
    gone(pid)


def test_claimed_is_claimed_once(ready: Kennel) -> None:
    assert reserve(ready) is not None
    assert reserve(ready) is None


def test_another_environment_does_not_fit_but_what_is_of_one_launch_does(ready: Kennel) -> None:
    assert reserve(ready, SOMETHING="else") is None
    assert reserve(ready, PYTHONPATH="/else") is None
    assert reserve(ready, JPY_SESSION_NAME="a", PWD="/b", JUPYTER_OWNEDKERNELS_LAUNCH="c")


def test_other_arguments_do_not_fit(ready: Kennel) -> None:
    argv = [*ready.argv[:-1], "--debug", "-f", "/x.json"]
    assert ready.pool.reserve(argv, ready.environment, "/x.json") is None


def test_it_comes_into_its_own_folder_and_session(ready: Kennel) -> None:
    folder = ready.folder / "there"
    folder.mkdir()
    request_environment = {**ready.environment, "JPY_SESSION_NAME": "/n.ipynb", "PWD": str(folder)}
    kernel = ready.start("standby", cwd=str(folder), env=request_environment, umask=0o77)
    assert kernel.value("__import__('os').getcwd()") == str(folder)
    assert kernel.value("__session__") == "/n.ipynb"
    assert kernel.value("__import__('os').environ['PWD']") == str(folder)
    kernel.run("open('made', 'w').close()")
    assert (folder / "made").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("trouble", ["folder", "config", "encryption", "environment"])
def test_what_it_cannot_become_costs_the_ports_and_nothing_else(
    ready: Kennel, trouble: str
) -> None:
    pid = waiting(ready)
    ports = reserve(ready)
    changes: dict[str, Any] = {}
    if trouble == "folder":
        changes["cwd"] = str(ready.folder / "none")
    if trouble == "environment":
        changes["env"] = {**ready.environment, "SOMETHING": "else"}
    if trouble == "config":
        profile = ready.folder / "ipython" / "profile_default"
        (profile / "ipython_config.py").write_text("c.InteractiveShell.colors = 'NoColor'")
    request = ready.request(ports, **changes)
    if trouble == "encryption":
        content = json.loads(Path(request.connection_file).read_text())
        content.update(curve_publickey="x" * 40, curve_secretkey="y" * 40)
        Path(request.connection_file).write_text(json.dumps(content))
    with pytest.raises(WarmLost):
        ready.forked(request)
    gone(pid)
    assert ready.start("exec").value("1 + 1") == 2


def test_an_upgraded_package_makes_it_unfit(tmp_path: Path) -> None:
    kennel = Kennel(tmp_path, preload=["mine"], standby=1)
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "mine.py").write_text("version = 1")
    kennel.environment["PYTHONPATH"] = str(folder)
    try:
        kennel.warm_up()
        kennel.forked()
        pid = waiting(kennel)
        (folder / "mine.py").write_text("version = 22")
        ports = reserve(kennel)
        with pytest.raises(WarmLost):
            kennel.forked(kennel.request(ports))
        gone(pid)
    finally:
        kennel.close()


def test_a_configuration_file_makes_it_unfit_from_the_start(kennel: Kennel) -> None:
    profile = kennel.folder / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    trace = kennel.folder / "trace"
    (profile / "ipython_kernel_config.py").write_text(f"open({str(trace)!r}, 'a').write('x')")
    kennel.warm_up()
    kennel.start("fork")
    until(lambda: kennel.pool.standby.reason, "a reason")
    assert "ipython_kernel_config.py" in (kennel.pool.standby.reason or "")
    before = trace.read_text()
    kennel.start("fork")
    until(lambda: not kennel.pool.standby.is_making, "nothing in the making")
    assert trace.read_text() == before + "x"
    assert kennel.pool.standby.pids() == []


def test_a_kind_that_was_not_fit_is_tried_again_after_a_while(tmp_path: Path) -> None:
    """The file may be gone, while the server runs on for weeks."""
    now = 1000.0
    kennel = Kennel(tmp_path, standby=1, clock=lambda: now)
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    config = profile / "ipython_config.py"
    config.write_text("c.InteractiveShell.colors = 'NoColor'")
    try:
        kennel.warm_up()
        assert kennel.forked() is not None
        until(lambda: kennel.pool.standby.reason, "a reason")
        config.unlink()
        now += launcher_warm.RETRY_AFTER - 1
        assert kennel.forked() is not None
        until(lambda: not kennel.pool.standby.is_making, "nothing in the making")
        assert kennel.pool.standby.pids() == []
        now += 2
        assert kennel.forked() is not None
        waiting(kennel)
        assert kennel.pool.standby.reason is None
    finally:
        kennel.close()


def test_one_that_does_not_come_up_in_time_is_a_reason(
    kennel: Kennel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "_BOOT_TIMEOUT", 0.0)
    kennel.warm_up()
    assert kennel.forked() is not None
    until(lambda: kennel.pool.standby.reason, "a reason")
    until(lambda: not kennel.pool.standby.is_making, "nothing in the making")
    assert kennel.pool.standby.pids() == []


def test_one_that_died_is_not_given_out(ready: Kennel) -> None:
    pid = waiting(ready)
    os.kill(pid, signal.SIGKILL)
    until(lambda: ready.pool.standby.pids() == [], "that it is noticed")
    assert reserve(ready) is None
    assert ready.start("fork").value("1 + 1") == 2
    assert waiting(ready) != pid


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: (procfs.stat(pid) or pytest.fail("it has ended")).state == "T", "that it stops")


def lost_when_stopped(ready: Kennel, reason: str) -> None:
    """It is stopped after its reservation; the claim fails for this reason, and it is ended."""
    pid = waiting(ready)
    ports = reserve(ready)
    stop(pid)
    with pytest.raises(WarmLost, match=reason):
        ready.forked(ready.request(ports))
    gone(pid)


def test_one_that_is_stopped_is_not_waited_for(ready: Kennel) -> None:
    lost_when_stopped(ready, "stopped")


def test_one_that_was_stopped_before_is_passed_over_and_replaced(ready: Kennel) -> None:
    pid = waiting(ready)
    stop(pid)
    assert reserve(ready) is None
    assert ready.start("fork").value("1 + 1") == 2
    gone(pid)
    assert waiting(ready) != pid


def test_one_that_does_not_answer_is_given_up(
    ready: Kennel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sign of the reason: the system lets it run, but it does not."""
    monkeypatch.setattr(standby_kernel, "_CLAIM_TIMEOUT", 0.3)
    monkeypatch.setattr(standby_kernel.StandbyKernel, "is_stopped", False)
    lost_when_stopped(ready, "timed out")


def test_a_reservation_that_nobody_uses_ends(
    ready: Kennel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start that has reserved it may have been cancelled. One that begins in another thread,
    and has seen it idle just before, does not prolong it.
    """
    pid = waiting(ready)
    monkeypatch.setattr(standby_kernel, "_RESERVATION", 0.1)
    (one,) = ready.pool.standby._ready
    assert reserve(ready)
    one.expect()
    gone(pid)


def test_none_when_memory_is_low(tmp_path: Path) -> None:
    kennel = Kennel(tmp_path, standby=1)
    kennel.pool.standby._low = lambda: True
    try:
        kennel.warm_up()
        assert kennel.forked() is not None
        until(lambda: kennel.pool.standby.reason, "a reason")
        assert kennel.pool.standby.reason == "memory is low"
        assert kennel.pool.standby.pids() == []
    finally:
        kennel.close()


def test_one_that_waits_goes_when_memory_gets_low(ready: Kennel) -> None:
    pid = waiting(ready)
    ready.pool.standby._low = lambda: True
    assert ready.forked() is not None
    gone(pid)
    assert ready.pool.standby.reason == "memory is low"
    ready.pool.standby._low = lambda: False
    assert ready.forked() is not None
    assert waiting(ready) != pid
    assert ready.pool.standby.reason is None


@pytest.mark.skipif(bool(MemoryGroup.obstacle()), reason=MemoryGroup.obstacle())
def test_the_limit_of_a_container_counts() -> None:
    code = "from jupyter_ownedkernels.launching import memory; print(memory.is_low())"
    for limit, low in ((2 << 30, "False"), (200 << 20, "True")):
        with MemoryGroup(limit) as group:
            command = [*group.prefix(), sys.executable, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert done.stdout.strip() == low, limit


def test_closing_ends_it(ready: Kennel) -> None:
    pid = waiting(ready)
    ready.pool.close()
    gone(pid)


def test_the_keeper_of_a_claimed_one_knows_the_new_connection_file(tmp_path: Path) -> None:
    """The owner is killed: standby and claimed kernel end, and the claimed one's file goes."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from warm_kernels import Kennel, until
kennel = Kennel(Path({str(tmp_path)!r}), standby=1)
kennel.warm_up()
kernel = kennel.start("standby")
until(lambda: kennel.pool.to_json()[0]["standby"], "the next")
print(kernel.pid, *kennel.pool.standby.pids(), kernel.path, flush=True)
sys.stdin.read()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    claimed, standby, path = owner.stdout.readline().split()
    assert os.path.exists(path)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    owner.stdin.close()
    gone(int(claimed))
    gone(int(standby))
    until(lambda: not os.path.exists(path), "the removal of the connection file")


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Kennel]:
    made = Kennel(tmp_path, standby=2)
    yield made
    made.close()


def test_never_more_than_wanted(several: Kennel) -> None:
    several.warm_up()
    for _ in range(4):
        assert several.forked() is not None
    until(lambda: several.pool.to_json()[0]["standby"] == 2, "two")
    until(lambda: not several.pool.standby.is_making, "nothing in the making")
    assert len(several.pool.standby.pids()) == 2
