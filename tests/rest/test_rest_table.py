"""Looking again at the processes below some: as true as the first time, with less reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support import census

from jupyter_ownedkernels.processes import table as processes_table
from jupyter_ownedkernels.processes.table import Table, Top
from jupyter_ownedkernels.runtime import procfs

# Starts a child at each line that it reads, below itself or below its youngest child.
PARENT = """
import subprocess, sys
from ctypes import CDLL
CDLL(None).prctl(36, 1)  # orphans stay
for line in sys.stdin:
    program = ["sleep", "100"]
    if line == "deep\\n":
        program = ["sh", "-c", "sleep 100 & sleep 100 & wait"]
    subprocess.Popen(program, stdin=subprocess.DEVNULL)
    print("done", flush=True)
"""


class Tree:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.top: Top = (*census.find(self.process.pid), False)

    def grow(self, how: str = "flat") -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def close(self) -> None:
        left = {*census.below(self.process.pid), census.find(self.process.pid)}
        census.end(left)
        self.process.communicate()


@pytest.fixture
def tree() -> Iterator[Tree]:
    made = Tree()
    yield made
    made.close()


def same_as_anew(table: Table, top: Top) -> dict[int, procfs.Stat]:
    """What a look from scratch shows; both must agree on who is there and whose child it is."""
    anew = Table.take({top}).below(top)
    seen = table.below(top)
    assert {pid: one.ppid for pid, one in seen.items()} == {
        pid: one.ppid for pid, one in anew.items()
    }
    return seen


def test_children_that_come_and_go(tree: Tree) -> None:
    table = Table.take({tree.top})
    assert table.below(tree.top) == {}
    for number in range(1, 4):
        tree.grow()
        table = Table.take({tree.top}, table)
        assert len(same_as_anew(table, tree.top)) == number
    gone = census.find(next(iter(table.below(tree.top))))
    os.kill(gone.pid, signal.SIGKILL)
    assert not census.left_after({gone}, 5)
    table = Table.take({tree.top}, table)
    alive = [pid for pid, one in same_as_anew(table, tree.top).items() if one.alive]
    assert len(alive) == 2


def test_orphans_are_found_below_their_new_parent(tree: Tree) -> None:
    tree.grow("deep")
    census.wait_until(
        lambda: len(Table.take({tree.top}).below(tree.top)) == 3, 5, "three processes"
    )
    table = Table.take({tree.top})
    (shell,) = [pid for pid, one in table.below(tree.top).items() if one.ppid == tree.top[0]]
    os.kill(shell, signal.SIGKILL)
    census.wait_until(
        lambda: (
            sum(one.ppid == tree.top[0] for one in Table.take({tree.top}).below(tree.top).values())
            == 3
        ),
        5,
        "two orphans and the dead shell",
    )
    assert len(same_as_anew(Table.take({tree.top}, table), tree.top)) == 3


def test_only_what_matters_is_read_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.grow()
    tree.grow()
    table = Table.take({tree.top})
    read: list[int] = []
    stat = procfs.stat

    def counted(pid: int) -> procfs.Stat | None:
        read.append(pid)
        return stat(pid)

    monkeypatch.setattr(processes_table.procfs, "stat", counted)
    following = Table.take({tree.top}, table)
    below = set(following.below(tree.top))
    assert len(below) == 2
    assert below <= set(read)
    # Others that have just started are read, too; hardly as many as there are.
    known = set(read) & set(table.processes)
    assert known == below


def test_processes_that_were_of_no_interest_before_are_read_in_full(tree: Tree) -> None:
    other = Tree()
    try:
        other.grow()
        table = Table.take({tree.top})
        other.grow()
        assert not table.can_follow({tree.top, other.top})
        table = Table.take({tree.top, other.top}, table)
        assert len(same_as_anew(table, other.top)) == 2
    finally:
        other.close()


def test_a_top_that_is_new_can_follow() -> None:
    table = Table.take(())
    made = Tree()
    try:
        made.grow()
        assert table.can_follow({made.top})
        assert len(same_as_anew(Table.take({made.top}, table), made.top)) == 1
    finally:
        made.close()


def test_figures_are_of_this_moment(tree: Tree) -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        top: Top = (*census.find(busy.pid), True)
        table = Table.take({top})
        before = table.processes[busy.pid].cpu_ticks
        census.wait_until(
            lambda: Table.take({top}, table).processes[busy.pid].cpu_ticks > before + 5,
            20,
            "its time",
        )
    finally:
        busy.kill()
        busy.wait()


def test_a_number_that_is_anothers_now(tree: Tree) -> None:
    table = Table.take({tree.top})
    assert table.below((tree.top[0], tree.top[1] + 1, False)) == {}
    assert table.below((1 << 22, 5, False)) == {}
