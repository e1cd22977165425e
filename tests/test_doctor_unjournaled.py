"""Stray kernels without a journal, by a table of processes: who is flagged, and who never is."""

from __future__ import annotations

from typing import Any

import pytest
from support.tables import UID, Table, launch, view

from jupyter_ownedkernels.doctor.findings import Item
from jupyter_ownedkernels.doctor.unjournaled import (
    Surroundings,
    launcher_file,
    matches,
    unjournaled,
)
from jupyter_ownedkernels.marks import FIXTURE_MARKER

RUNTIME = "/run/user/1000/jupyter"
FILE = f"{RUNTIME}/kernel-1.json"
PYTHON = ("/usr/bin/python3", "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", FILE)
R = ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"]
SPECS = {"ir": R, "bash": ["python", "-m", "bash_kernel", "-f", "{connection_file}"]}


def scan(table: Table, *views: Any, specs: dict[str, list[str]] = SPECS) -> list[Item]:
    return unjournaled(table.owners(*views), Surroundings((RUNTIME,), lambda: specs))


def stray(table: Table, pid: int = 100, **fields: Any) -> None:
    """What a server with process number 50 leaves when it is killed."""
    table.add(pid, **{"argv": PYTHON, "environ": {"JPY_PARENT_PID": "50"}, **fields})


def only(items: list[Item]) -> Item:
    (item,) = items
    return item


def test_a_kernel_that_only_the_adopter_of_orphans_is_above() -> None:
    table = Table()
    stray(table)
    item = only(scan(table))
    assert item.finding.kind == "stray_kernel"
    assert item.finding.action == "terminate"
    assert item.finding.by_default
    assert item.finding.path == FILE
    assert len(item.finding.proofs) == 3


@pytest.mark.parametrize(
    ("argv", "flagged"),
    [
        (("/usr/lib/R/bin/exec/R", "--no-echo", "-e", "IRkernel::main()", "--args", FILE), True),
        (("R", "--slave", "-e", "IRkernel::main()", "--args", FILE), True),
        (("R", "-e", "other()", "--args", FILE), False),
        (("/opt/py/bin/python3.12", "-m", "bash_kernel", "-f", FILE), True),
        (("/usr/bin/python3", "/usr/bin/R", "-e", "IRkernel::main()", "--args", FILE), True),
        (("ruby", "-m", "bash_kernel", "-f", FILE), False),
        (("python", "-m", "other_kernel", "-f", FILE), False),
        (("python", "-m", "bash_kernel", "-f", "/elsewhere/kernel-1.json"), False),
        (("python", "-m", "ipykernel_launcher", "-f", "/tmp/tmpabc.json"), True),
        (("python", "-m", "ipykernel_launcher"), False),
        (("vim", FILE), False),
        (("python", "-m", "jupyter", "console", "--existing", FILE), False),
    ],
)
def test_only_what_looks_like_an_installed_kernel(argv: tuple[str, ...], flagged: bool) -> None:
    table = Table()
    stray(table, argv=argv)
    kinds = [item.finding.kind for item in scan(table)]
    assert ("stray_kernel" in kinds) is flagged
    assert not any(item.doomed for item in scan(table)) or flagged


def test_a_live_ancestor_owns_it() -> None:
    table = Table()
    table.add(70, argv=("code", "--type=extensionHost"))
    stray(table, ppid=70)
    assert scan(table) == []


def test_an_ancestor_that_is_reached_through_a_wrapper_owns_it_too() -> None:
    table = Table()
    table.add(70, argv=("papermill",))
    table.add(71, ppid=70, argv=("sh", "-c", f"python -m ipykernel_launcher -f {FILE}"))
    stray(table, ppid=71)
    assert scan(table) == []


def test_an_orphaned_wrapper_goes_with_its_kernel() -> None:
    table = Table()
    table.add(71, argv=("python", "/opt/conda/bin/conda", "run", *PYTHON))
    table.add(72, ppid=71, session=71, argv=("bash", "/tmp/tmpscript"))
    stray(table, ppid=72, session=71)
    item = only(scan(table))
    assert item.finding.pid == 100
    assert {entry.pid for entry in item.doomed} == {100, 71, 72}


def test_a_wrapper_that_is_left_alone_is_flagged() -> None:
    table = Table()
    stray(table, 71, argv=("python", "/opt/conda/bin/conda", "run", *PYTHON))
    assert only(scan(table)).finding.pid == 71


def test_a_named_parent_that_lives_and_is_older_owns_it() -> None:
    table = Table()
    table.add(50, age=5000)
    stray(table)
    assert scan(table) == []


def test_a_named_parent_that_is_younger_is_another_process() -> None:
    table = Table()
    table.add(50, age=100)
    stray(table)
    assert only(scan(table)).finding.by_default


def test_a_named_parent_of_the_same_tick_may_be_the_one() -> None:
    table = Table()
    stray(table)
    table.add(50, ticks=table.processes[100].start_ticks)
    assert scan(table) == []


