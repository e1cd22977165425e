"""SIGKILL for the owner, or for its helpers, at any moment of a launch."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import census
from support.census import Proc
from support.workspace import Workspace

PROGRAM = Path(__file__).parents[1] / "support/forking_owner.py"
GONE_WITHIN = 10.0
# A Python kernel has bound its ports by then, and a mini kernel long before.
LONGEST = 0.4

Begin = Callable[[str, str, int], Proc]


@pytest.fixture(scope="module")
def begin(workspace: Workspace) -> Iterator[Begin]:
    """Fork an owner that asks for a launch now; the owner."""
    path = str(workspace.path / "rounds")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        template = subprocess.Popen(
            [sys.executable, str(PROGRAM), path],
            env=workspace.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        listener.settimeout(60)
        link, _ = listener.accept()
    link.settimeout(60)
    answers = link.makefile("rb")

    def ask(mark: str, spec: str, before: int) -> Proc:
        request = {"mark": mark, "spec": spec, "before": before}
        link.sendall(json.dumps(request).encode() + b"\n")
        return census.find(int(answers.readline()))

    yield ask
    answers.close()
    link.close()
    template.kill()
    template.wait(30)


def rounds(soak: bool, few: int) -> tuple[random.Random, int]:
    """A source of chance whose seed is printed (and can be given), and a number of rounds."""
    seed = int(os.environ.get("OWNEDKERNELS_SEED") or random.SystemRandom().randrange(10**9))
    print(f"OWNEDKERNELS_SEED={seed}")
    return random.Random(seed), 200 if soak else few


def settle(mark: str) -> list[str]:
    """What is left of a round, at rest."""
    left = census.left_after(census.marked(mark), GONE_WITHIN)
    # A helper between fork and exec does not bear the mark yet.
    time.sleep(0.03)
    left |= census.left_after(census.marked(mark), GONE_WITHIN)
    told = census.describe(left)
    census.end(left)
    return told


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "before", "few"), [("mini", 0, 8), ("mini", 1, 8), ("python", 0, 6), ("python", 1, 4)]
)
def test_owner_killed(
    workspace: Workspace, begin: Begin, soak: bool, kind: str, before: int, few: int
) -> None:
    """Zero survivors, whether the spawner runs already or is only being started."""
    chance, count = rounds(soak, few)
    spec = workspace.mini("random") if kind == "mini" else workspace.python("random-python")
    # With a spawner up, all of a mini kernel's launch is in the first 100 ms.
    longest = LONGEST if kind == "python" else LONGEST / 4
    survivors = {}
    for number in range(count):
        mark = f"OWNEDKERNELS_ROUND={uuid.uuid4().hex}"
        moment = chance.uniform(0, longest)
        owner = begin(mark.partition("=")[2], spec, before)
        time.sleep(moment)
        census.end([owner])
        left = settle(mark)
        if left:
            survivors[f"round {number}, {moment * 1000:.1f} ms"] = left
    assert survivors == {}


@pytest.mark.soak
@pytest.mark.parametrize("victims", ["spawner", "keepers", "spawner, keepers, owner"])
def test_helpers_killed(workspace: Workspace, begin: Begin, soak: bool, victims: str) -> None:
    """Whoever is killed first, after the owner's death nothing is left."""
    chance, count = rounds(soak, 5)
    spec = workspace.mini("random")
    survivors = {}
    for number in range(count):
        mark = f"OWNEDKERNELS_ROUND={uuid.uuid4().hex}"
        moment, pause = chance.uniform(0, LONGEST / 4), chance.uniform(0, 0.05)
        owner = begin(mark.partition("=")[2], spec, 1)
        time.sleep(moment)
        helpers = {"kernel-spawner": set(), "kernel-keeper": set()}
        for proc in census.below(owner.pid):
            seen = census.line(proc.pid)
            if seen is not None and seen.name in helpers:
                helpers[seen.name].add(proc)
        if "spawner" in victims:
            census.end(helpers["kernel-spawner"])
        if "keepers" in victims:
            census.end(helpers["kernel-keeper"])
        if "owner" not in victims:
            time.sleep(pause)
        census.end([owner])
        left = settle(mark)
        if left:
            survivors[f"round {number}, {moment * 1000:.1f} ms, {pause * 1000:.1f} ms"] = left
    assert survivors == {}


@pytest.mark.soak
def test_owner_told_to_leave(workspace: Workspace, begin: Begin, soak: bool) -> None:
    """As a service manager does it: SIGTERM to everybody at once, SIGKILL for the owner later."""
    chance, count = rounds(soak, 4)
    spec = workspace.mini("random")
    for _ in range(count):
        mark = f"OWNEDKERNELS_ROUND={uuid.uuid4().hex}"
        owner = begin(mark.partition("=")[2], spec, 1)
        time.sleep(chance.uniform(0, LONGEST / 4))
        for proc in census.below(owner.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(proc.pid, signal.SIGTERM)
        time.sleep(chance.uniform(0, 0.05))
        census.end([owner])
        assert settle(mark) == []
