"""The owner's journal: what is written when, who holds it, and how it stays short."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.journals import (
    OWNER_ID,
    exit_,
    launch,
    make,
    owner_process,
    settled,
    shorten,
    survivor,
    whole,
    word,
)

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.errors import JournalError
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal import read as reading
from jupyter_ownedkernels.journal.journal import Journal, Lock
from jupyter_ownedkernels.models import LaunchRecord, State
from jupyter_ownedkernels.runtime import records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runtime" / "ownedkernels"


@pytest.fixture
def one(folder: Path) -> Iterator[Journal]:
    made = make(folder)
    assert made.open()
    yield made
    made.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def view(one: Journal) -> journal.JournalView:
    assert one.path is not None
    return journal.read(one.path)


def events(one: Journal) -> list[str]:
    assert one.path is not None
    return [record["event"] for record in records.parse(Path(one.path).read_bytes())[0]]


# -- the file ----------------------------------------------------------------------------


def test_it_is_private_complete_and_locked_from_the_start(one: Journal, folder: Path) -> None:
    path = folder / f"owner-{OWNER_ID}.jsonl"
    assert one.path == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert journal.is_locked(one.path) is Lock.LOCKED
    assert (one.writable, one.locked, one.records, one.write_errors) == (True, True, 1, 0)
    assert list(folder.iterdir()) == [path]
    found = view(one)
    assert found.complete
    assert found.owner is not None
    assert found.owner.identity == identity.of_self()
    assert journal.owner_verdict(found) is identity.Verdict.SAME


def test_the_first_launch_opens_it(folder: Path) -> None:
    one = make(folder)
    assert one.path is None
    assert not folder.exists()
    assert one.launching(launch())
    assert [found.launch_id for found in view(one).open] == ["launch-1"]
    one.close()


def test_opening_again_changes_nothing(one: Journal) -> None:
    assert one.path is not None
    before = os.stat(one.path)
    assert one.open()
    assert os.stat(one.path).st_ino == before.st_ino


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_no_umask_changes_its_rights(umask: int, folder: Path) -> None:
    old = os.umask(umask)
    try:
        one = make(folder)
        assert one.open()
    finally:
        os.umask(old)
    assert one.path is not None
    assert stat.S_IMODE(os.stat(one.path).st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    one.close()


@pytest.mark.parametrize("owner_id", ["", "a/b", "../x", "x" * 65, "a\n", "a b"])
def test_an_owner_id_must_be_fit_for_a_file_name(owner_id: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="owner id"):
        make(folder, owner_id=owner_id)


def test_a_launch_from_beginning_to_end(one: Journal, sleeper: subprocess.Popen[bytes]) -> None:
    me, other = identity.of_self(), identity.of_pid(sleeper.pid)
    assert other is not None
    assert one.launching(launch())
    assert one.on_record("launch-1")
    assert not one.on_record("launch-2")
    assert one.running("launch-1", keeper=me, process=me, sessions=[1, 2])
    assert one.kernel("launch-1", other, [3])
    assert one.retiring("launch-1")
    assert one.ended("launch-1", exit_(), [survivor(other)])
    assert events(one) == ["owner", "launching", "running", "kernel", "retiring", "ended"]
    assert one.records == 6
    found = view(one).launches["launch-1"]
    assert found.state is State.ENDED
    assert (found.keeper, found.process, found.kernel) == (me, me, other)
    assert found.sessions == (1, 2, 3)
    assert found.exit == exit_()
    assert view(one).survivors() == [(found, survivor(other), other)]


def test_a_launch_is_on_disk_before_it_happens(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_ino))
    assert one.path is not None
    one.launching(launch())
    assert synced == [os.stat(one.path).st_ino]
    one.running("launch-1", keeper=None, process=None, sessions=[])
    one.ended("launch-1", None)
    assert len(synced) == 1


def test_a_new_file_is_on_disk_before_it_takes_the_place_of_the_old(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    really = {"fsync": os.fsync, "replace": os.replace}

    def noted(name: str) -> Callable[..., None]:
        def step(*args: object) -> None:
            steps.append(name)
            really[name](*args)  # type: ignore[operator]

        return step

    for name in really:
        monkeypatch.setattr(os, name, noted(name))
    shorten(one)
    assert steps == ["fsync", "replace"]


def test_while_the_disk_works_others_may_write(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop must not wait for the disk because a launch does."""
    at_work, done = threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        at_work.set()
        assert done.wait(30)

    monkeypatch.setattr(os, "fdatasync", slow)
    thread = threading.Thread(target=one.launching, args=(launch(),))
    thread.start()
    assert at_work.wait(30)
    assert one.retiring("launch-1")
    assert thread.is_alive()
    done.set()
    thread.join(30)
    assert not thread.is_alive()


