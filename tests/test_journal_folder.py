"""Where a journal lies when it cannot lie where it should, and who finds it there."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support import elsewhere
from support.journals import OWNER_ID, launch, make, shorten, whole

from jupyter_ownedkernels.errors import JournalError
from jupyter_ownedkernels.journal import folder as journal_folder
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal, Lock
from jupyter_ownedkernels.runtime import lock, records

NAME = f"owner-{OWNER_ID}.jsonl"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session folder and a temporary folder that are this test's alone."""
    for name in ("session", "temporary"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


@pytest.fixture
def runtime(home: Path) -> str:
    return str(home / "runtime")


def opened(runtime: str, **options: Any) -> Journal:
    one = Journal(journal.this_owner(OWNER_ID), journal.candidates(runtime), **options)
    one.open()
    return one


def private(home: Path) -> tuple[Path, Path]:
    return home / "session" / "ownedkernels", home / "temporary" / f"ownedkernels-{os.geteuid()}"


# -- the order of places -----------------------------------------------------------------


def test_the_places_in_their_order(home: Path, runtime: str) -> None:
    main = os.path.join(runtime, "ownedkernels")
    assert journal.candidates(runtime) == [main, *map(str, private(home))]
    assert journal.folders(runtime) == journal.candidates(runtime)
    assert journal.candidates(runtime, "/else") == ["/else", *map(str, private(home))]
    assert journal.folders(runtime, "/else") == ["/else", *journal.folders(runtime)]


def test_without_a_session_folder_that_of_the_login_manager_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert f"/run/user/{os.geteuid()}/ownedkernels" in journal_folder.private_folders()


def test_a_network_home_is_the_last_choice(
    home: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = os.path.join(runtime, "ownedkernels")
    for kind, network in [("nfs4", True), ("fuse.sshfs", True), ("cifs", True), ("ext4", False)]:
        device = os.stat(home).st_dev
        monkeypatch.setattr(journal_folder, "_mounts", lambda d=device, k=kind: {d: k})
        first = journal.candidates(runtime)[0]
        assert (first != main) is network
        assert main in journal.candidates(runtime)
        assert journal.candidates(runtime, main)[0] == main


@elsewhere.needs_root
def test_the_kind_of_a_mount_is_read_from_the_system(home: Path) -> None:
    kinds = elsewhere.run(
        """
        mount("-t", "tmpfs", "none", sys.argv[1])
        status = os.stat(sys.argv[1])
        answer([journal_folder._mounts()[status.st_dev], journal_folder.is_network(sys.argv[1])])
        """,
        home,
        unshare=["--mount"],
    )
    assert kinds == ["tmpfs", False]


# -- the first choice ---------------------------------------------------------------------


def test_a_path_of_200_characters(home: Path) -> None:
    runtime = home
    while len(str(runtime)) < 200:
        runtime = runtime / "a folder with a long name"
    one = opened(str(runtime))
    assert one.path == str(runtime / "ownedkernels" / NAME)
    assert one.launching(launch())
    one.close()


def test_a_path_that_is_too_long_for_the_system_falls_back(home: Path) -> None:
    one = opened(str(home) + "/" + "x" * 300)
    assert one.path == str(private(home)[0] / NAME)
    assert "too long" in one.reason
    one.close()


@pytest.mark.parametrize("name", ["two\nlines", "a b", "ünï", "\udcff"])
def test_odd_names_of_folders(name: str, home: Path) -> None:
    one = opened(str(home / name))
    assert one.path == str(home / name / "ownedkernels" / NAME)
    assert journal.find(journal.folders(str(home / name))) == [one.path]
    assert journal.is_locked(one.path) is Lock.LOCKED
    one.close()


@pytest.mark.parametrize("link", ["runtime", "runtime/ownedkernels"])
def test_a_folder_may_be_a_link(link: str, home: Path, runtime: str) -> None:
    real = home / "elsewhere"
    real.mkdir()
    (home / link).parent.mkdir(exist_ok=True)
    (home / link).symlink_to(real)
    one = opened(runtime)
    assert one.path == os.path.join(runtime, "ownedkernels", NAME)
    assert one.launching(launch())
    assert journal.find(journal.folders(runtime)) == [one.path]
    one.close()


def test_an_open_folder_is_closed_to_others(home: Path, runtime: str) -> None:
    folder = home / "runtime" / "ownedkernels"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    one = opened(runtime)
    assert one.path == str(folder / NAME)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    one.close()


# -- the fall-back ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["file", "dangling link"])
def test_something_else_lies_there(what: str, home: Path, runtime: str) -> None:
    os.mkdir(runtime)
    if what == "file":
        Path(runtime, "ownedkernels").touch()
    else:
        Path(runtime, "ownedkernels").symlink_to(home / "nowhere")
    one = opened(runtime)
    assert one.path == str(private(home)[0] / NAME)
    assert stat.S_IMODE(private(home)[0].stat().st_mode) == 0o700
    assert journal.find(journal.folders(runtime)) == [one.path]
    one.close()


def test_rights_that_are_not_honoured(
    home: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(runtime, "ownedkernels")
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)
    one = opened(runtime)
    assert one.path == str(private(home)[0] / NAME)
    assert "0700" in one.reason
    one.close()


def test_without_a_session_folder_the_temporary_one(home: Path, runtime: str) -> None:
    Path(runtime).touch()
    (home / "session").rmdir()
    one = opened(runtime)
    assert one.path == str(private(home)[1] / NAME)
    one.close()


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_session_folder_that_others_may_change_is_refused(
    mode: int, home: Path, runtime: str
) -> None:
    Path(runtime).touch()
    (home / "session").chmod(mode)
    one = opened(runtime)
    assert one.path == str(private(home)[1] / NAME)
    assert not private(home)[0].exists()
    one.close()


def test_a_shared_temporary_folder_needs_its_sticky_bit(home: Path, runtime: str) -> None:
    Path(runtime).touch()
    (home / "session").rmdir()
    (home / "temporary").chmod(0o777)
    assert not opened(runtime).writable
    (home / "temporary").chmod(0o1777)
    one = opened(runtime)
    assert one.path == str(private(home)[1] / NAME)
    one.close()


def test_a_link_in_place_of_a_private_folder_is_refused(home: Path, runtime: str) -> None:
    Path(runtime).touch()
    trap = home / "trap"
    trap.mkdir(mode=0o700)
    for folder in private(home):
        folder.symlink_to(trap)
    one = opened(runtime)
    assert not one.writable
    assert list(trap.iterdir()) == []


@elsewhere.needs_root
def test_a_private_folder_of_another_user_is_refused(home: Path, runtime: str) -> None:
    Path(runtime).touch()
    (home / "session").rmdir()
    squatted = private(home)[1]
    squatted.mkdir(mode=0o700)
    os.chown(squatted, elsewhere.NOBODY, elsewhere.NOBODY)
    one = opened(runtime)
    assert not one.writable
    assert "another user" in one.reason
    assert list(squatted.iterdir()) == []


@elsewhere.needs_root
def test_a_parent_of_another_user_is_refused(home: Path) -> None:
    os.chown(home / "temporary", elsewhere.NOBODY, elsewhere.NOBODY)
    with pytest.raises(JournalError, match="others may change"):
        journal_folder.prepare(str(private(home)[1]))


@elsewhere.needs_root
@pytest.mark.parametrize("unusable", ["read-only", "full", "no inodes"])
def test_a_disk_that_cannot_be_written(unusable: str, home: Path, runtime: str) -> None:
    os.mkdir(runtime)
    path, journaled, reason, found = elsewhere.run(
        """
        runtime, unusable = sys.argv[1:]
        options = {"read-only": "ro", "full": "size=4k", "no inodes": "nr_inodes=1"}[unusable]
        mount("-t", "tmpfs", "-o", options, "none", runtime)
        if unusable == "full":
            os.mkdir(runtime + "/ownedkernels", 0o700)
            with open(runtime + "/filler", "wb") as filler:
                filler.write(b"x" * 4096)
        one = journal.Journal(journal.this_owner("o"), journal.candidates(runtime))
        journaled = one.launching(LaunchRecord("l", "k", 1, "n", "/c"))
        answer([one.path, journaled and one.on_record("l"), one.reason,
                journal.find(journal.folders(runtime))])
        """,
        runtime,
        unusable,
        unshare=["--mount"],
        env={"TMPDIR": tempfile.gettempdir()},
    )
    assert path == str(private(home)[0] / "owner-o.jsonl")
    assert journaled
    assert runtime in reason
    assert found == [path]


@elsewhere.needs_root
def test_an_unprivileged_user_whose_runtime_folder_is_not_his(home: Path, runtime: str) -> None:
    os.mkdir(runtime)
    shutil.rmtree(home / "session")
    path, mode, uid, found = elsewhere.run(
        """
        mount("-t", "tmpfs", "-o", "mode=1777", "none", os.environ["TMPDIR"])
        become_nobody()
        one = journal.Journal(journal.this_owner("o"), journal.candidates(sys.argv[1]))
        one.open()
        status = os.stat(one.path)
        answer([one.path, status.st_mode & 0o777, status.st_uid,
                journal.find(journal.folders(sys.argv[1]))])
        """,
        runtime,
        unshare=["--mount"],
        env={"TMPDIR": "/mnt", "HOME": "/nonexistent"},
    )
    assert path == "/mnt/ownedkernels-65534/owner-o.jsonl"
    assert (mode, uid) == (0o600, elsewhere.NOBODY)
    assert found == [path]


def locks_never(*_: object) -> Lock:
    return Lock.UNKNOWN


def test_where_files_cannot_be_locked_another_place_is_taken(
    home: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lock.take

    def take(fd: int) -> Lock:
        there = os.readlink(f"/proc/self/fd/{fd}")
        return Lock.UNKNOWN if there.startswith(runtime) else real(fd)

    monkeypatch.setattr(lock, "take", take)
    one = opened(runtime)
    assert one.path == str(private(home)[0] / NAME)
    assert one.locked
    assert "cannot be locked" in one.reason
    assert os.listdir(os.path.join(runtime, "ownedkernels")) == []
    one.close()


def test_where_nothing_can_be_locked_it_goes_without(
    home: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "take", locks_never)
    one = opened(runtime)
    assert one.path == os.path.join(runtime, "ownedkernels", NAME)
    assert (one.writable, one.locked) == (True, False)
    assert one.launching(launch())
    shorten(one)
    assert one.writable
    one.close()


# -- nowhere, and back --------------------------------------------------------------------


def nowhere(home: Path, runtime: str) -> list[Path]:
    """Files where folders should be: true for root as well."""
    blocks = [Path(runtime), *private(home)]
    for block in blocks:
        block.touch()
    return blocks


def test_without_any_place_a_kernel_is_unjournaled_and_nothing_is_raised(
    home: Path, runtime: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    blocks = nowhere(home, runtime)
    one = opened(runtime)
    for number in range(5):
        assert not one.launching(launch(number))
        assert not one.running(f"launch-{number}", keeper=None, process=None, sessions=[])
    assert not one.on_record("launch-1")
    assert (one.writable, one.path) == (False, None)
    assert one.write_errors == 11
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be put on record" in caplog.text

    one.ended("launch-2", None)
    for block in blocks:
        block.unlink()
    assert not one.retiring("launch-1")  # only a launch tries again
    assert one.launching(launch(9))
    assert one.writable
    assert one.on_record("launch-1")
    assert one.path is not None
    found = journal.read(one.path)
    assert found.complete
    assert {one.launch_id for one in found.open} == {f"launch-{n}" for n in (0, 1, 3, 4, 9)}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    one.close()


def test_closing_without_any_place(home: Path, runtime: str) -> None:
    nowhere(home, runtime)
    one = opened(runtime)
    one.launching(launch())
    one.close()
    assert not one.open()


# -- removed, full or moved while running ----------------------------------------------------


@pytest.mark.parametrize("removed", ["file", "folder", "runtime folder", "replaced"])
def test_removed_while_running(removed: str, runtime: str) -> None:
    one = opened(runtime)
    assert one.path is not None
    one.launching(launch(1))
    whole(one, 2)
    if removed == "file":
        os.unlink(one.path)
    elif removed == "replaced":
        os.replace(shutil.copy(one.path, one.path + ".copy"), one.path)
    else:
        shutil.rmtree(os.path.dirname(one.path) if removed == "folder" else runtime)
    assert one.retiring("launch-1")
    found = journal.read(os.path.join(runtime, "ownedkernels", NAME))
    assert [one.launch_id for one in found.open] == ["launch-1"]
    assert found.launches["launch-2"].exit is not None
    assert journal.is_locked(one.path) is Lock.LOCKED
    assert one.launching(launch(3))
    one.close()
    assert len(journal.read(one.path).open) == 2


def test_removed_and_closed(runtime: str) -> None:
    one = opened(runtime)
    shutil.rmtree(runtime)
    one.close()
    assert not os.path.exists(runtime)


def test_removed_with_no_way_back(home: Path, runtime: str) -> None:
    one = opened(runtime)
    one.launching(launch(1))
    shutil.rmtree(runtime)
    blocks = nowhere(home, runtime)
    assert not one.retiring("launch-1")
    assert not one.writable
    for block in blocks:
        block.unlink()
    assert one.launching(launch(2))
    assert one.path is not None
    assert len(journal.read(one.path).open) == 2
    one.close()


@elsewhere.needs_root
def test_a_disk_that_fills_up_while_running(home: Path, runtime: str) -> None:
    os.mkdir(runtime)
    first, second, answers, ids, left, complete = elsewhere.run(
        """
        runtime = sys.argv[1]
        mount("-t", "tmpfs", "-o", "size=64k", "none", runtime)
        one = journal.Journal(journal.this_owner("o"), journal.candidates(runtime))
        one.launching(LaunchRecord("l0", "k", 1, "n", "/c"))
        first = one.path
        with open(runtime + "/filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 512)
            except OSError:
                pass
        more = [LaunchRecord(f"l{number}", "k", 1, "n" * 400, "/c") for number in range(1, 20)]
        answers = [one.launching(record) for record in more]
        view = journal.read(one.path)
        left = os.listdir(runtime + "/ownedkernels")
        answer([first, one.path, answers, sorted(view.launches), left, view.complete])
        """,
        runtime,
        unshare=["--mount"],
        env={"TMPDIR": tempfile.gettempdir()},
    )
    assert first == os.path.join(runtime, "ownedkernels", "owner-o.jsonl")
    assert second == str(private(home)[0] / "owner-o.jsonl")
    assert answers == [True] * 19
    assert ids == sorted(f"l{number}" for number in range(20))
    assert left == []
    assert complete


# -- finding -------------------------------------------------------------------------------


def test_only_journals_are_found(home: Path) -> None:
    folder = home / "f"
    folder.mkdir()
    good = folder / "owner-a.jsonl"
    for name in (good.name, ".owner-b.jsonl.11ee.tmp", "owner-.jsonl", "owner-a b.jsonl", "x.jsonl",
                 "history.jsonl", "owner-c.jsonl\n", "owner-d.json"):  # fmt: skip
        (folder / name).touch()
    (folder / "owner-link.jsonl").symlink_to(good)
    (folder / "owner-folder.jsonl").mkdir()
    os.mkfifo(folder / "owner-fifo.jsonl")
    assert journal.find([str(folder), str(home / "none"), str(good)]) == [str(good)]


@elsewhere.needs_root
def test_journals_of_others_are_not_found_by_root_either(home: Path) -> None:
    folder = home / "f"
    folder.mkdir(mode=0o755)
    for name, user in (("owner-mine.jsonl", 0), ("owner-his.jsonl", elsewhere.NOBODY)):
        (folder / name).touch()
        os.chown(folder / name, user, user)
    assert journal.find([str(folder)]) == [str(folder / "owner-mine.jsonl")]
    home.chmod(0o755)
    names = elsewhere.run(
        """
        mount("--bind", sys.argv[1], "/mnt")
        become_nobody()
        answer(journal.find(["/mnt"]))
        """,
        folder,
        unshare=["--mount"],
    )
    assert names == ["/mnt/owner-his.jsonl"]


@elsewhere.needs_root
def test_a_folder_that_cannot_be_read_may_hold_any(home: Path) -> None:
    """Of the user's own. In another's there is none of this user, whatever it is called."""
    home.chmod(0o755)
    for name, user in (("mine", elsewhere.NOBODY), ("his", 0)):
        (home / name / "below").mkdir(parents=True)
        (home / name).chmod(0o700)
        os.chown(home / name, user, user)
    said = elsewhere.run(
        """
        from jupyter_ownedkernels.owners import gather
        mount("--bind", sys.argv[1], "/mnt")
        gather(["/mnt"])
        become_nobody()
        mine, his = "/mnt/mine", "/mnt/his"
        open(mine + "/owner-a.jsonl", "w").close()
        folders = [mine, his, his + "/below", "/mnt/none", mine + "/owner-a.jsonl"]
        said = [journal.search(folders)]
        for mode in (0, 0o400, 0o100):
            os.chmod(mine, mode)
            said += [journal.search(folders), gather(iter(folders)).incomplete]
        answer(said)
        """,
        home,
        unshare=["--mount"],
    )
    problem = "/mnt/mine: Permission denied"
    assert said == [[["/mnt/mine/owner-a.jsonl"], []], *[[[], [problem]], problem] * 3]


@pytest.mark.parametrize("left", [".owner-a.jsonl.00ff.tmp", "history.jsonl.4711.tmp"])
def test_leftovers_of_a_crash_are_removed_when_they_are_old(runtime: str, left: str) -> None:
    folder = Path(runtime, "ownedkernels")
    folder.mkdir(parents=True)
    old, young, other = (folder / name for name in (left, ".owner-b.jsonl.11ee.tmp", "notes.tmp"))
    for path in (old, young, other):
        path.touch()
        if path != young:
            os.utime(path, (1, 1))
    one = opened(runtime)
    assert sorted(folder.iterdir()) == sorted([young, other, Path(str(one.path))])
    one.close()


def test_a_locked_leftover_is_somebodys_work(home: Path) -> None:
    one = make(home / "f")
    one.open()
    assert one.path is not None
    working = os.path.join(home, "f", ".owner-z.jsonl.22dd.tmp")
    os.rename(one.path, working)
    os.utime(working, (1, 1))
    other = make(home / "f", owner_id="other")
    other.open()
    assert os.path.exists(working)
    other.close()
    records.append(working, {"event": "x"})
