"""Every recorded number is taken by somebody else, for real: none of them may come to harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.elsewhere import ROOT, needs_root

PROGRAM = Path(__file__).parent / "support" / "reuse_program.py"


@needs_root
@pytest.mark.timeout(900)
def test_no_innocent_is_ended_for_its_number(tmp_path: Path, soak: bool) -> None:
    """Owner, spawner, keeper, wrapper, kernel, child, detached: all taken, all alive after.

    Among them a real kernel with a living owner, and leaders of sessions and groups of the
    recorded numbers. Then journals that name living processes, but for one clock tick, or
    in another boot, host or namespace.
    """
    rounds = 100 if soak else 3
    new_namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run(
        [*new_namespace, sys.executable, str(PROGRAM), str(tmp_path), str(rounds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answers, done.stdout + done.stderr
    result = json.loads(answers[0].removeprefix("ANSWER "))
    assert result["killed"] == []
    assert result["numbers"] == 7 * rounds
    # Once in a while a thread is quicker.
    assert result["taken"] >= 0.9 * result["numbers"], "numbers were not used again"
    assert result["left"] == [], "the dead owner's connection file is removed all the same"
    assert result["journals"] == [], "and its journal given up"
