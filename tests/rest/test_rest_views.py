"""What is shown of a kernel, put together from tables and records, without processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager
from jupyter_server.serverapp import ServerApp
from traitlets import TraitError
from traitlets.config import Config

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.config import OwnedKernels
from jupyter_ownedkernels.identity import Identity, World
from jupyter_ownedkernels.launching.launch import Exited
from jupyter_ownedkernels.models import Exit, LaunchRecord, OwnerRecord, State
from jupyter_ownedkernels.ownership import Ownership
from jupyter_ownedkernels.processes.table import Table
from jupyter_ownedkernels.processes.usage import Group, Meter
from jupyter_ownedkernels.runtime.procfs import CLOCK_TICKS, PAGE_SIZE, Stat
from jupyter_ownedkernels.settings import Settings
from jupyter_ownedkernels.views import kernels as views
from jupyter_ownedkernels.views.kernels import Shown

HERE = World("host", "boot", 1)


def stat(
    pid: int, ppid: int, session: int = 10, cpu_s: float = 0, mb: int = 1, **more: Any
) -> Stat:
    fields: dict[str, Any] = {"state": "S", "start_ticks": pid, "threads": 1, **more}
    return Stat(
        pid=pid,
        name=f"p{pid}",
        ppid=ppid,
        pgrp=session,
        session=session,
        cpu_ticks=int(cpu_s * CLOCK_TICKS),
        rss_pages=(mb << 20) // PAGE_SIZE,
        **fields,
    )


def table(at: float, *entries: Stat) -> Table:
    children: dict[int, list[int]] = {}
    for entry in entries:
        children.setdefault(entry.ppid, []).append(entry.pid)
    return Table(at, {entry.pid: entry for entry in entries}, children)


KEEPER = Identity(HERE, 5, 5)
GROUP = Group("launch", KEEPER, top_belongs=False, sessions=(10,), connection_file="")


def test_what_a_kernels_processes_use_together() -> None:
    now = table(
        0,
        stat(5, 1, mb=500),
        stat(10, 5, cpu_s=3, mb=20),
        stat(11, 10, cpu_s=1, mb=4),
        stat(12, 10, cpu_s=50, mb=50, state="Z"),
        stat(20, 1, cpu_s=70, mb=70),
    )
    load = Meter().read(now, [GROUP])["launch"]
    assert (load.process_count, load.detached_count) == (2, 0)
    assert load.rss_bytes == 24 << 20
    assert load.cpu_s == 4
    assert load.cpu_percent is None


def test_a_keeper_whose_number_is_anothers_now_has_no_load() -> None:
    now = table(0, stat(5, 1, start_ticks=6), stat(10, 5))
    assert Meter().read(now, [GROUP]) == {}
    assert Meter().read(table(0), [GROUP]) == {}


def test_without_a_keeper_the_process_itself_counts() -> None:
    group = Group("launch", Identity(HERE, 10, 10), True, (10,), "")
    assert Meter().read(table(0, stat(10, 1), stat(11, 10)), [group])["launch"].process_count == 2


def percent(meter: Meter, at: float, *cpu_s: float) -> float | None:
    entries = [stat(10 + n, 5, cpu_s=spent) for n, spent in enumerate(cpu_s)]
    return meter.read(table(at, stat(5, 1), *entries), [GROUP])["launch"].cpu_percent


def test_the_share_of_a_processor_is_told_from_two_looks() -> None:
    meter = Meter()
    assert percent(meter, 100.0, 5.0) is None
    # Too near to say anything at a resolution of 10 ms: no look to compare with yet.
    assert percent(meter, 100.5, 5.5) is None
    assert percent(meter, 102.0, 6.0) == pytest.approx(100 * 0.5 / 1.5, abs=0.1)
    # A process that is new since then has used all of its time since then.
    assert percent(meter, 104.0, 7.0, 0.5) == pytest.approx(100 * 1.5 / 2, abs=0.1)
    # What it had used goes with a process that has ended.
    assert percent(meter, 106.0, 7.0) == 0


def test_many_looks_in_a_short_time_do_not_lose_the_one_to_compare_with() -> None:
    meter = Meter()
    shares = [percent(meter, number / 50, number / 50) for number in range(500)]
    assert shares[49] is None
    assert all(share == pytest.approx(100, abs=2) for share in shares[51:])


def test_a_look_of_long_ago_says_nothing_about_now() -> None:
    meter = Meter()
    percent(meter, 0.0, 0.0)
    assert percent(meter, 1000.0, 500.0) is None
    assert percent(meter, 1002.0, 502.0) == 100


def test_another_kernel_that_is_asked_for_meanwhile_changes_nothing() -> None:
    meter = Meter()
    other = Group("other", Identity(HERE, 6, 6), False, (60,), "")
    percent(meter, 0.0, 0.0)
    meter.read(table(1.0, stat(6, 1), stat(60, 6, session=60)), [other])
    assert percent(meter, 2.0, 2.0) == 100


# -- which kernels are shown --------------------------------------------------------------


@pytest.fixture
def owned(tmp_path: Path) -> Ownership:
    return Ownership(Settings(runtime_dir=str(tmp_path)))


def launched(owned: Ownership, kernel_id: str, exit_: Exit | None = None) -> None:
    kernel = owned.begin(kernel_id, "python3", f"/tmp/kernel-{kernel_id}.json", "keep")
    process = Identity(identity.this_world(), 99_999_999, 1)
    owned.transition(kernel, State.RUNNING, process=process, running_at=1.0)
    if exit_ is not None:
        owned.transition(kernel, State.RETIRING, exit=exit_)
        owned.ended(kernel, Exited(None), ())


def an_exit(cause: Any) -> Exit:
    return Exit(1, None, False, None, cause, None, None, 2.0, "ended")


def test_ends_that_somebody_asked_for_are_not_shown(owned: Ownership) -> None:
    launched(owned, "runs")
    for cause in ("shutdown", "culled", "restart", "killed", "exited", "keeper-died"):
        launched(owned, cause, an_exit(cause))
    failed = owned.begin("failed", "python3", "", "keep")
    owned.ended(failed, Exited(None), ())
    shown = views.of_this_owner(owned, lambda _: False)
    names = [one.record.kernel_id for one in shown]
    assert names == ["runs", "killed", "exited", "keeper-died"]
    # Between a crash and the automatic restart the manager has it still.
    shown = views.of_this_owner(owned, lambda kernel_id: kernel_id == "shutdown")
    assert "shutdown" in [one.record.kernel_id for one in shown]
    owned.close()


def test_the_dead_do_not_pile_up(owned: Ownership) -> None:
    for number in range(50):
        launched(owned, f"dead-{number}", an_exit("killed"))
    shown = views.of_this_owner(owned, lambda _: False)
    assert [one.record.kernel_id for one in shown] == [f"dead-{n}" for n in range(30, 50)]
    owned.close()


def test_a_kernel_that_could_not_be_put_on_record_says_so(owned: Ownership) -> None:
    launched(owned, "a")
    (shown,) = views.of_this_owner(owned, lambda _: True)
    assert (shown.state, shown.journaled) == (State.RUNNING, True)
    owned.journal.writable = False
    (shown,) = views.of_this_owner(owned, lambda _: True)
    assert (shown.state, shown.journaled) == (State.UNJOURNALED, False)
    owned.journal.writable = True
    owned.close()


def test_processes_of_another_world_are_not_looked_for() -> None:
    elsewhere = World("other-host", "boot", 1)
    record = LaunchRecord("l", "k", 1, "n", "", keeper=Identity(elsewhere, 1, 1))
    owner = OwnerRecord("o", None)
    assert Shown(record, owner).group is None
    content = views.kernel_json(
        Shown(record, owner), None, display_name="n", execution_state=None, session=None
    )
    assert content["rss_bytes"] is None
    assert content["process_count"] is None


# -- configuration ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("enabled", "maybe"),
        ("detached_processes", "forget"),
        ("terminate_grace", -0.1),
        ("terminate_grace", 61),
        ("retire_timeout", 0),
        ("launch_timeout", 0),
        ("launch_timeout", 301),
        ("ready_timeout", -1),
        ("recover", "perhaps"),
        ("stale_file_age", -1),
        ("scan_max_age", -1),
        ("history_limit", -1),
        ("history_limit", 100_001),
        ("oom_score_adj", -1),
        ("oom_score_adj", 1001),
    ],
)
def test_traits_have_bounds(name: str, bad: object) -> None:
    with pytest.raises(TraitError):
        OwnedKernels(**{name: bad})


def test_who_shortens_the_history() -> None:
    assert OwnedKernels(parent=ServerApp()).settings().history_limit == 500
    assert OwnedKernels(parent=AsyncKernelManager()).settings().history_limit is None
    given = Config({"OwnedKernels": {"history_limit": 30}})
    assert OwnedKernels(config=given).settings().history_limit == 30


def test_traits_are_those_of_the_contract_and_explain_themselves() -> None:
    own = {
        name: trait
        for name, trait in OwnedKernels.class_traits(config=True).items()
        if trait.this_class is OwnedKernels
    }
    contract = {
        "enabled",
        "detached_processes",
        "terminate_grace",
        "retire_timeout",
        "launch_timeout",
        "ready_timeout",
        "warm",
        "warm_preload",
        "standby",
        "journal_dir",
        "stale_file_age",
        "scan_max_age",
        "recover",
        "websocket_nodelay",
        "oom_score_adj",
        "history_limit",
    }
    assert contract <= set(own)
    for name, trait in own.items():
        assert len(trait.help.split()) >= 8, name