def test_a_named_parent_that_is_hidden_may_live() -> None:
    table = Table()
    stray(table)
    table.hidden.add(50)
    assert scan(table) == []
    table.hidden.clear()
    table.incomplete = "hidepid"
    table.reader.taken.add(50)
    assert scan(table) == []


def test_without_a_named_parent_it_is_not_ended_by_default() -> None:
    table = Table()
    stray(table, environ={})
    item = only(scan(table))
    assert item.finding.kind == "stray_kernel"
    assert not item.finding.by_default


def test_a_young_kernel_may_be_on_its_way_to_an_owner() -> None:
    table = Table()
    stray(table, age=59)
    assert scan(table) == []


def test_another_users_kernel_is_not_ours() -> None:
    table = Table()
    stray(table, uid=UID + 1)
    assert scan(table) == []
    # An entry of root in /proc may stand for another user's process: its status decides.
    stray(table, 101)
    table.reader.uids[101] = UID + 1
    assert scan(table) == []


def test_another_containers_kernel_is_not_judged() -> None:
    table = Table()
    stray(table)
    table.reader.namespaces[100] = 99
    assert scan(table) == []
    table.reader.namespaces[100] = 0
    assert scan(table) == []


def test_an_unreadable_environment_makes_it_unknown() -> None:
    table = Table()
    stray(table, environ=PermissionError())
    item = only(scan(table))
    assert (item.finding.kind, item.finding.action, item.doomed) == ("unknown", None, ())


def test_a_test_suites_fixture_is_shown_and_never_cleaned() -> None:
    table = Table()
    stray(table, environ={"JPY_PARENT_PID": "50", FIXTURE_MARKER: "1"})
    item = only(scan(table))
    assert (item.finding.kind, item.finding.action, item.doomed) == ("unknown", None, ())


def test_an_unknown_helper_is_shown_and_never_cleaned() -> None:
    table = Table()
    stray(table, argv=("python", "helper.py", FILE))
    item = only(scan(table))
    assert (item.finding.kind, item.finding.action, item.doomed) == ("unknown", None, ())


@pytest.mark.parametrize("standing", ["alive", "foreign", "held", "unknown", "dead"])
def test_what_a_journal_names_is_judged_by_the_journal(standing: str) -> None:
    table = Table()
    stray(table)
    owner = table.add(50, age=10)
    record = launch(1)
    journal = view(owner if standing == "alive" else None, record)
    assert scan(table, journal) == []


def test_systemd_of_the_user_adopts_orphans() -> None:
    table = Table()
    table.add(40, argv=("/lib/systemd/systemd", "--user"))
    stray(table, ppid=40)
    assert only(scan(table)).finding.by_default


def test_another_subreaper_must_be_found_out() -> None:
    table = Table()
    stray(table, ppid=899)
    assert scan(table) == []
    table.reader.adopter = 899
    assert only(scan(table)).finding.by_default


def test_a_subreaper_that_is_not_above_the_doctor_is_taken_for_an_owner() -> None:
    table = Table()
    table.add(40, argv=("tini", "-s"))
    table.reader.adopter = 40
    stray(table, ppid=40)
    assert scan(table) == []


@pytest.mark.parametrize("environ", [{"JPY_PARENT_PID": "50"}, PermissionError()])
def test_an_adopter_that_shares_the_named_parent_may_have_started_it(environ: Any) -> None:
    table = Table()
    stray(table, ppid=899)
    table.reader.adopter = 899
    table.reader.environs[899] = environ
    assert scan(table) == []


def test_the_doctors_own_kernel_is_never_flagged() -> None:
    table = Table()
    stray(table, 899, session=899)
    assert scan(table) == []


def test_a_stray_kernel_ends_with_its_session_and_its_forks() -> None:
    table = Table()
    stray(table)
    table.add(101, ppid=100, session=100)
    table.add(102, ppid=101, session=100)
    table.add(103, ppid=100, session=103)
    stray(table, 104, ppid=100, session=104)
    table.add(105, session=100)
    item = only(scan(table))
    assert {entry.pid for entry in item.doomed} == {100, 101, 102, 104}
    assert "left its session, and is kept: process 103" in " ".join(item.finding.proofs)


def test_kernelspecs_are_read_only_when_something_may_be_one() -> None:
    table = Table()
    stray(table)

    def never() -> dict[str, list[str]]:
        raise AssertionError("kernelspecs were read")

    assert len(unjournaled(table.owners(), Surroundings((RUNTIME,), never))) == 1


def test_a_path_with_odd_characters_is_found_whole() -> None:
    path = f'{RUNTIME}/kernel-a b\n"c.json'
    assert launcher_file(("python", "-m", "ipykernel_launcher", "-f", path)) == path
    assert matches(("python", "-m", "bash_kernel", "-f", path), SPECS["bash"], path)


@pytest.mark.parametrize("template", [[], ["kernel"], ["kernel", "--port", "1"]])
def test_a_kernelspec_without_a_connection_file_matches_nothing(template: list[str]) -> None:
    assert not matches(("kernel", FILE), template, FILE)