def test_many_threads(folder: Path) -> None:
    one = make(folder, compact_bytes=4000, history_limit=1000)

    def launches(begin: int) -> None:
        for number in range(begin, begin + 20):
            whole(one, number)

    threads = [threading.Thread(target=launches, args=(index * 100,)) for index in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = view(one)
    assert found.complete
    assert len(found.launches) == 100
    assert found.open == []
    assert one.write_errors == 0
    one.close()


# -- secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@host:8888/base/?token=s3cret",
        "https://host/lab?token=s3cret#s3cret",
        "http://s3cret@host/",
        "//x:s3cret@[::1/",
    ],
)
def test_an_address_is_written_without_its_token(url: str, folder: Path) -> None:
    owner = replace(journal.this_owner(OWNER_ID), url=url)
    one = Journal(owner, [str(folder)])
    one.open()
    assert one.path is not None
    one.set_url(url)
    assert b"s3cret" not in Path(one.path).read_bytes()
    assert "s3cret" not in journal.this_owner(OWNER_ID, url).url
    one.close()


def test_the_address_may_come_later(one: Journal) -> None:
    assert one.set_url("http://host:8888/base/")
    found = view(one).owner
    assert found is not None
    assert found.url == "http://host:8888/base/"
    assert found.identity == identity.of_self()


def test_no_key_of_a_connection_file_gets_in(one: Journal, tmp_path: Path) -> None:
    file = tmp_path / "kernel-1.json"
    file.write_text(json.dumps({"key": "planted-s3cret", "shell_port": 1, "ip": "127.0.0.1"}))
    one.launching(launch(connection_file=str(file)))
    whole(one, 2)
    one.set_url("http://x/?token=planted-s3cret")
    one.close()
    for path in one_folder(one, tmp_path):
        assert b"planted-s3cret" not in path.read_bytes()


def one_folder(one: Journal, tmp_path: Path) -> list[Path]:
    found = [path for path in tmp_path.rglob("*.jsonl") if path.is_file()]
    assert found
    return found


