"""What the records mean: folded in any order, twice, by several writers, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journals import exit_, launch

from jupyter_ownedkernels.identity import Identity, World
from jupyter_ownedkernels.journal.fold import Fold
from jupyter_ownedkernels.models import LaunchRecord, OwnerRecord, State, Survivor
from jupyter_ownedkernels.runtime import exits, records

WORLD = World("here", "boot", 1)
OWNER = OwnerRecord("owner", Identity(WORLD, 10, 100), "me", "here", "http://x/", 1.0, "0.1")


def nobody(_: Identity) -> bool:
    return False


def everybody(_: Identity) -> bool:
    return True


def ident(pid: int) -> dict[str, Any]:
    return Identity(WORLD, pid, pid * 10).to_json()


def story(number: int = 1) -> list[dict[str, Any]]:
    """All records of one launch, as owner and keeper write them."""
    one = f"launch-{number}"
    begin = launch(number, detached_policy="kill", launch_mode="fork").to_json()
    left = Survivor(900 + number, 9, 900 + number, "detached").to_json()
    return [
        {"event": "launching", **begin},
        {"event": "running", "launch_id": one, "keeper": ident(20), "process": ident(21),
         "sessions": [21], "at": 1.0},
        {"event": "kernel", "launch_id": one, "kernel": ident(22), "sessions": [22], "at": 2.0},
        {"event": "retiring", "launch_id": one, "at": 3.0},
        {"event": "ended", "launch_id": one, "exit": exit_(number).to_json(),
         "survivors": [left], "by": "owner", "at": 4.0},
    ]  # fmt: skip


def folded(lines: list[dict[str, Any]], owner: OwnerRecord | None = OWNER) -> Fold:
    fold = Fold()
    if owner is not None:
        fold.apply({"v": 1, "event": "owner", **owner.to_json()})
    for line in lines:
        fold.apply({"v": 1, **line})
    return fold


def test_one_launch_from_beginning_to_end() -> None:
    states = [folded(story()[:steps]).launches["launch-1"].state for steps in range(1, 6)]
    assert states == [
        State.LAUNCHING,
        State.RUNNING,
        State.RUNNING,
        State.RETIRING,
        State.ENDED,
    ]
    fold = folded(story())
    assert fold.owner == OWNER
    assert fold.strange == {}
    assert fold.launches["launch-1"] == launch(
        1,
        detached_policy="kill",
        launch_mode="fork",
        state=State.ENDED,
        keeper=Identity(WORLD, 20, 200),
        process=Identity(WORLD, 21, 210),
        kernel=Identity(WORLD, 22, 220),
        sessions=(21, 22),
        survivors=(Survivor(901, 9, 901, "detached"),),
        exit=exit_(1),
        running_at=1.0,
        ended_at=4.0,
        ended_by="owner",
    )


def test_a_stock_launch_is_unwatched() -> None:
    lines = story()[:2]
    lines[1] = {**lines[1], "launch_mode": "stock", "keeper": None}
    found = folded(lines).launches["launch-1"]
    assert (found.state, found.launch_mode) == (State.UNWATCHED, "stock")
    assert found.open


def test_the_word_of_a_keeper_is_understood() -> None:
    said = exits.describe(-9, "owner-died", 5.0, False, 7 << 20, 0.5)
    line = {"event": "ended", "launch_id": "launch-1", "exit": said, "survivors": [],
            "by": "keeper", "at": 5.0}  # fmt: skip
    found = folded([*story()[:3], line]).launches["launch-1"]
    assert found.state is State.ENDED
    assert found.ended_by == "keeper"
    assert found.exit is not None
    assert (found.exit.signal, found.exit.cause) == ("SIGKILL", "owner-died")
    assert found.exit.max_rss_bytes == 7 << 20


@pytest.mark.parametrize("odd", [{}, {"status": -9}, "x", 7, {"code": "one"}])
def test_an_odd_exit_does_not_keep_a_launch_open(odd: Any) -> None:
    lines = story()
    lines[-1] = {**lines[-1], "exit": odd}
    found = folded(lines).launches["launch-1"]
    assert (found.state, found.exit) == (State.ENDED, None)


def test_the_first_word_on_an_end_stands_and_every_survivor_counts() -> None:
    other = Survivor(77, 7, 77, "timeout")
    again = {"event": "ended", "launch_id": "launch-1", "exit": None, "by": "recovery",
             "survivors": [other.to_json()], "at": 9.0}  # fmt: skip
    found = folded([*story(), again]).launches["launch-1"]
    assert found.ended_by == "owner"
    assert found.ended_at == 4.0
    assert found.exit == exit_(1)
    assert found.survivors == (Survivor(901, 9, 901, "detached"), other)


def test_a_late_record_never_opens_an_ended_launch() -> None:
    for late in story()[:4]:
        found = folded([*story(), late]).launches["launch-1"]
        assert found.state is State.ENDED


def test_what_is_known_of_a_launch_counts_without_its_first_line() -> None:
    found = folded(story()[1:3]).launches["launch-1"]
    assert found.open
    assert found.keeper == Identity(WORLD, 20, 200)
    whole = folded([*story()[1:3], story()[0]]).launches["launch-1"]
    assert whole == folded(story()[:3]).launches["launch-1"]


def test_detached_and_cleaned() -> None:
    extra = Survivor(55, 5, 55, "detached")
    lines = [*story(), {"event": "detached", "launch_id": "launch-1",
                        "survivor": extra.to_json(), "at": 5.0}]  # fmt: skip
    assert extra in folded(lines).launches["launch-1"].survivors
    cleaned = {"event": "cleaned", "launch_id": "launch-1", "pid": 55, "at": 6.0, "count": 1}
    for ticks, left in ((5, False), (6, True)):
        fold = folded([*lines, {**cleaned, "start_ticks": ticks}])
        assert (extra in fold.launches["launch-1"].survivors) is left
        assert len(fold.notes) == 1


BAD = [
    {"event": "from the future", "launch_id": "launch-1"},
    {"v": 2, "event": "ended", "launch_id": "launch-1", "survivors": [], "by": "owner", "at": 1},
    {"v": None, "event": "retiring", "launch_id": "launch-1", "at": 1},
    {"event": "ended", "launch_id": ["launch-1"], "survivors": [], "by": "owner", "at": 1},
    {"event": "ended", "launch_id": "launch-1", "survivors": None, "by": "owner", "at": 1},
    {"event": "ended", "launch_id": "launch-1", "survivors": [{}], "by": "owner", "at": 1},
    {"event": "ended", "launch_id": "launch-1", "survivors": [], "by": "me", "at": 1},
    {"event": "ended", "launch_id": "launch-1", "survivors": [], "by": "owner"},
    {"event": "running", "launch_id": "launch-1", "sessions": [], "at": 1, "process": {"pid": 1}},
    {"event": "recovered", "at": "noon"},
    {"event": ["x"]},
    {},
]


@pytest.mark.parametrize("bad", BAD)
def test_what_makes_no_sense_is_kept_and_changes_nothing(bad: dict[str, Any]) -> None:
    fold = folded([*story()[:2], bad])
    assert fold.launches == folded(story()[:2]).launches
    assert list(fold.strange.values()) == [{"v": 1, **bad}]
    assert {"v": 1, **bad} in fold.dump()


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*story(1), *story(2)]), max_size=14))
def test_any_order_any_repetition_and_compaction_at_any_point(lines: list[dict[str, Any]]) -> None:
    """Never less known, never an ended launch open; twice is as once; a dump says it all."""
    fold = folded(lines)
    for launch_id, found in fold.launches.items():
        mine = [line for line in lines if line["launch_id"] == launch_id]
        events = {line["event"] for line in mine}
        assert found.open is ("ended" not in events)
        assert (found.process is not None) is ("running" in events)
        assert (found.kernel is not None) is ("kernel" in events)
        assert bool(found.connection_file) is ("launching" in events)
    assert folded(lines + lines).launches == fold.launches
    for cut in range(len(lines) + 1):
        before = folded(lines[:cut])
        written = records.parse(b"".join(map(records.encode, before.dump())))[0]
        after = folded([*written, *lines[cut:]], owner=None)
        assert after.launches == fold.launches
        assert after.owner == fold.owner


@given(st.lists(st.sampled_from([*story(1), *story(2)]), max_size=10), st.data())
def test_two_readings_together_know_what_either_knows(
    lines: list[dict[str, Any]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(lines)))
    one = folded(lines[:cut])
    one.absorb(folded(lines))
    assert one.launches == folded(lines).launches
    other = folded(lines)
    other.absorb(folded(lines[:cut], owner=None))
    assert other.launches == folded(lines).launches
    assert other.owner == OWNER


def ended(number: int, *survivors: Survivor) -> LaunchRecord:
    return launch(number, state=State.ENDED, ended_at=float(number), survivors=survivors)


def with_launches(*launches: LaunchRecord) -> Fold:
    fold = folded([])
    fold.launches = {one.launch_id: one for one in launches}
    return fold


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), st.integers(0, 5), st.randoms()
)
def test_forgetting_spares_what_matters_and_the_newest(
    kinds: list[tuple[bool, bool]], limit: int, shuffle: Any
) -> None:
    launches = []
    for number, (open_, haunted) in enumerate(kinds):
        left = Survivor(number + 1, 7, 7, "detached")
        one = replace(ended(number), survivors=(left,) if haunted else ())
        launches.append(replace(one, state=State.RUNNING, ended_at=None) if open_ else one)
    shuffle.shuffle(launches)
    fold = with_launches(*launches)
    fold.forget(limit, lambda identity: identity.start_ticks == 7)
    kept = set(fold.launches)
    for number, kind in enumerate(kinds):
        if any(kind):
            assert f"launch-{number}" in kept
    plain = [f"launch-{number}" for number, kind in enumerate(kinds) if not any(kind)]
    assert [one for one in plain if one in kept] == plain[max(0, len(plain) - limit) :]


def test_survivors_that_are_gone_do_not_matter() -> None:
    fold = with_launches(ended(1, Survivor(5, 5, 5, "detached")))
    assert fold.matters(fold.launches["launch-1"], everybody)
    assert not fold.matters(fold.launches["launch-1"], nobody)
    fold.owner = replace(OWNER, identity=None)
    assert fold.matters(fold.launches["launch-1"], nobody)


def test_more_survivors_than_a_line_holds() -> None:
    many = tuple(Survivor(number, 5, 5, "detached") for number in range(1, 25_001))
    fold = with_launches(ended(1, *many))
    written = records.parse(b"".join(map(records.encode, fold.dump())))
    assert written[1] == 0
    assert folded(written[0], owner=None).launches == fold.launches


def test_history_leaves_out_what_never_ran() -> None:
    never = {**story(2)[4], "exit": None, "survivors": []}
    fold = folded([*story(1), story(2)[0], never, story(3)[0]])
    (entry,) = fold.history("owner")
    assert (entry.launch_id, entry.cause, entry.at) == ("launch-1", "shutdown", 4.0)
    assert entry.to_json()["exit"]["summary"] == "shut down"


launch_records = st.builds(
    LaunchRecord,
    st.text(),
    st.text(),
    st.integers(0),
    st.text(),
    st.text(),
    st.sampled_from(["exec", "fork", "stock", "other"]),
    st.sampled_from(State),
    st.floats(allow_nan=False, allow_infinity=False),
    survivors=st.lists(
        st.builds(
            Survivor, st.integers(1), st.integers(0), st.integers(), st.sampled_from(["timeout"])
        )
    ).map(tuple),
)


@given(launch_records)
def test_launch_records_there_and_back(one: LaunchRecord) -> None:
    found = records.parse(records.encode({"event": "launch", **one.to_json()}))[0][0]
    assert LaunchRecord.from_json(found) == one
