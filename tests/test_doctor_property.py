"""Random process tables and journals: nothing without a proof is ever to be cleaned.

The predicates here are written down anew from the rules, not taken from the package.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import DOCTOR, NOW, UID, UPTIME, WORLD, Table, view

from jupyter_ownedkernels.connections import Candidate, FileIdentity, Listing, Ports
from jupyter_ownedkernels.doctor.files import Questions, stale_files
from jupyter_ownedkernels.doctor.findings import Item
from jupyter_ownedkernels.doctor.journaled import journaled
from jupyter_ownedkernels.doctor.unjournaled import Surroundings, unjournaled
from jupyter_ownedkernels.identity import Identity
from jupyter_ownedkernels.journal.journal import JournalView
from jupyter_ownedkernels.models import LaunchRecord, State, Survivor
from jupyter_ownedkernels.recovery import doomed_of
from jupyter_ownedkernels.runtime.procfs import CLOCK_TICKS

EXAMPLES = 5000 if os.environ.get("OWNEDKERNELS_SOAK", "") not in ("", "0") else 150
PIDS = st.integers(2, 12)
TICKS = st.integers(1, 6)
LAUNCHES = ("launch-1", "launch-2", "launch-3")
OWNERS = ("owner-1", "owner-2", "owner-3")
RUNTIME = "/run/user/1000/jupyter"
FILES = [f"{RUNTIME}/kernel-{number}.json" for number in range(1, 5)]
WORLDS = [
    WORLD,
    replace(WORLD, host="elsewhere"),
    replace(WORLD, boot_id="boot-0"),
    replace(WORLD, pid_ns=5),
]

identities = st.builds(
    Identity, st.sampled_from([WORLD, WORLD, WORLD, WORLD, *WORLDS]), PIDS, TICKS
)
environs = st.one_of(
    st.just(PermissionError()),
    st.dictionaries(st.just("JPY_PARENT_PID"), st.sampled_from(["3", "7", "999", "x", ""])),
    st.fixed_dictionaries(
        {},
        optional={
            "JUPYTER_OWNEDKERNELS_LAUNCH": st.sampled_from(LAUNCHES),
            "JUPYTER_OWNEDKERNELS_OWNER": st.sampled_from(OWNERS),
            "JPY_PARENT_PID": st.sampled_from(["3", "7", "999"]),
        },
    ),
)
argvs = st.one_of(
    st.just(("sleep", "1")),
    st.sampled_from(FILES).map(lambda path: ("python3", "-m", "ipykernel_launcher", "-f", path)),
    st.sampled_from(FILES).map(lambda path: ("sh", "-c", f"kernel {path}")),
    st.sampled_from(FILES).map(lambda path: ("vim", path)),
)
processes = st.lists(
    st.fixed_dictionaries(
        {
            "pid": PIDS,
            "ppid": st.one_of(st.just(1), PIDS),
            "session": PIDS,
            "ticks": TICKS,
            "uid": st.sampled_from([UID, UID, UID, UID + 1]),
            "state": st.sampled_from("SSSTZ"),
            "environ": environs,
            "argv": argvs,
        }
    ),
    max_size=10,
    unique_by=lambda one: one["pid"],
)
survivors = st.lists(
    st.builds(
        Survivor, PIDS, TICKS, PIDS, st.sampled_from(["detached", "timeout", "not-permitted"])
    ),
    max_size=2,
).map(tuple)


@st.composite
def launches(draw: Any) -> LaunchRecord:
    return LaunchRecord(
        launch_id=draw(st.sampled_from(LAUNCHES)),
        kernel_id="kernel",
        generation=draw(st.integers(1, 2)),
        kernel_name="python3",
        connection_file=draw(st.sampled_from(["", *FILES])),
        state=draw(st.sampled_from(list(State))),
        keeper=draw(st.none() | identities),
        process=draw(st.none() | identities),
        kernel=draw(st.none() | identities),
        sessions=tuple(draw(st.lists(PIDS, max_size=2))),
        survivors=draw(survivors),
        detached_policy=draw(st.sampled_from(["keep", "kill"])),
    )


@st.composite
def worlds(draw: Any) -> tuple[Table, list[JournalView], list[str]]:
    table = Table()
    for one in draw(processes):
        table.add(one.pop("pid"), **one)
    table.hidden.update(draw(st.lists(PIDS, max_size=1)))
    if draw(st.integers(0, 5)) == 0:
        table.incomplete = "something may be hidden"
        table.reader.taken.update(draw(st.lists(PIDS, max_size=5)))
    table.reader.ports.update(draw(st.lists(st.integers(50001, 50004), max_size=1)))
    views = [
        view(
            draw(st.none() | identities),
            *draw(st.lists(launches(), max_size=3, unique_by=lambda one: one.launch_id)),
            owner_id=owner_id,
            complete=draw(st.sampled_from([True, True, True, False])),
        )
        for owner_id in draw(st.lists(st.sampled_from(OWNERS), max_size=3, unique=True))
    ]
    locked = draw(st.lists(st.sampled_from([v.path for v in views]), max_size=1)) if views else []
    return table, views, locked


# -- the rules, in other words ---------------------------------------------------------


def certainly_dead(table: Table, identity: Identity | None) -> bool:
    if identity is None or identity.world != WORLD or identity.pid in table.hidden:
        return False
    entry = table.processes.get(identity.pid)
    if entry is None:
        return not table.incomplete or identity.pid not in table.reader.taken
    return entry.start_ticks != identity.start_ticks or entry.state == "Z"


def is_it(table: Table, pid: int, identity: Identity | None) -> bool:
    return (
        identity is not None
        and identity.world == WORLD
        and identity.pid == pid
        and pid not in table.hidden
        and table.processes[pid].start_ticks == identity.start_ticks
    )


def mark(table: Table, pid: int, name: str) -> str | None:
    environ = table.reader.environs.get(pid)
    return None if isinstance(environ, Exception) else (environ or {}).get(name)


def proven(table: Table, pid: int, one: LaunchRecord, owner_id: str, depth: int = 0) -> bool:
    entry = table.processes[pid]
    if any(is_it(table, pid, recorded) for recorded in (one.process, one.kernel, one.keeper)):
        return True
    if any((s.pid, s.start_ticks) == (pid, entry.start_ticks) for s in one.survivors):
        return True
    sessions = {
        *one.sessions,
        *(
            table.processes[i.pid].session
            for i in (one.process, one.kernel)
            if i is not None and i.pid in table.processes and is_it(table, i.pid, i)
        ),
    }
    if one.state is not State.ENDED and table.uids[pid] == UID:
        if mark(table, pid, "JUPYTER_OWNEDKERNELS_LAUNCH") == one.launch_id:
            return True
        if mark(table, pid, "JUPYTER_OWNEDKERNELS_OWNER") == owner_id and (
            entry.session in sessions
        ):
            return True
    return (
        depth < 20
        and entry.ppid in table.processes
        and entry.session in sessions
        and table.processes[entry.ppid].state != "Z"
        and proven(table, entry.ppid, one, owner_id, depth + 1)
    )


def above(table: Table, pid: int) -> set[int]:
    found: set[int] = set()
    entry = table.processes.get(pid)
    while entry is not None and entry.ppid not in found:
        found.add(entry.ppid)
        entry = table.processes.get(entry.ppid)
    return found


def inside_a_living_owner(
    table: Table, views: list[JournalView], pid: int, owner: JournalView
) -> bool:
    since = owner.owner.identity.start_ticks  # type: ignore[union-attr]
    return any(
        other.owner is not None
        and other is not owner
        and other.owner.identity is not None
        and other.owner.identity.pid in {pid, *above(table, pid)}
        and other.owner.identity.pid in table.processes
        and is_it(table, other.owner.identity.pid, other.owner.identity)
        and table.processes[other.owner.identity.pid].state != "Z"
        and other.owner.identity.start_ticks >= since
        for other in views
    )


def check_item(item: Item, table: Table, views: list[JournalView], locked: list[str]) -> None:
    assert item.owner is not None
    assert item.launch is not None
    journal = item.owner.view
    identity = journal.owner.identity  # type: ignore[union-attr]
    assert identity is not None
    assert identity.world == WORLD
    dead = certainly_dead(table, identity) and journal.path not in locked
    if not dead:
        assert item.launch.state is State.ENDED, "a running launch of a living owner"
    for entry in item.doomed:
        assert table.processes[entry.pid] == entry
        assert entry.state != "Z"
        assert entry.pid not in {DOCTOR, 899, 1}
        assert proven(table, entry.pid, item.launch, journal.owner.owner_id)  # type: ignore[union-attr]
        recorded = (item.launch.process, item.launch.kernel, item.launch.keeper)
        if not any(is_it(table, entry.pid, one) for one in recorded):
            living = [v.owner.identity for v in views if v.owner and v.owner.identity]
            if any(is_it(table, entry.pid, one) for one in living):
                assert not item.finding.by_default or dead


@pytest.mark.timeout(1200)
@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
def test_what_journals_condemn_is_proven(scene: tuple[Table, list[JournalView], list[str]]) -> None:
    table, views, locked = scene
    owners = table.owners(*views, locked=tuple(locked))
    seen: set[int] = set()
    for item in journaled(owners):
        if item.finding.action is None:
            assert item.doomed == ()
            continue
        assert item.finding.kind in ("stray_kernel", "stray_process", "detached")
        assert item.finding.by_default == (item.finding.kind != "detached")
        check_item(item, table, views, locked)
        assert item.finding.pid not in seen
        seen.add(item.finding.pid or 0)
    for owner in owners.dead:
        for entry in doomed_of(owner, owners):
            assert certainly_dead(table, owner.record.identity)
            assert entry.pid not in {DOCTOR, 899, 1}
            assert any(
                proven(table, entry.pid, one, owner.record.owner_id)
                for one in owner.view.launches.values()
            )


@pytest.mark.timeout(1200)
@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
def test_a_living_owner_is_never_ended_for_the_marks_it_inherited(
    scene: tuple[Table, list[JournalView], list[str]],
) -> None:
    table, views, locked = scene
    for item in journaled(table.owners(*views, locked=tuple(locked))):
        if not item.doomed or item.owner is None or item.launch is None:
            continue
        for entry in item.doomed:
            recorded = [item.launch.process, item.launch.kernel, item.launch.keeper]
            named = any(is_it(table, entry.pid, one) for one in recorded) or any(
                one.pid == entry.pid for one in item.launch.survivors
            )
            if not named:
                assert not inside_a_living_owner(table, views, entry.pid, item.owner.view)


@pytest.mark.timeout(1200)
@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
def test_an_unjournaled_stray_has_nothing_alive_above_it(
    scene: tuple[Table, list[JournalView], list[str]],
) -> None:
    table, views, locked = scene
    owners = table.owners(*views, locked=tuple(locked))
    on_record = {one.connection_file for v in views for one in v.launches.values()}
    for item in unjournaled(owners, Surroundings((RUNTIME,), dict)):
        if item.finding.action is None:
            assert item.doomed == ()
            continue
        main = item.doomed[0]
        assert main.state != "Z"
        assert table.argvs[main.pid][1:3] == ("-m", "ipykernel_launcher")
        path = table.argvs[main.pid][-1]
        assert path not in on_record
        parts = {entry.pid for entry in item.doomed}
        for pid in above(table, main.pid) - {0, 1}:
            assert pid in parts, "something alive above it, which is not a part of it"
        for entry in item.doomed:
            assert table.uids[entry.pid] == UID
            assert entry.pid not in {DOCTOR, 899, 1}
        assert UPTIME - main.start_ticks / CLOCK_TICKS >= 60
        parent = mark(table, main.pid, "JPY_PARENT_PID")
        if parent is not None and parent.isdigit():
            assert int(parent) not in table.hidden
            other = table.processes.get(int(parent))
            if other is not None:
                assert other.state == "Z" or other.start_ticks > main.start_ticks
        else:
            assert not item.finding.by_default


@pytest.mark.timeout(1200)
@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), st.lists(st.floats(-10, 10_000), min_size=4, max_size=4), st.data())
def test_no_file_that_something_may_use_is_stale(
    scene: tuple[Table, list[JournalView], list[str]], ages: list[float], data: Any
) -> None:
    table, views, locked = scene
    shared = data.draw(st.booleans())
    unreadable = data.draw(st.lists(PIDS, max_size=1))
    table.reader.unreadable.update(unreadable)
    blind = any(
        table.uids.get(pid) == UID and table.processes[pid].state != "Z" for pid in unreadable
    )
    empty = data.draw(st.lists(st.sampled_from(FILES), max_size=1))
    files = [
        Candidate(path, FileIdentity(1, number, 1), UID, NOW - age)
        for number, (path, age) in enumerate(zip(FILES, ages, strict=True))
    ]
    ports = {path: 50001 + number for number, path in enumerate(FILES)}
    asked = Questions(
        ports_of=lambda path: Ports("tcp", "127.0.0.1", (ports[path],)),
        server_of=lambda path: None,
        why_shared=lambda folder: "shared" if shared else "",
        is_empty=lambda path: path in empty,
    )
    owners = table.owners(*views, locked=tuple(locked))
    alive = {
        item.launch.launch_id
        for item in journaled(owners)
        if item.launch is not None and item.finding.kind.startswith("stray")
    }
    found = stale_files(owners, Listing(files, []), alive, 3600.0, asked)
    removable = [item.finding.path for item in found.items if item.finding.action is not None]
    if table.incomplete or found.incomplete:
        assert removable == []
    for path in removable:
        assert path is not None
        name = path.rpartition("/")[2]
        for pid, argv in table.argvs.items():
            if table.processes[pid].state != "Z":
                assert not any(name in part for part in argv)
        if path in empty:
            assert not blind, "no ports, and somebody's open files cannot be seen"
        else:
            assert ports[path] not in table.reader.ports
        on_record = False
        for v in views:
            dead = certainly_dead(table, v.owner.identity) and v.path not in locked  # type: ignore[union-attr]
            for one in v.launches.values():
                if one.connection_file == path:
                    assert dead, "on the record of an owner that is not certainly dead"
                    assert one.launch_id not in alive
                    for recorded in (one.keeper, one.process, one.kernel):
                        assert recorded is None or certainly_dead(table, recorded)
                    on_record = True
        if not on_record:
            assert not shared
            assert NOW - dict(zip(FILES, ages, strict=True))[path] < NOW - 3600
