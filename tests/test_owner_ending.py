"""A keeper whose owner takes long to end waits for it: only then is it known that it did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import census

from jupyter_ownedkernels.runtime import keeper as keepers
from jupyter_ownedkernels.runtime import procfs
from jupyter_ownedkernels.runtime.keeper import Keeper

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfds")


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def keeper_of(pidfd: int) -> Keeper:
    made = Keeper.__new__(Keeper)
    made._owner_pidfd = pidfd
    made._request = {"journal": None}
    return made


@pytest.fixture
def pidfd(owner: subprocess.Popen[bytes]) -> Iterator[int]:
    fd = os.pidfd_open(owner.pid)
    yield fd
    os.close(fd)


def test_an_owner_that_is_ending_is_waited_for(
    owner: subprocess.Popen[bytes], pidfd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ends_at_last(pid: int) -> bool:
        asked.append(pid)
        if len(asked) == 3:
            owner.kill()
        return True

    monkeypatch.setattr(keepers, "_DEATH_PATIENCE", 0.05)
    monkeypatch.setattr(procfs, "is_ending", ends_at_last)
    assert keeper_of(pidfd)._owner_died()
    assert set(asked) == {owner.pid}
    assert len(asked) >= 3


def test_but_not_for_ever(pidfd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "_DEATH_PATIENCE", 0.001)
    monkeypatch.setattr(procfs, "is_ending", lambda pid: True)
    assert not keeper_of(pidfd)._owner_died()


def test_an_owner_that_lives_is_not(pidfd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "_DEATH_PATIENCE", 0.05)
    monkeypatch.setattr(keepers, "_DEATHS", 10**9)
    assert not keeper_of(pidfd)._owner_died()


def test_what_a_pidfd_stands_for(owner: subprocess.Popen[bytes], pidfd: int) -> None:
    assert procfs.pid_of(pidfd) == owner.pid
    owner.kill()
    owner.wait()
    assert procfs.pid_of(pidfd) is None
    assert procfs.pid_of(10**6) is None


def test_who_is_ending(owner: subprocess.Popen[bytes]) -> None:
    assert not procfs.is_ending(owner.pid)
    assert not procfs.is_ending(os.getpid())
    assert not procfs.is_ending(2**22 + 1)
    os.kill(owner.pid, signal.SIGKILL)
    census.wait_until(lambda: Path(f"/proc/{owner.pid}/stat").read_text().split()[2] == "Z", 5, "")
    assert procfs.is_ending(owner.pid)


def test_one_whose_main_thread_has_left_is_not() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as process:
        path = Path(f"/proc/{process.pid}/stat")
        census.wait_until(lambda: path.read_text().rpartition(")")[2].split()[0] == "Z", 5, "")
        assert not procfs.is_ending(process.pid)
        process.kill()
