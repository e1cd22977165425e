"""What the doctor concludes from journals and a table of processes: no process needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tables import DOCTOR, NOW, UID, WORLD, Table, gone, launch, view

from jupyter_ownedkernels.doctor.journaled import journaled
from jupyter_ownedkernels.identity import Identity
from jupyter_ownedkernels.models import Finding, State, Survivor
from jupyter_ownedkernels.owners import Owners, Standing

DEAD = gone(50)


def found(owners: Owners) -> dict[int | None, Finding]:
    return {item.finding.pid: item.finding for item in journaled(owners)}


def kinds(owners: Owners) -> dict[int | None, str]:
    return {pid: finding.kind for pid, finding in found(owners).items()}


def running(table: Table, number: int = 1, pid: int = 100, **fields: object) -> object:
    """A launch whose kernel process runs, adopted by pid 1."""
    kernel = table.add(pid, argv=("kernel", f"/run/user/1000/jupyter/kernel-{number}.json"))
    return launch(number, process=kernel, keeper=gone(60), sessions=(pid,), **fields)


# -- the owner -----------------------------------------------------------------------


def test_a_kernel_of_a_dead_owner_is_a_stray() -> None:
    table = Table()
    record = running(table)
    finding = found(table.owners(view(DEAD, record)))[100]
    assert finding.kind == "stray_kernel"
    assert finding.action == "terminate"
    assert finding.by_default
    assert finding.kernel_id == "kernel-id-1"
    assert finding.kernel_name == "python3"
    assert finding.owner is not None
    assert finding.owner["pid"] == 50
    assert finding.age_s == pytest.approx(3600)
    assert finding.started_at == pytest.approx(NOW - 3600)
    assert finding.proofs[0] == "its owner, process 50, is dead"


def test_a_reused_number_proves_the_death_of_the_owner() -> None:
    table = Table()
    record = running(table)
    now = table.add(50)
    owners = table.owners(view(Identity(WORLD, 50, now.start_ticks - 1), record))
    assert kinds(owners) == {100: "stray_kernel"}


def test_nothing_of_a_living_owner_is_found() -> None:
    table = Table()
    owner = table.add(50)
    record = running(table)
    table.add(101, ppid=100, session=100, launch="launch-1")
    table.add(102, ppid=1, session=102, launch="launch-1")
    assert kinds(table.owners(view(owner, record))) == {}


@pytest.mark.parametrize(
    "world",
    [
        replace(WORLD, host="elsewhere"),
        replace(WORLD, boot_id="boot-0"),
        replace(WORLD, pid_ns=WORLD.pid_ns + 1),
    ],
    ids=["host", "boot", "namespace"],
)
def test_another_world_is_shown_and_never_touched(world: object) -> None:
    table = Table()
    record = running(table)
    owner = Identity(world, 50, 7)  # type: ignore[arg-type]
    (item,) = journaled(table.owners(view(owner, record)))
    assert item.finding.kind == "foreign"
    assert item.finding.action is None
    assert item.doomed == ()


def test_a_zombie_owner_is_dead() -> None:
    table = Table()
    owner = table.add(50, state="Z")
    assert kinds(table.owners(view(owner, running(table)))) == {100: "stray_kernel"}


def test_a_lock_on_the_journal_is_a_second_witness() -> None:
    table = Table()
    journal = view(DEAD, running(table))
    owners = table.owners(journal, locked=(journal.path,))
    (item,) = journaled(owners)
    assert owners.known[0].standing is Standing.HELD
    assert item.finding.kind == "unknown"
    assert item.doomed == ()


def test_an_owner_without_an_identity_is_unknown() -> None:
    table = Table()
    (item,) = journaled(table.owners(view(None, running(table))))
    assert item.finding.kind == "unknown"
    assert item.doomed == ()


def test_an_owner_that_may_not_be_looked_at_is_unknown() -> None:
    table = Table()
    record = running(table)
    table.hidden.add(50)
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert item.finding.kind == "unknown"


def test_an_owner_that_the_table_may_lack_is_asked_of_the_system() -> None:
    table = Table()
    journal = view(DEAD, running(table))
    table.incomplete = "hidepid"
    table.reader.taken.add(50)
    assert kinds(table.owners(journal)) == {100: "unknown"}
    table.reader.taken.clear()
    assert kinds(table.owners(journal)) == {100: "stray_kernel"}


# -- the kernel's processes ----------------------------------------------------------


def test_one_finding_for_a_kernel_with_all_of_its_core() -> None:
    table = Table()
    record = running(table)
    table.add(101, ppid=100, session=100, launch="launch-1")
    table.add(102, ppid=1, session=100, launch="launch-1")
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert [entry.pid for entry in item.doomed] == [100, 101, 102]
    assert item.finding.rss_bytes == 3 * 100 * 4096


def test_without_the_kernel_each_process_is_a_stray_of_its_own() -> None:
    table = Table()
    record = launch(process=gone(100), sessions=(100,))
    table.add(101, session=100, launch="launch-1")
    table.add(102, session=100, owner="owner-1")
    owners = table.owners(view(DEAD, record))
    assert kinds(owners) == {101: "stray_process", 102: "stray_process"}


def test_a_session_number_alone_proves_nothing() -> None:
    table = Table()
    table.add(101, session=100)
    assert kinds(table.owners(view(DEAD, launch(process=gone(100), sessions=(100,))))) == {}


def test_the_mark_of_another_launch_or_owner_proves_nothing() -> None:
    table = Table()
    table.add(101, session=100, launch="launch-2", owner="owner-2")
    assert kinds(table.owners(view(DEAD, launch(process=gone(100), sessions=(100,))))) == {}


def test_the_owners_mark_without_a_session_on_record_proves_nothing() -> None:
    table = Table()
    table.add(101, session=101, owner="owner-1")
    assert kinds(table.owners(view(DEAD, launch(process=gone(100), sessions=(100,))))) == {}


def test_start_ticks_are_compared_exactly() -> None:
    table = Table()
    kernel = table.add(100)
    for off in (-1, 1):
        other = Identity(WORLD, 100, kernel.start_ticks + off)
        record = launch(process=other, kernel=other, sessions=(100,))
        assert kinds(table.owners(view(DEAD, record))) == {}


def test_a_session_whose_leader_is_another_process_now_was_given_away() -> None:
    table = Table()
    table.add(100)
    table.add(101, ppid=100, session=100, owner="owner-1")
    assert kinds(table.owners(view(DEAD, launch(process=gone(100), sessions=(100,))))) == {}


def test_another_users_process_is_not_taken_for_its_marks() -> None:
    table = Table()
    table.add(101, session=100, launch="launch-1", uid=UID + 1)
    assert kinds(table.owners(view(DEAD, launch(process=gone(100), sessions=(100,))))) == {}


def test_an_environment_that_may_not_be_read_proves_nothing() -> None:
    table = Table()
    table.add(101, session=100, environ=PermissionError())
    assert kinds(table.owners(view(DEAD, launch(process=gone(100), sessions=(100,))))) == {}


def test_a_child_with_a_clean_environment_is_proven_by_its_parent() -> None:
    table = Table()
    record = running(table)
    table.add(101, ppid=100, session=100)
    table.add(102, ppid=101, session=100)
    table.add(103, ppid=102, session=103)
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert [entry.pid for entry in item.doomed] == [100, 101, 102]


def test_zombies_are_neither_alive_nor_stray() -> None:
    table = Table()
    kernel = table.add(100, state="Z")
    table.add(101, ppid=100, session=100, state="Z", launch="launch-1")
    record = launch(process=kernel, sessions=(100,))
    assert kinds(table.owners(view(DEAD, record))) == {}


def test_the_doctor_and_its_ancestors_are_never_found() -> None:
    table = Table()
    shell = table.add(899, session=899, launch="launch-1")
    table.add(DOCTOR, ppid=899, session=899, launch="launch-1", owner="owner-1")
    record = launch(process=shell, kernel=shell, sessions=(899,))
    assert kinds(table.owners(view(DEAD, record))) == {}


def test_a_kernel_behind_a_wrapper_is_the_one_that_is_named() -> None:
    table = Table()
    wrapper = table.add(100, argv=("sh", "-c", "kernel"))
    kernel = table.add(101, ppid=100, session=101)
    record = launch(process=wrapper, kernel=kernel, sessions=(100, 101))
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert item.finding.pid == 101
    assert {entry.pid for entry in item.doomed} == {100, 101}


def test_a_kernel_whose_start_never_came_on_record_is_found_by_its_mark() -> None:
    table = Table()
    record = launch(state=State.LAUNCHING)
    table.add(100, launch="launch-1", argv=("kernel", "-f", record.connection_file))
    table.add(101, session=100, launch="launch-1")
    table.add(102, session=102, launch="launch-1")
    owners = table.owners(view(DEAD, record))
    assert kinds(owners) == {100: "stray_kernel", 102: "detached"}
    assert [entry.pid for entry in journaled(owners)[0].doomed] == [100, 101]


# -- detached ------------------------------------------------------------------------


def test_what_left_the_session_is_detached_and_not_ended_by_default() -> None:
    table = Table()
    record = running(table)
    table.add(101, session=101, launch="launch-1")
    finding = found(table.owners(view(DEAD, record)))[101]
    assert finding.kind == "detached"
    assert finding.action == "terminate"
    assert not finding.by_default


def test_under_the_policy_kill_it_ends_with_the_kernel() -> None:
    table = Table()
    record = running(table, detached_policy="kill")
    table.add(101, session=101, launch="launch-1")
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert {entry.pid for entry in item.doomed} == {100, 101}


def test_a_fork_of_the_kernel_is_core_whatever_its_session() -> None:
    table = Table()
    record = running(table)
    table.add(101, session=101, launch="launch-1", argv=("kernel", record.connection_file))  # type: ignore[attr-defined]
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert {entry.pid for entry in item.doomed} == {100, 101}


@pytest.mark.parametrize("owner_lives", [True, False])
def test_survivors_on_record_of_an_ended_launch(owner_lives: bool) -> None:
    table = Table()
    owner = table.add(50) if owner_lives else DEAD
    left = table.add(101, session=101)
    stuck = table.add(102, session=100)
    survivors = (
        Survivor(101, left.start_ticks, 101, "detached"),
        Survivor(102, stuck.start_ticks, 100, "timeout"),
        Survivor(103, 5, 100, "timeout"),
    )
    record = launch(state=State.ENDED, process=gone(100), sessions=(100,), survivors=survivors)
    owners = table.owners(view(owner, record))
    assert kinds(owners) == {101: "detached", 102: "stray_process"}
    assert table.reader.asked == [], "no environment needs to be read for that"


def test_a_survivor_whose_number_is_anothers_now_is_left_alone() -> None:
    table = Table()
    other = table.add(101, session=101)
    survivors = (Survivor(101, other.start_ticks - 1, 101, "timeout"),)
    record = launch(state=State.ENDED, process=gone(100), survivors=survivors)
    assert kinds(table.owners(view(DEAD, record))) == {}


# -- owners inside kernels -----------------------------------------------------------


def test_a_living_server_inside_a_dead_ones_kernel_is_spared_with_all_it_runs() -> None:
    table = Table()
    record = launch(process=gone(100), sessions=(100,), detached_policy="kill")
    inner = table.add(200, session=200, launch="launch-1", age=1000)
    table.add(201, ppid=200, session=201, launch="launch-1", owner="owner-2", age=900)
    table.add(202, ppid=201, session=100, launch="launch-1", age=900)
    table.add(203, session=203, launch="launch-1", age=900)
    outer = Identity(WORLD, 50, 7)
    owners = table.owners(view(outer, record), view(inner, owner_id="owner-2"))
    assert kinds(owners) == {203: "stray_process"}


def test_an_older_server_has_only_adopted_what_a_younger_one_left() -> None:
    table = Table()
    older = table.add(200, session=200, age=5000)
    table.add(100, ppid=200, argv=("kernel",), age=1000)
    kernel = table.processes[100]
    younger = Identity(WORLD, 50, kernel.start_ticks - 100)
    record = launch(process=Identity(WORLD, 100, kernel.start_ticks), sessions=(100,))
    owners = table.owners(view(younger, record), view(older, owner_id="owner-2"))
    assert kinds(owners) == {100: "stray_kernel"}


def test_an_ended_launch_does_not_reach_into_a_running_one_of_the_same_owner() -> None:
    table = Table()
    owner = table.add(50)
    keeper = table.add(60, ppid=50)
    inside = table.add(101, ppid=60, session=101)
    ended = launch(
        1,
        state=State.ENDED,
        process=gone(100),
        survivors=(Survivor(101, inside.start_ticks, 101, "detached"),),
    )
    runs = launch(2, keeper=keeper, process=table.add(102, ppid=60), sessions=(102,))
    assert kinds(table.owners(view(owner, ended, runs))) == {}


def test_a_stuck_keeper_ends_with_its_kernel_and_alone_when_nothing_else_is_left() -> None:
    table = Table()
    keeper = table.add(60, state="T")
    kernel = table.add(100, ppid=60)
    record = launch(process=kernel, keeper=keeper, sessions=(100,))
    (item,) = journaled(table.owners(view(DEAD, record)))
    assert [entry.pid for entry in item.doomed] == [100, 60]
    del table.processes[100]
    assert kinds(table.owners(view(DEAD, record))) == {60: "stray_process"}


def test_an_id_names_process_role_and_launch() -> None:
    table = Table()
    first = found(table.owners(view(DEAD, running(table))))[100]
    same = found(table.owners(view(DEAD, running(table))))[100]
    again = found(table.owners(view(DEAD, running(table, launch_id="launch-9"))))[100]
    assert first.id == same.id
    assert first.id != again.id, "a restart makes the old verdict void"
    assert first.id.startswith(f"p100-{table.processes[100].start_ticks}-")


def test_no_key_token_or_environment_in_what_is_shown() -> None:
    table = Table()
    record = running(table)
    table.add(
        101,
        session=101,
        launch="launch-1",
        environ={"SECRET": "s3cret"},
        argv=("tool", "--token", "s3cret"),
    )
    text = str([item.finding.to_json() for item in journaled(table.owners(view(DEAD, record)))])
    assert "s3cret" not in text
