"""Which process is meant: every way in which a number can come to mean another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import elsewhere
from support.census import wait_until

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.identity import Identity, Verdict, World
from jupyter_ownedkernels.runtime import procfs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def named(process: subprocess.Popen[bytes]) -> Identity:
    found = identity.of_pid(process.pid)
    assert found is not None
    return found


def test_a_running_process_is_the_same(child: subprocess.Popen[bytes]) -> None:
    assert identity.compare(named(child)) is Verdict.SAME
    assert identity.compare(identity.of_self()) is Verdict.SAME


def test_a_stopped_process_is_the_same(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: procfs.stat(child.pid).state == "T", 10, "it stops")  # type: ignore[union-attr]
    assert identity.compare(named(child)) is Verdict.SAME


def test_a_reaped_process_is_gone(child: subprocess.Popen[bytes]) -> None:
    recorded = named(child)
    child.kill()
    child.wait()
    assert identity.compare(recorded) is Verdict.GONE
    assert identity.of_pid(child.pid) is None


def test_a_zombie_is_gone(child: subprocess.Popen[bytes]) -> None:
    recorded = named(child)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identity.compare(recorded) is Verdict.GONE
    assert identity.of_pid(child.pid) is None


@pytest.mark.parametrize("off", [-1, 1, 1000, -1000])
def test_other_start_ticks_are_another_process(off: int, child: subprocess.Popen[bytes]) -> None:
    recorded = named(child)
    other = replace(recorded, start_ticks=recorded.start_ticks + off)
    assert identity.compare(other) is Verdict.DIFFERENT


@pytest.mark.parametrize(
    "other",
    [
        {"host": "elsewhere"},
        {"boot_id": "00000000-0000-0000-0000-000000000000"},
        {"pid_ns": 4026530000},
    ],
)
def test_another_world_is_foreign(other: dict[str, Any], child: subprocess.Popen[bytes]) -> None:
    recorded = named(child)
    foreign = replace(recorded, world=replace(recorded.world, **other))
    assert identity.compare(foreign) is Verdict.FOREIGN
    child.kill()
    child.wait()
    assert identity.compare(foreign) is Verdict.FOREIGN


@pytest.mark.parametrize("lacking", [{"boot_id": ""}, {"pid_ns": 0}])
def test_a_world_without_a_name_proves_nothing(
    lacking: dict[str, Any], child: subprocess.Popen[bytes]
) -> None:
    recorded = named(child)
    vague = replace(recorded, world=replace(recorded.world, **lacking))
    assert identity.compare(vague) is Verdict.UNKNOWN


def test_only_two_verdicts_prove_a_death() -> None:
    assert {one for one in Verdict if one.proves_death} == {Verdict.GONE, Verdict.DIFFERENT}


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError(5, "input/output")])
def test_what_cannot_be_read_is_unknown(
    error: OSError, monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes]
) -> None:
    recorded = named(child)

    def refuse(path: str) -> bytes:
        raise error

    monkeypatch.setattr(procfs, "_read", refuse)
    assert identity.compare(recorded) is Verdict.UNKNOWN


@pytest.mark.parametrize("raw", [b"", b"7 (x) R", b"\0" * 100])
def test_nonsense_in_proc_is_unknown(
    raw: bytes, monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes]
) -> None:
    recorded = named(child)
    monkeypatch.setattr(procfs, "_read", lambda path: raw)
    assert identity.compare(recorded) is Verdict.UNKNOWN


def test_a_file_that_vanishes_proves_nothing_when_the_number_is_taken(
    monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes]
) -> None:
    recorded = named(child)
    really = procfs.stat
    monkeypatch.setattr(procfs, "stat", lambda pid: None if pid == child.pid else really(pid))
    assert identity.compare(recorded) is Verdict.UNKNOWN


COMPARE = """
recorded = identity.Identity.from_json(json.loads(sys.argv[1]))
"""


def compared(recorded: Identity, script: str, *unshare: str) -> str:
    return elsewhere.run(  # type: ignore[no-any-return]
        COMPARE + script + "\nanswer(identity.compare(recorded).value)\n",
        json.dumps(recorded.to_json()),
        unshare=unshare,
    )


@elsewhere.needs_root
def test_another_process_sees_the_same(child: subprocess.Popen[bytes]) -> None:
    assert compared(named(child), "") == "same"


@elsewhere.needs_root
@pytest.mark.parametrize("level", ["1", "2"])
def test_a_hidden_process_is_unknown(level: str, child: subprocess.Popen[bytes]) -> None:
    hide = f'mount("-t", "proc", "-o", "hidepid={level}", "none", "/proc"); become_nobody()'
    assert compared(named(child), hide, "--mount") == "unknown"
    child.kill()
    child.wait()


@elsewhere.needs_root
def test_hiding_does_not_hide_a_death(child: subprocess.Popen[bytes]) -> None:
    recorded = named(child)
    child.kill()
    child.wait()
    hide = 'mount("-t", "proc", "-o", "hidepid=2", "none", "/proc"); become_nobody()'
    assert compared(recorded, hide, "--mount") == "gone"


@elsewhere.needs_root
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("alive", [True, False])
def test_without_proc_nothing_is_gone(
    when: str, alive: bool, child: subprocess.Popen[bytes]
) -> None:
    recorded = named(child)
    if not alive:
        child.kill()
        child.wait()
    look = "" if when == "before" else "identity.this_world()\n"
    assert (
        compared(recorded, look + 'mount("-t", "tmpfs", "none", "/proc")', "--mount") == "unknown"
    )


@elsewhere.needs_root
def test_another_pid_namespace_is_foreign(child: subprocess.Popen[bytes]) -> None:
    assert compared(named(child), "", "--pid", "--fork", "--mount-proc") == "foreign"


@elsewhere.needs_root
def test_a_namespace_without_its_own_proc_is_unknown(child: subprocess.Popen[bytes]) -> None:
    """Its numbers are not those of /proc: pid 1 in there is pid 1 of the machine in /proc."""
    assert compared(named(child), "", "--pid", "--fork") == "unknown"
    names_itself = """
    try:
        answer(identity.of_self().world.known)
    except OSError:
        answer(None)
    """
    assert not elsewhere.run(names_itself, unshare=["--pid", "--fork"])


@elsewhere.needs_root
def test_a_shifted_clock_is_unknown(child: subprocess.Popen[bytes]) -> None:
    """Start times of all processes look later in there: alive, it would seem different."""
    assert compared(named(child), "", "--time", "--boottime", "1000", "--fork") == "unknown"


def test_a_forked_child_names_its_own_world() -> None:
    recorded = identity.of_self()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        mine = identity.of_self()
        same = mine.world == recorded.world and mine.pid == os.getpid() != recorded.pid
        os.write(writer, b"1" if same else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    os.close(writer)


worlds = st.builds(World, st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**32))
identities = st.builds(Identity, worlds, st.integers(1, 2**31 - 1), st.integers(0, 2**63))


@given(identities)
def test_json_there_and_back(one: Identity) -> None:
    assert Identity.from_json(one.to_json()) == one


@given(identities, st.data())
def test_odd_fields_are_refused(one: Identity, data: st.DataObject) -> None:
    fields = one.to_json()
    name = data.draw(st.sampled_from(sorted(fields)))
    odd: st.SearchStrategy[Any] = st.sampled_from([None, True, -1, 1.5, [], {}, b"x", "7"])
    fields[name] = data.draw(
        odd.filter(lambda value: type(value) is not type(fields[name]) or value == -1)
    )
    with pytest.raises(ValueError, match="not an identity"):
        Identity.from_json(fields)
    del fields[name]
    with pytest.raises(ValueError, match="not an identity"):
        Identity.from_json(fields)


@pytest.mark.parametrize("pid", [0, 2**31, 2**70])
def test_impossible_pids_are_refused(pid: int) -> None:
    with pytest.raises(ValueError, match="not an identity"):
        Identity.from_json({**identity.of_self().to_json(), "pid": pid})


@pytest.mark.parametrize("data", [None, 7, "x", []])
def test_what_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="not an identity"):
        Identity.from_json(data)
