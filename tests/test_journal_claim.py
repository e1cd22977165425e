"""A dead owner's journal: who may take it over, finish it and remove it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.journals import exit_, launch, make, owner_process, shorten, survivor, word

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.errors import JournalError
from jupyter_ownedkernels.identity import Verdict
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Lock
from jupyter_ownedkernels.models import State
from jupyter_ownedkernels.runtime import lock, records

OWNER = """
one = make(sys.argv[1], owner_id="dead")
whole(one, 1)
one.launching(launch(2))
print(json.dumps(one.path), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ownedkernels"


@pytest.fixture
def dead(folder: Path) -> str:
    """The journal of a real owner that was killed with one launch open."""
    with owner_process(OWNER, folder) as owner:
        path = word(owner)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    return str(path)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


# -- the lock -----------------------------------------------------------------------------


def test_it_is_held_as_long_as_the_owner_lives_and_no_longer(folder: Path) -> None:
    with owner_process(OWNER, folder) as owner:
        path = word(owner)
        assert journal.is_locked(path) is Lock.LOCKED
        assert journal.claim(path) is None
        owner.send_signal(signal.SIGSTOP)
        assert journal.is_locked(path) is Lock.LOCKED
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert journal.is_locked(path) is Lock.FREE
        assert journal.owner_verdict(journal.read(path)) is Verdict.GONE


def test_programs_that_the_owner_starts_do_not_hold_it(folder: Path) -> None:
    script = """
import subprocess
one = make(sys.argv[1])
one.open()
child = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL)
print(json.dumps([one.path, child.pid]), flush=True)
sys.stdin.read()
"""
    with owner_process(script, folder) as owner:
        path, pid = word(owner)
        child = identity.of_pid(pid)
        owner.kill()
        owner.wait()
        assert child is not None
        assert identity.compare(child) is Verdict.SAME
        assert journal.is_locked(path) is Lock.FREE
        os.kill(pid, signal.SIGKILL)


def test_three_answers(dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert journal.is_locked(dead) is Lock.FREE
    assert journal.is_locked(dead + ".none") is Lock.FREE
    link = dead + ".link"
    os.symlink(dead, link)
    assert journal.is_locked(link) is Lock.UNKNOWN

    for number in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):

        def unsupported(fd: int, how: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", unsupported)
        assert journal.is_locked(dead) is Lock.UNKNOWN


def test_asking_does_not_disturb_taking(dead: str) -> None:
    """Many doctors ask while one takes: the one gets it."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            journal.is_locked(dead)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    missed = 0
    for _ in range(100):
        claim = journal.claim(dead)
        missed += claim is None
        if claim is not None:
            claim.close()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert missed < 50


def test_those_who_ask_do_not_disturb_each_other(dead: str) -> None:
    fd = os.open(dead, os.O_RDONLY)
    assert lock._try(fd, shared=True) is Lock.FREE
    assert journal.is_locked(dead) is Lock.FREE
    os.close(fd)


def test_a_file_replaced_while_asking_is_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an owner would look unlocked that has just shortened its journal."""
    one = make(folder)
    one.open()
    assert one.path is not None
    real = lock._try
    shortened = False

    def asked(fd: int, shared: bool) -> Lock:
        nonlocal shortened
        if shared and not shortened:
            shortened = True
            shorten(one)
        return real(fd, shared)

    monkeypatch.setattr(lock, "_try", asked)
    assert journal.is_locked(one.path) is Lock.LOCKED
    assert shortened
    one.close()


# -- the claim -------------------------------------------------------------------------------


def test_one_at_a_time_and_what_it_writes_is_read(dead: str) -> None:
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        assert claim.locked
        assert journal.claim(dead) is None
        assert journal.is_locked(dead) is Lock.LOCKED
        assert [one.launch_id for one in claim.view().open] == ["launch-2"]
        assert claim.ended("launch-2", None, by="recovery")
        assert claim.recovered(3, "ended what a dead server left")
        assert claim.view().open == []
        assert claim.view().launches["launch-2"].ended_by == "recovery"
    claim.close()
    assert journal.is_locked(dead) is Lock.FREE


def test_a_claim_ends_with_its_process(dead: str) -> None:
    script = """
from jupyter_ownedkernels.journal import journal
claim = journal.claim(sys.argv[1])
print(json.dumps(claim is not None), flush=True)
sys.stdin.read()
"""
    with owner_process(script, dead) as other:
        assert word(other) is True
        assert journal.claim(dead) is None
        other.kill()
        other.wait()
        with journal.claim(dead) as claim:  # type: ignore[union-attr]
            assert claim.locked


def test_it_is_removed_when_all_has_ended_and_its_history_stays(dead: str, folder: Path) -> None:
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        result = claim.remove(100)
        assert (result.outcome, result.reason) == ("kept", "something on record may still run")
        claim.ended("launch-2", exit_(2), by="recovery", at=3000.0)
        claim.recovered(2, "ended 2 processes", at=3001.0)
        assert claim.remove(100).outcome == "removed"
        assert not os.path.exists(dead)
        assert claim.remove(100).outcome == "already-gone"
    found = journal.history([str(folder)])
    assert [(entry.event, entry.launch_id, entry.by) for entry in found] == [
        ("recovered", None, None),
        ("ended", "launch-2", "recovery"),
        ("ended", "launch-1", "owner"),
    ]
    assert {entry.owner_id for entry in found} == {"dead"}
    assert (found[0].count, found[0].message) == (2, "ended 2 processes")
    assert journal.claim(dead) is None


def rewrite(path: str, *mappings: dict[str, object]) -> None:
    Path(path).write_bytes(b"".join(records.encode(one) for one in mappings))


def test_the_journal_of_a_living_owner_is_never_removed(dead: str) -> None:
    """The lock is not the only witness: it may be free on some file systems."""
    rewrite(dead, {"event": "owner", **journal.this_owner("dead").to_json()})
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        result = claim.remove(100)
    assert (result.outcome, result.reason) == ("refused", "its owner is not proven dead: same")
    assert os.path.exists(dead)


@pytest.mark.parametrize("world", ["host", "boot_id", "pid_ns"])
def test_the_journal_of_another_world_is_never_removed(world: str, dead: str) -> None:
    found = journal.read(dead).owner
    assert found is not None
    line = found.to_json()
    line["identity"][world] = 7 if world == "pid_ns" else "other"
    line["machine"] = "another"  # of this one an earlier boot is proven over
    rewrite(dead, {"event": "owner", **line})
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        result = claim.remove(100)
    assert (result.outcome, result.reason) == ("refused", "its owner is not proven dead: foreign")
    assert os.path.exists(dead)


def test_the_journal_of_nobody_is_never_removed(dead: str) -> None:
    rewrite(dead)
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        assert claim.remove(100).outcome == "refused"
    assert os.path.exists(dead)


def test_what_was_not_understood_is_not_removed(dead: str) -> None:
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        claim.ended("launch-2", None, by="recovery")
        with open(dead, "ab") as stream:
            stream.write(b"damage\n")
        assert claim.remove(100).reason == "1 of its lines are damaged"
        records.append(dead, {"v": 2, "event": "from the future"})
        assert claim.remove(100, despite_damage=True).outcome == "kept"
        assert os.path.exists(dead)


def test_damage_is_no_obstacle_for_who_has_looked_otherwise(dead: str) -> None:
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        claim.ended("launch-2", None, by="recovery")
        with open(dead, "ab") as stream:
            stream.write(b"damage\n")
        assert claim.remove(100, despite_damage=True).outcome == "removed"


def test_a_survivor_keeps_it_until_it_is_gone(dead: str, sleeper: subprocess.Popen[bytes]) -> None:
    left = identity.of_pid(sleeper.pid)
    assert left is not None
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        claim.ended("launch-2", None, [survivor(left)], by="recovery")
        assert claim.remove(100).outcome == "kept"
        sleeper.kill()
        sleeper.wait()
        assert claim.remove(100).outcome == "removed"


def test_a_survivor_that_was_cleaned_does_not_keep_it(
    dead: str, sleeper: subprocess.Popen[bytes]
) -> None:
    left = identity.of_pid(sleeper.pid)
    assert left is not None
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        claim.ended("launch-2", None, [survivor(left)], by="recovery")
        claim.cleaned("launch-2", survivor(left), "terminated")
        assert claim.view().launches["launch-2"].survivors == ()
        assert claim.remove(100).outcome == "removed"


def test_without_history_it_is_not_removed(dead: str, folder: Path) -> None:
    (folder / "history.jsonl").mkdir()
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        claim.ended("launch-2", None, by="recovery")
        assert claim.remove(100).outcome == "not-permitted"
        assert os.path.exists(dead)
        assert claim.remove(0).outcome == "removed"


def test_a_journal_that_was_replaced_is_not_the_claimed_one(dead: str) -> None:
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        os.rename(dead, dead + ".old")
        rewrite(dead)
        assert claim.remove(100).outcome == "already-gone"
    assert os.path.exists(dead)


def test_what_cannot_be_opened_is_an_error(folder: Path) -> None:
    folder.mkdir()
    link = folder / "owner-link.jsonl"
    link.symlink_to(folder / "owner-real.jsonl")
    with pytest.raises(JournalError):
        journal.claim(str(link))
    assert journal.claim(str(folder / "owner-none.jsonl")) is None


def test_where_files_cannot_be_locked_a_claim_says_so(
    dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "take", lambda fd: Lock.UNKNOWN)
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        assert not claim.locked


def test_a_keeper_finishes_while_a_recovery_holds_the_claim(dead: str) -> None:
    with journal.claim(dead) as claim:  # type: ignore[union-attr]
        records.append(
            dead,
            {"event": "ended", "launch_id": "launch-2", "survivors": [], "by": "keeper",
             "exit": exit_().to_json(), "at": 5.0},
        )  # fmt: skip
        assert claim.view().launches["launch-2"].ended_by == "keeper"
        assert claim.remove(100).outcome == "removed"
    with pytest.raises(FileNotFoundError):
        records.append(dead, {"event": "retiring", "launch_id": "launch-2", "at": 6.0})


# -- crashes -----------------------------------------------------------------------------------

BUSY = """
one = make(sys.argv[1], owner_id="busy", compact_bytes=3000, history_limit=3)
number = 0
one.launching(launch(number))
print(json.dumps(one.path), flush=True)
while True:
    number += 1
    one.launching(launch(number))
    os.write(1, b"%d\\n" % number)
    if number % 7:
        one.running(f"launch-{number}", keeper=None, process=None, sessions=[])
        one.ended(f"launch-{number}", exit_(number))
        one._compact_at = min(one._compact_at, 3000 + 40 * number)
"""


@pytest.mark.parametrize("round_", range(12))
def test_no_crash_loses_an_open_launch(round_: int, folder: Path) -> None:
    """SIGKILL at any moment of writing and shortening. Every seventh launch stays open."""
    with owner_process(BUSY, folder) as owner:
        path = word(owner)
        assert owner.stdout is not None
        last = 0
        for _ in range(20 + 13 * round_):
            last = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
        rest = owner.stdout.read().split("\n")
        last = max([last, *(int(one) for one in rest[:-1])])
        owner.wait()
    found = journal.read(path)
    assert found.complete
    expected = {f"launch-{number}" for number in range(0, last + 1, 7)}
    assert expected <= {one.launch_id for one in found.open}
    assert len(found.open) <= len(expected) + 1
    assert journal.is_locked(path) is Lock.FREE
    assert all(one.state is not State.ENDED or one.exit for one in found.launches.values())


def test_a_crash_in_every_step_of_shortening(folder: Path) -> None:
    """SIGKILL right before each system call that changes something."""
    script = """
import signal
one = make(sys.argv[1], owner_id="steps", history_limit=3)
one.launching(launch(1))
whole(one, 2)
print(json.dumps(one.path), flush=True)
step = int(sys.argv[2])
def counted(real):
    def call(*args, **kwargs):
        global step
        step -= 1
        if step == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
for name in ("open", "write", "fsync", "replace", "close", "unlink", "fchmod", "lseek", "read"):
    setattr(os, name, counted(getattr(os, name)))
shorten(one)
print(json.dumps("done"), flush=True)
sys.stdin.read()
"""
    steps = 0
    finished = False
    while not finished:
        steps += 1
        with owner_process(script, folder, steps) as owner:
            path = word(owner)
            assert owner.stdout is not None
            finished = owner.stdout.readline() == '"done"\n'
            owner.kill()
            owner.wait()
        found = journal.read(path)
        assert found.complete, steps
        assert [one.launch_id for one in found.open] == ["launch-1"], steps
        assert found.launches["launch-2"].exit == exit_(2), steps
        os.unlink(path)
    assert steps > 10


def test_the_wall_clock_does_not_matter(folder: Path) -> None:
    one = make(folder, clock=lambda: -1.0)
    one.launching(launch(1))
    one.running("launch-1", keeper=None, process=None, sessions=[])
    one.ended("launch-1", replace(exit_(), at=-5.0))
    assert one.path is not None
    assert journal.read(one.path).launches["launch-1"].ended_at == -1.0
    one.close()