def test_a_record_that_must_not_be_written_is_an_error_not_an_exception(
    one: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    assert one.launching(launch(1))
    assert one.launching(launch(2))
    assert not one._put({"event": "retiring", "launch_id": "launch-1", "token": "x"})
    assert one.write_errors == 1
    assert one.writable
    assert "token" in caplog.text
    assert not one.on_record("launch-1")
    assert one.on_record("launch-2")


# -- staying short -----------------------------------------------------------------------


def test_it_is_shortened_without_losing_what_matters(
    folder: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    other = identity.of_pid(sleeper.pid)
    assert other is not None
    dead = replace(survivor(other), start_ticks=other.start_ticks - 1)
    one = make(folder, compact_bytes=8000, history_limit=5)
    one.launching(launch(1))
    one.running("launch-1", keeper=other, process=other, sessions=[4])
    whole(one, 2)
    one.ended("launch-2", None, [survivor(other)])
    whole(one, 3)
    one.ended("launch-3", None, [dead])
    for number in range(100, 200):
        whole(one, number)
        settled(one)
    assert one.path is not None
    assert os.path.getsize(one.path) < 3 * 8000
    found = view(one)
    assert found.complete
    assert found.open == [
        launch(
            1,
            state=State.RUNNING,
            keeper=other,
            process=other,
            sessions=(4,),
            running_at=found.launches["launch-1"].running_at,
        )
    ]
    assert found.launches["launch-2"].survivors == (survivor(other),)
    assert "launch-3" not in found.launches
    assert [f"launch-{number}" in found.launches for number in range(195, 200)] == [True] * 5
    assert one.records == len(records.parse(Path(one.path).read_bytes())[0])
    assert list(folder.iterdir()) == [Path(one.path)]
    one.close()


def test_the_lock_holds_while_it_is_shortened(one: Journal) -> None:
    assert one.path is not None
    seen: set[Lock] = set()
    stop = threading.Event()

    def watch(path: str) -> None:
        while not stop.is_set():
            seen.add(journal.is_locked(path))

    thread = threading.Thread(target=watch, args=(one.path,))
    thread.start()
    before = os.stat(one.path).st_ino
    for _ in range(50):
        shorten(one)
    stop.set()
    thread.join(30)
    assert os.stat(one.path).st_ino != before or one.records
    assert seen == {Lock.LOCKED}


def test_what_others_append_survives_shortening(one: Journal) -> None:
    assert one.path is not None
    other = survivor(identity.of_self())
    one.launching(launch(1))
    records.append(
        one.path,
        {"event": "detached", "launch_id": "launch-1", "survivor": other.to_json(), "at": 1.0},
    )
    records.append(one.path, {"v": 9, "event": "from the future"})
    shorten(one)
    assert view(one).launches["launch-1"].survivors == (other,)
    assert view(one).reason == "another version of this package wrote to it"
    shorten(one)
    assert "from the future" in events(one)


@pytest.mark.parametrize("when", ["before the rename", "after the rename", "to the new file"])
def test_what_others_append_meanwhile_survives(
    when: str, one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer by path has the old file open, or the new one as soon as it has its name."""
    assert one.path is not None
    one.launching(launch(1))
    late = {"event": "retiring", "launch_id": "launch-1", "at": 1.0}
    old = os.open(one.path, os.O_RDWR | os.O_APPEND)
    real = os.replace

    def replaced(source: str, target: str) -> None:
        if when == "before the rename":
            records.append(old, late)
        real(source, target)
        if when == "after the rename":
            records.append(old, late)
        elif when == "to the new file":
            records.append(target, late)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        shorten(one)
    os.close(old)
    assert view(one).launches["launch-1"].state is State.RETIRING
    shorten(one)
    assert view(one).launches["launch-1"].state is State.RETIRING


def test_a_record_seen_in_the_middle_of_its_write_survives(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one.path is not None
    one.launching(launch(1))
    records.append(one.path, {"event": "recovered", "at": 1.0})
    line = records.encode({"event": "retiring", "launch_id": "launch-1", "at": 1.0})
    old = os.open(one.path, os.O_RDWR | os.O_APPEND)
    os.write(old, line[:30])
    real = os.replace

    def replaced(source: str, target: str) -> None:
        os.write(old, line[30:])
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        one._shorten()
    os.close(old)
    assert view(one).launches["launch-1"].state is State.RETIRING


def test_writers_by_path_lose_nothing_while_it_is_shortened_again_and_again(
    folder: Path,
) -> None:
    one = make(folder, history_limit=1_000_000)
    one.open()
    assert one.path is not None
    script = """
import select, time
from jupyter_ownedkernels.runtime import records
print('"ready"', flush=True)
number = 0
while not select.select([sys.stdin], [], [], 0.0003)[0]:
    records.append(sys.argv[1], {"event": "recovered", "count": number, "message": sys.argv[2],
                                 "at": number})
    number += 1
print(number, flush=True)
"""
    with (
        owner_process(script, one.path, "a") as first,
        owner_process(script, one.path, "b") as second,
    ):
        assert word(first) == word(second) == "ready"
        for _ in range(15):
            shorten(one)
        for writer in (first, second):
            assert writer.stdin is not None
            writer.stdin.close()
        written = {"a": word(first), "b": word(second)}
    assert min(written.values()) > 0
    found = [(entry.message, entry.count) for entry in view(one).history]
    assert sorted(found) == [(name, n) for name in "ab" for n in range(written[name])]
    one.close()


def test_writers_do_not_wait_for_a_file_to_be_shortened(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what they write meanwhile lost."""
    at_work, done = threading.Event(), threading.Event()
    real = os.fsync

    def slow(fd: int) -> None:
        at_work.set()
        assert done.wait(30)
        real(fd)

    in_the_new_file: list[str] = []
    replace_ = os.replace

    def replaced(source: str, target: str) -> None:
        replace_(source, target)
        # A crash right here must not cost what the owner itself has written.
        in_the_new_file.extend(found.launch_id for found in journal.read(target).open)

    one.launching(launch(1))
    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(os, "replace", replaced)
    one._compact_at = 0
    one.ended("launch-9", None)
    assert at_work.wait(30)
    assert one.launching(launch(2))
    assert one.retiring("launch-1")
    assert one.path is not None
    records.append(one.path, {"event": "retiring", "launch_id": "launch-2", "at": 1.0})
    before = os.stat(one.path).st_ino
    done.set()
    settled(one)
    assert os.stat(one.path).st_ino != before
    assert [found.state for found in view(one).open] == [State.RETIRING, State.RETIRING]
    assert one._fold.launches["launch-2"].state is State.RETIRING
    assert in_the_new_file == ["launch-1", "launch-2"]


@pytest.mark.parametrize("what", ["removed", "closed"])
def test_a_file_that_goes_while_it_is_shortened(
    what: str, one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, done = threading.Event(), threading.Event()
    real = os.fsync

    def slow(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        at_work.set()
        assert done.wait(30)

    one.launching(launch(1))
    assert one.path is not None
    monkeypatch.setattr(os, "fsync", slow)
    one._compact_at = 0
    one.ended("launch-9", None)
    assert at_work.wait(30)
    if what == "removed":
        os.unlink(one.path)
        assert one.retiring("launch-1")
    else:
        one._closed = True
    before = os.stat(one.path).st_ino
    done.set()
    settled(one)
    one._closed = False
    assert os.listdir(os.path.dirname(one.path)) == [os.path.basename(one.path)]
    assert os.stat(one.path).st_ino == before
    expected = State.RETIRING if what == "removed" else State.LAUNCHING
    assert [found.state for found in view(one).open] == [expected]
    assert journal.is_locked(one.path) is Lock.LOCKED


def test_when_shortening_fails_the_old_file_goes_on(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.launching(launch(1))
    assert one.path is not None
    before = os.stat(one.path).st_ino

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        shorten(one)
    assert one.writable
    assert os.stat(one.path).st_ino == before
    assert len(os.listdir(os.path.dirname(one.path))) == 1
    assert one.running("launch-1", keeper=None, process=None, sessions=[])
    assert view(one).launches["launch-1"].state is State.RUNNING


def test_a_new_file_in_place_of_a_lost_one_holds_what_matters(folder: Path) -> None:
    one = make(folder, history_limit=3)
    for number in range(20):
        whole(one, number)
    one.launching(launch(50))
    assert one.path is not None
    os.unlink(one.path)
    one.retiring("launch-50")
    assert sorted(view(one).launches) == ["launch-17", "launch-18", "launch-19", "launch-50"]
    one.close()


def test_memory_is_bounded_too(folder: Path) -> None:
    one = make(folder, history_limit=3)
    for number in range(300):
        whole(one, number)
    assert len(one._fold.launches) < 120
    one.close()


# -- the end of the owner ------------------------------------------------------------------


def test_it_goes_when_nothing_on_record_runs(one: Journal, folder: Path) -> None:
    whole(one, 1)
    path = one.path
    one.close()
    one.close()
    assert path is not None
    assert not os.path.exists(path)
    (entry,) = journal.history([str(folder)])
    assert (entry.launch_id, entry.owner_id) == ("launch-1", OWNER_ID)
    assert not one.launching(launch(2))
    assert not one.open()
    assert os.listdir(folder) == ["history.jsonl"]


def test_without_history_nothing_is_left(one: Journal, folder: Path) -> None:
    one.close()
    assert os.listdir(folder) == []


def test_it_stays_unlocked_while_something_may_run(
    folder: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    other = identity.of_pid(sleeper.pid)
    assert other is not None
    one = make(folder)
    whole(one, 1)
    one.ended("launch-1", None, [survivor(other)])
    one.close()
    assert one.path is not None
    assert journal.is_locked(one.path) is Lock.FREE
    assert view(one).survivors()[0][2] == other
    assert journal.history([str(folder)])[0].launch_id == "launch-1"

    again = make(folder, owner_id="second")
    again.launching(launch(2))
    again.close()
    assert [found.launch_id for found in view(again).open] == ["launch-2"]


def test_an_owner_without_launches_and_without_file_closes(folder: Path) -> None:
    make(folder).close()
    assert not folder.exists()


# -- forked children -----------------------------------------------------------------------


def test_a_forked_child_neither_writes_nor_holds_the_lock(folder: Path) -> None:
    script = """
one = make(sys.argv[1])
one.launching(launch(1))
pid = os.fork()
if pid == 0:
    for late in (one.launching(launch(2)), one.ended("launch-1", None), one.open()):
        assert late is False
    one.close()
    os.write(1, b"%d\\n" % os.getpid())
    sys.stdin.read()
    os._exit(0)
os.write(1, json.dumps(one.path).encode() + b"\\n")
os.waitpid(pid, 0)
"""
    with owner_process(script, folder) as owner:
        words = {type(found): found for found in (word(owner), word(owner))}
        path, child = words[str], words[int]
        assert journal.is_locked(path) is Lock.LOCKED
        owner.kill()
        owner.wait()
        assert identity.of_pid(child) is not None
        assert journal.is_locked(path) is Lock.FREE
        found = journal.read(path)
        assert [one.launch_id for one in found.open] == ["launch-1"]
        assert found.complete
        owner.stdin.close()  # type: ignore[union-attr]


# -- reading ---------------------------------------------------------------------------------


def test_reading_what_is_not_a_journal(tmp_path: Path) -> None:
    fifo = tmp_path / "owner-fifo.jsonl"
    os.mkfifo(fifo)
    link = tmp_path / "owner-link.jsonl"
    link.symlink_to(tmp_path / "owner-real.jsonl")
    (tmp_path / "owner-real.jsonl").write_bytes(b"")
    for path in (fifo, link, tmp_path, tmp_path / "none"):
        with pytest.raises(JournalError):
            journal.read(str(path))
    views, problems = journal.read_all(
        [str(tmp_path / "owner-real.jsonl"), str(link), str(tmp_path / "none")]
    )
    assert [found.complete for found in views] == [False]
    assert len(problems) == 1


def test_what_is_missing_is_said(one: Journal) -> None:
    assert one.path is not None
    one.launching(launch(1))
    data = Path(one.path).read_bytes()
    lines = data.splitlines(keepends=True)
    copy = Path(one.path).with_name("owner-copy.jsonl")

    def read(content: bytes) -> journal.JournalView:
        copy.write_bytes(content)
        return journal.read(str(copy))

    assert read(data).complete
    torn = read(data[:-20])
    assert (torn.complete, torn.torn, torn.damaged) == (True, True, 0)
    damaged = read(lines[0] + b"x" + lines[1])
    assert (damaged.complete, damaged.torn, damaged.damaged) == (False, False, 1)
    assert damaged.reason == "1 of its lines are damaged"
    assert "launch-1" in damaged.launches
    assert read(lines[1]).reason == "it does not name its owner"
    assert read(b"").reason == "it does not name its owner"


def test_a_file_beyond_the_bound_is_not_complete(
    one: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one.path is not None
    whole(one, 1)
    monkeypatch.setattr(reading, "MAX_BYTES", os.path.getsize(one.path) - 1)
    found = view(one)
    assert (found.complete, found.reason) == (False, "it is too long to be read")
    assert found.owner is not None


def test_warnings_are_few(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = make(folder)
    whole(one, 1)
    one.close()
    assert caplog.records == []


def test_records_hold_whatever_a_kernel_is_called(one: Journal) -> None:
    odd: LaunchRecord = launch(
        1, kernel_name="two\nlines", connection_file="/tmp/a b\n\udcff/kernel-\u2028.json"
    )
    one.launching(odd)
    assert view(one).open == [odd]
