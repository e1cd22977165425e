"""What is left of owners that are gone: newest first, bounded, from every folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.journals import exit_, launch, make, owner_process, whole, word

from jupyter_ownedkernels.journal import history as journal_history
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal import read as journal_read
from jupyter_ownedkernels.journal.journal import Lock
from jupyter_ownedkernels.models import State
from jupyter_ownedkernels.runtime import lock, records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ownedkernels"


def ids(folders: list[Path], limit: int = 100) -> list[str | None]:
    return [entry.launch_id for entry in journal.history(map(str, folders), limit)]


def ended_owner(folder: Path, owner_id: str, *numbers: int, limit: int | None = 500) -> None:
    one = make(folder, owner_id=owner_id, history_limit=limit)
    for number in numbers:
        whole(one, number)
    one.close()


def test_of_living_and_of_ended_owners_newest_first(folder: Path, tmp_path: Path) -> None:
    ended_owner(folder, "first", 1, 5)
    ended_owner(tmp_path / "other", "second", 3)
    living = make(folder, owner_id="third")
    whole(living, 4)
    living.launching(launch(9))
    folders = [folder, tmp_path / "other", tmp_path / "none"]
    assert ids(folders) == [f"launch-{number}" for number in (5, 4, 3, 1)]
    assert ids(folders, 2) == ["launch-5", "launch-4"]
    assert ids(folders, 0) == []
    assert ids([folder, folder]) == ["launch-5", "launch-4", "launch-1"]
    living.close()


def test_it_is_private(folder: Path) -> None:
    old = os.umask(0)
    try:
        ended_owner(folder, "first", 1)
    finally:
        os.umask(old)
    status = os.stat(folder / "history.jsonl")
    assert stat.S_IMODE(status.st_mode) == 0o600


def test_a_launch_that_is_in_both_places_counts_once(folder: Path) -> None:
    one = make(folder, owner_id="first")
    whole(one, 1)
    journal_history.bury(str(folder), one._fold, 10)
    journal_history.bury(str(folder), one._fold, 10)
    assert ids([folder]) == ["launch-1"]
    one.close()
    assert ids([folder]) == ["launch-1"]


def test_equal_launch_ids_of_two_owners_are_two(folder: Path) -> None:
    ended_owner(folder, "first", 1)
    ended_owner(folder, "second", 1)
    assert ids([folder]) == ["launch-1", "launch-1"]


def test_it_is_bounded_and_keeps_the_newest(folder: Path) -> None:
    sizes = []
    for number in range(60):
        ended_owner(folder, f"owner-{number}", number, limit=10)
        sizes.append(os.path.getsize(folder / "history.jsonl"))
    assert max(sizes) < 10 * journal_history._BYTES_PER_ENTRY + 2000
    assert ids([folder], 10) == [f"launch-{number}" for number in range(59, 49, -1)]
    assert os.listdir(folder) == ["history.jsonl"]


def test_one_owner_with_more_than_the_limit(folder: Path) -> None:
    ended_owner(folder, "first", *range(50), limit=5)
    assert ids([folder]) == [f"launch-{number}" for number in range(49, 44, -1)]


def test_it_is_shortened_before_its_end_would_not_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (journal_history, journal_read):
        monkeypatch.setattr(module, "MAX_BYTES", 20_000)
    for number in range(60):
        ended_owner(folder, f"owner-{number}", number, limit=100_000)
        assert ids([folder], 5) == [f"launch-{n}" for n in range(number, -1, -1)][:5]
    assert os.path.getsize(folder / "history.jsonl") <= 10_000 + 2000


def test_who_was_told_no_limit_cuts_off_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_owner(folder, "server", *range(1, 700), limit=5000)
    records_of_it = (folder / "history.jsonl").read_bytes()
    with open(folder / "history.jsonl", "ab") as stream:
        for _ in range(1 + 500 * journal_history._BYTES_PER_ENTRY // len(records_of_it)):
            stream.write(records_of_it)
    ended_owner(folder, "runner", 1000, limit=None)
    assert len(ids([folder], 5000)) == 700
    ended_owner(folder, "server", 1001, limit=500)
    assert len(ids([folder], 5000)) <= 500, "and it would have been cut"
    # Without bound it does not grow either.
    monkeypatch.setattr(journal_history, "MAX_BYTES", 40_000)
    for number in range(2000, 2040):
        ended_owner(folder, f"runner-{number}", number, limit=None)
        assert os.path.getsize(folder / "history.jsonl") < 20_000
    assert ids([folder], 1) == ["launch-2039"]


def test_damage_costs_only_its_line(folder: Path) -> None:
    ended_owner(folder, "first", 1)
    with open(folder / "history.jsonl", "ab") as stream:
        stream.write(b'{"torn')
    ended_owner(folder, "second", 2)
    records.append(str(folder / "history.jsonl"), {"event": "launch", "owner_id": 7})
    records.append(str(folder / "history.jsonl"), {"event": "launch", "owner_id": "x"})
    assert ids([folder]) == ["launch-2", "launch-1"]


@pytest.mark.parametrize("odd", ["link", "folder", "fifo"])
def test_what_is_not_a_file_is_left_alone(odd: str, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    path = folder / "history.jsonl"
    if odd == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif odd == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    one = make(folder, owner_id="first")
    whole(one, 1)
    one.close()
    assert not (tmp_path / "elsewhere").exists()
    assert ids([folder]) == ["launch-1"], "the journal stays, and speaks for itself"
    assert one.path is not None
    assert os.path.exists(one.path)


def test_a_launch_that_never_ran_is_no_history(folder: Path) -> None:
    one = make(folder, owner_id="first")
    one.launching(launch(1))
    one.ended("launch-1", None)
    one.close()
    assert os.listdir(folder) == []


def test_a_line_that_comes_while_it_is_shortened_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace
    path = str(folder / "history.jsonl")

    def overtaken(source: str, target: str) -> None:
        if target == path:
            records.append(path, {"event": "launch", "owner_id": "late", **ended.to_json()})
        real(source, target)

    ended = launch(99, state=State.ENDED, exit=exit_(99), ended_at=9000.0)
    monkeypatch.setattr(os, "replace", overtaken)
    for number in range(30):
        ended_owner(folder, f"owner-{number}", number, limit=10)
    assert ids([folder])[0] == "launch-99"


def test_only_one_shortens(folder: Path) -> None:
    ended_owner(folder, "first", 1, limit=10)
    path = folder / "history.jsonl"
    fd = os.open(path, os.O_RDWR)
    assert lock.take(fd) is Lock.FREE
    for number in range(40):
        ended_owner(folder, f"owner-{number}", number, limit=10)
    assert os.stat(path).st_ino == os.fstat(fd).st_ino
    os.close(fd)
    ended_owner(folder, "last", 50, limit=10)
    assert len(ids([folder])) == 10


ENDING = """
for number in range(30):
    one = make(sys.argv[1], owner_id=f"{sys.argv[2]}-{number}", history_limit=int(sys.argv[3]))
    whole(one, number)
    one.close()
print('"done"', flush=True)
"""


@pytest.mark.parametrize("limit", [1000, 12])
def test_owners_that_end_at_the_same_moment(limit: int, folder: Path) -> None:
    """Three at a time, and with the small bound each shortens what the others write."""
    with (
        owner_process(ENDING, folder, "a", limit) as first,
        owner_process(ENDING, folder, "b", limit) as second,
        owner_process(ENDING, folder, "c", limit) as third,
    ):
        assert [word(one) for one in (first, second, third)] == ["done"] * 3
    found = journal.history([str(folder)], 1000)
    assert os.listdir(folder) == ["history.jsonl"]
    if limit == 1000:
        assert len(found) == 90
    else:
        assert 12 <= len(found) <= 4 * 12
        for name in "abc":
            kept = sorted(
                int(entry.owner_id[2:]) for entry in found if entry.owner_id.startswith(name)
            )
            # The newest of each, or none when the others went on long enough after it. One
            # line may change places with its neighbour when it meets a rename.
            assert not kept or kept[-1] == 29
            assert not kept or len(kept) >= 29 - kept[0]
    assert records.parse((folder / "history.jsonl").read_bytes())[1] == 0
