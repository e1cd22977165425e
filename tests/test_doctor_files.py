"""Which files are called stale: by a table of processes, journals and a list of files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tables import NOW, UID, WORLD, Table, gone, launch, view

from jupyter_ownedkernels.connections import Candidate, FileIdentity, Listing, Ports, Server
from jupyter_ownedkernels.doctor.files import Questions, Verdicts, stale_files
from jupyter_ownedkernels.identity import Identity
from jupyter_ownedkernels.journal.place import why_shared
from jupyter_ownedkernels.models import State

FOLDER = "/run/user/1000/jupyter"
FILE = f"{FOLDER}/kernel-1.json"
DEAD = gone(50)
PORTS = Ports("tcp", "127.0.0.1", (50001, 50002))


def file(path: str = FILE, age: float = 7200.0, **fields: Any) -> Candidate:
    made = NOW - age
    return Candidate(path, FileIdentity(1, hash(path), int(made * 1e9)), UID, made, **fields)


def server_file(pid: int, suffix: str = ".json", **fields: Any) -> Candidate:
    return file(f"{FOLDER}/jpserver-{pid}{suffix}", server_pid=pid, **fields)


def judge(
    table: Table,
    *files: Candidate,
    views: Any = (),
    alive: Any = (),
    locked: Any = (),
    problems: Any = (),
    unreadable: Any = (),
    servers: dict[int, Server] | None = None,
    **questions: Any,
) -> Verdicts:
    asked: dict[str, Any] = {
        "ports_of": lambda path: PORTS,
        "server_of": lambda path: (servers or {}).get(
            int(path.rpartition("-")[2].partition(".")[0])
        ),
        "why_shared": lambda folder: "",
        "is_empty": lambda path: False,
    }
    owners = table.owners(*views, locked=tuple(locked), problems=tuple(problems))
    listing = Listing(list(files), list(unreadable))
    return stale_files(owners, listing, alive, 3600.0, Questions(**{**asked, **questions}))


def stale(verdicts: Verdicts) -> list[str | None]:
    return [item.finding.path for item in verdicts.items if item.finding.kind == "stale_file"]


# -- connection files without a journal ------------------------------------------------


def test_an_old_file_that_nothing_uses_is_stale() -> None:
    found = judge(Table(), file())
    (item,) = found.items
    assert item.finding.kind == "stale_file"
    assert item.finding.action == "remove"
    assert item.finding.by_default
    assert item.finding.age_s == pytest.approx(7200)
    assert item.file == file().file
    assert found.incomplete == ""


def test_a_young_file_is_not() -> None:
    assert stale(judge(Table(), file(age=3599))) == []
    assert stale(judge(Table(), file(age=-5))) == []


@pytest.mark.parametrize(
    "argument",
    [
        FILE,
        "kernel-1.json",
        f"-f={FILE}",
        f"exec python -m ipykernel_launcher -f '{FILE}'; exit $?",
        "/the/same/folder/by/another/path/kernel-1.json",
    ],
)
@pytest.mark.parametrize("uid", [UID, 0, 4242])
def test_a_file_that_a_process_names_is_in_use(argument: str, uid: int) -> None:
    table = Table()
    table.add(100, argv=("python", argument), uid=uid)
    assert stale(judge(table, file())) == []


def test_a_zombie_uses_nothing() -> None:
    table = Table()
    table.add(100, argv=("python", FILE), state="Z")
    assert stale(judge(table, file())) == [FILE]


@pytest.mark.parametrize("path", [FILE, "/another/way/kernel-1.json", f"{FILE} (deleted)"])
def test_a_file_that_a_process_has_open_is_in_use(path: str) -> None:
    table = Table()
    table.add(100)
    table.reader.files[100] = ["/dev/null", path]
    assert stale(judge(table, file())) == []


def test_a_file_with_a_listener_on_its_ports_is_in_use() -> None:
    table = Table()
    table.reader.ports.add(50002)
    assert stale(judge(table, file())) == []


def test_a_file_that_does_not_tell_its_ports_is_kept() -> None:
    assert stale(judge(Table(), file(), ports_of=lambda path: None)) == []


def test_an_empty_file_can_have_no_listener() -> None:
    found = judge(Table(), file(), ports_of=lambda path: None, is_empty=lambda path: True)
    assert stale(found) == [FILE]


def test_a_kernel_on_another_machine_is_not_judged() -> None:
    elsewhere = Ports("tcp", "203.0.113.7", (50001,))
    assert stale(judge(Table(), file(), ports_of=lambda path: elsewhere)) == []


def test_another_users_file_is_not_judged() -> None:
    assert stale(judge(Table(), replace_uid(file()))) == []


def replace_uid(candidate: Candidate) -> Candidate:
    return candidate._replace(uid=UID + 1)


def test_files_where_other_machines_write_are_one_unknown_finding() -> None:
    found = judge(
        Table(),
        file(),
        file(f"{FOLDER}/kernel-2.json"),
        why_shared=lambda folder: "the folder is on a network file system",
    )
    assert stale(found) == []
    (item,) = found.items
    assert (item.finding.kind, item.finding.action) == ("unknown", None)
    assert item.finding.path == FOLDER
    assert "2 old files" in item.finding.proofs[1]


# -- incomplete looks ------------------------------------------------------------------


def test_nothing_is_stale_when_processes_may_be_hidden() -> None:
    table = Table()
    table.incomplete = "/proc is mounted with hidepid"
    found = judge(table, file(), server_file(70), views=[view(DEAD, launch())])
    assert found.items == []
    assert "hidepid" in found.incomplete


def test_open_files_that_may_not_be_read_are_no_doubt_where_ports_prove_it() -> None:
    table = Table()
    table.add(100, argv=("ssh-agent",))
    table.reader.unreadable.add(100)
    aside = file(f"{FOLDER}/renamed", named=f"{FOLDER}/kernel-2.json")
    found = judge(table, file(), aside)
    assert found.incomplete == ""
    assert stale(found) == [FILE, aside.path]
    assert any("1 of the user's" in proof for proof in found.items[0].finding.proofs)
    table.reader.ports.add(50001)
    assert stale(judge(table, file())) == []


@pytest.mark.parametrize("named", ["", FILE])
def test_but_a_file_without_ports_stays_beside_such_a_process(named: str) -> None:
    table = Table()
    table.add(100, argv=("ssh-agent",))
    empty, other = file(f"{FOLDER}/kernel-2.json", named=named), file("/run/x/kernel-3.json")

    def ask() -> Verdicts:
        return judge(table, empty, other, is_empty=lambda path: path == empty.path)

    assert stale(ask()) == [empty.path, other.path]
    table.reader.unreadable.add(100)
    found = ask()
    assert stale(found) == [other.path]
    assert found.incomplete == ""
    assert "may not be read" in found.doubts[empty.path]


def test_a_removal_that_was_cut_short_stays_undone_while_a_process_names_the_file() -> None:
    table = Table()
    aside = file(f"{FOLDER}/renamed", named=FILE)
    table.add(100, argv=("python", FILE))
    table.reader.unreadable.add(100)
    assert stale(judge(table, aside)) == []


def test_nothing_is_stale_when_a_journal_cannot_be_read() -> None:
    found = judge(Table(), file(), problems=["/x/owner-1.jsonl: Permission denied"])
    assert found.items == []
    assert "Permission denied" in found.incomplete


@pytest.mark.parametrize("lives", [True, False])
def test_a_damaged_journal_of_an_owner_that_may_live_stops_it(lives: bool) -> None:
    table = Table()
    owner = table.add(50) if lives else DEAD
    found = judge(table, file("/run/x/kernel-9.json"), views=[view(owner, complete=False)])
    assert bool(found.incomplete) is lives
    assert bool(found.items) is not lives


def test_nothing_is_stale_when_a_folder_cannot_be_listed() -> None:
    found = judge(Table(), file(), unreadable=["/x: Input/output error"])
    assert found.items == []
    assert "Input/output error" in found.incomplete


# -- connection files on record --------------------------------------------------------


def test_a_living_owners_file_is_never_stale_however_old() -> None:
    table = Table()
    owner = table.add(50)
    for state in State:
        record = launch(state=state)
        assert stale(judge(table, file(age=1e7), views=[view(owner, record)])) == []


def test_neither_is_that_of_a_locked_journal_or_of_another_world() -> None:
    table = Table()
    journal = view(DEAD, launch())
    assert stale(judge(table, file(), views=[journal], locked=[journal.path])) == []
    for world in (
        replace(WORLD, host="elsewhere"),
        replace(WORLD, boot_id="boot-0"),
        replace(WORLD, pid_ns=1),
    ):
        assert stale(judge(table, file(), views=[view(Identity(world, 50, 7), launch())])) == []


def test_a_dead_owners_file_is_stale_at_once() -> None:
    record = launch(process=gone(100), keeper=gone(60), kernel=gone(101))
    found = judge(Table(), file(age=0), views=[view(DEAD, record)])
    (item,) = found.items
    assert item.finding.kernel_id == "kernel-id-1"
    assert item.launch == record


@pytest.mark.parametrize("role", ["keeper", "process", "kernel"])
def test_not_while_a_recorded_process_of_it_runs(role: str) -> None:
    table = Table()
    record = launch(**{"process": gone(100), role: table.add(100)})
    assert stale(judge(table, file(), views=[view(DEAD, record)])) == []
    table.hidden.add(100)
    assert stale(judge(table, file(), views=[view(DEAD, record)])) == []


def test_not_while_something_of_the_launch_runs() -> None:
    found = judge(Table(), file(), views=[view(DEAD, launch())], alive=["launch-1"])
    assert stale(found) == []


def test_not_while_another_generation_of_the_kernel_runs() -> None:
    table = Table()
    first = launch(1, state=State.ENDED, process=gone(100))
    second = launch(2, connection_file=FILE, generation=2, process=table.add(101))
    assert stale(judge(table, file(), views=[view(DEAD, first, second)])) == []


def test_not_while_a_process_names_it_or_something_listens() -> None:
    table = Table()
    record = launch(process=gone(100))
    table.reader.ports.add(50001)
    assert stale(judge(table, file(), views=[view(DEAD, record)])) == []
    table.reader.ports.clear()
    table.add(300, argv=("jupyter", "console", "--existing", "kernel-1.json"))
    assert stale(judge(table, file(), views=[view(DEAD, record)])) == []


def test_another_provisioners_kernel_is_not_proven_dead_by_its_owners_death() -> None:
    journal = view(DEAD, launch(launch_mode="other"))
    assert stale(judge(Table(), file(age=100), views=[journal])) == []
    assert stale(judge(Table(), file(age=7200), views=[journal])) == [FILE]


def test_a_file_on_record_outside_the_runtime_folder(tmp_path: Path) -> None:
    path = tmp_path / "tmpabc.json"
    path.write_text("{}")
    record = launch(process=gone(100), connection_file=str(path))
    table = Table()
    table_uid = os.getuid()
    snapshot = replace(table.snapshot(), uid=table_uid)
    owners = table.owners(view(DEAD, record))
    owners.table = snapshot
    asked = Questions(ports_of=lambda _: PORTS, why_shared=lambda _: "")
    assert stale(stale_files(owners, Listing([], []), (), 3600.0, asked)) == [str(path)]
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert stale(stale_files(owners, Listing([], []), (), 3600.0, asked)) == []
    path.unlink()
    path.mkdir()
    assert stale(stale_files(owners, Listing([], []), (), 3600.0, asked)) == []


# -- files of servers ------------------------------------------------------------------


def test_files_of_a_server_that_is_gone_are_stale() -> None:
    found = judge(
        Table(),
        server_file(70),
        server_file(70, "-open.html"),
        servers={70: Server(70, 8888)},
    )
    assert len(stale(found)) == 2


def test_files_of_a_server_that_runs_are_not() -> None:
    table = Table()
    table.add(70, argv=("python", "/usr/bin/jupyter-lab"))
    files = [server_file(70), server_file(70, "-open.html")]
    assert stale(judge(table, *files, servers={70: Server(70, 8888)})) == []


def test_a_living_owner_is_a_server_whatever_its_command() -> None:
    table = Table()
    owner = table.add(70, argv=("python", "-c", "..."))
    assert stale(judge(table, server_file(70), views=[view(owner)])) == []


def test_a_reused_number_does_not_keep_a_dead_server_in_the_list() -> None:
    table = Table()
    table.add(70, argv=("sleep", "1000"))
    found = judge(table, server_file(70), servers={70: Server(70, 8888)})
    assert len(stale(found)) == 1
    assert "another program" in found.items[0].finding.proofs[0]


def test_but_something_that_listens_on_its_port_does() -> None:
    table = Table()
    table.add(70, argv=("python", "serve.py"))
    table.reader.ports.add(8888)
    assert stale(judge(table, server_file(70), servers={70: Server(70, 8888)})) == []


def test_a_port_that_a_living_server_explains_does_not() -> None:
    table = Table()
    table.add(71, argv=("python", "/usr/bin/jupyter-lab"))
    table.reader.ports.add(8888)
    servers = {70: Server(70, 8888), 71: Server(71, 8888)}
    found = judge(table, server_file(70), server_file(71), servers=servers)
    assert stale(found) == [f"{FOLDER}/jpserver-70.json"]


def test_a_port_that_nobody_explains_may_be_a_server_in_a_container() -> None:
    table = Table()
    table.reader.ports.add(8888)
    assert stale(judge(table, server_file(70), servers={70: Server(70, 8888)})) == []


def test_a_young_file_of_a_server_waits_unless_the_journal_proves_its_end() -> None:
    young = server_file(50, age=10)
    assert stale(judge(Table(), young)) == []
    assert len(stale(judge(Table(), young, views=[view(DEAD)]))) == 1
    foreign = Identity(replace(WORLD, host="elsewhere"), 50, 7)
    assert stale(judge(Table(), young, views=[view(foreign)])) == []


def test_files_of_servers_where_other_machines_write_are_not_judged() -> None:
    found = judge(Table(), server_file(70), why_shared=lambda folder: "network")
    assert stale(found) == []


# -- where only this machine writes ----------------------------------------------------

MOUNTS = """\
1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 0:30 / /home rw - nfs4 server:/home rw
3 1 0:31 / /data rw - xfs /dev/sdb rw
4 1 0:32 / /run rw - tmpfs tmpfs rw
5 1 0:33 / /mnt/a\\040b rw - fuse.sshfs host: rw
6 1 0:34 / /over rw - tmpfs tmpfs rw
7 1 0:35 / /over rw - virtiofs tag rw
8 1 0:36 / /root-overlay rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("folder", "namespace", "shared"),
    [
        ("/var/x", 0xEFFFFFFC, False),
        ("/home/me", 0xEFFFFFFC, True),
        ("/data/x", 0xEFFFFFFC, False),
        ("/data/x", 12345, True),
        ("/run/user/1", 12345, False),
        ("/root-overlay/x", 12345, False),
        ("/mnt/a b/x", 0xEFFFFFFC, True),
        ("/over", 0xEFFFFFFC, True),
        ("/overflow", 0xEFFFFFFC, False),
    ],
)
def test_who_else_may_write_to_a_folder(
    tmp_path: Path, folder: str, namespace: int, shared: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert bool(why_shared(folder, str(mounts), namespace)) is shared


def test_mounts_that_cannot_be_read_mean_that_others_may_write(tmp_path: Path) -> None:
    assert why_shared("/var", str(tmp_path / "none"), 0xEFFFFFFC)
