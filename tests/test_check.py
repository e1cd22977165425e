"""``jupyter ownedkernels check``: what it says, and that it leaves nothing itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import census
from support.elsewhere import ROOT, needs_root

from jupyter_ownedkernels.cli import check
from jupyter_ownedkernels.cli.check import Outcome, Tried

pytestmark = pytest.mark.timeout(120)

GONE = Tried("idle", 1, 20.0, [], True)
SEEN = Outcome("0", "3", "Linux", "full", "", [], [GONE, GONE], True)


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="ok-check-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def environment(place: Path) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY"))}
    return {**inherited, "PYTHONPATH": str(ROOT), "HOME": str(place), "TMPDIR": str(place)}


@pytest.mark.parametrize(
    ("last", "status", "words"),
    [
        (GONE, 0, "Nothing outlived"),
        (Tried("idle", 1, None, ["python (pid 7)"], True), 1, "Something outlived"),
        (Tried("idle", 1, 20.0, [], False), 1, "Something outlived"),
        (Tried("idle", 0, None, [], True), 2, "NOT SEEN"),
        (Tried("idle", 0, None, [], False), 1, "Something outlived"),
        (None, 2, "cannot be told"),
    ],
)
def test_only_what_was_seen_to_go_is_gone(last: Tried | None, status: int, words: str) -> None:
    outcome = replace(SEEN, tried=[GONE, last] if last else [])
    assert outcome.status == status
    assert outcome.ok is (status == 0)
    assert words in check._table(outcome)
    assert ("Nothing outlived" in check._table(outcome)) is (status == 0)


def test_a_kernel_that_is_not_found_is_not_gone() -> None:
    assert list(check._watch({"idle": []}, 0.0)) == []


def test_it_sees_everything_go(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_ownedkernels.cli", "check", "--json"],
        env=environment(place),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], done.stderr) == (0, True, ""), told
    assert [one["processes"] for one in told["tried"]] == [1, 3, 2, 1]
    assert not census.marked(str(place))
    assert not list(place.glob("ownedkernels-check-*"))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("program", ["jupyter_server", "ipykernel_launcher"])
def test_one_that_is_ended_leaves_nothing(place: Path, signum: int, program: str) -> None:
    """While the server starts, and with a kernel."""
    child = subprocess.Popen(
        [sys.executable, "-m", "jupyter_ownedkernels.cli", "check"],
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Under nohup it would be ignored, which is not meant here.
        preexec_fn=lambda: signal.signal(signum, signal.SIG_DFL),
    )

    def started() -> set[census.Proc]:
        marked = census.marked(str(place))
        return marked if any(program in census.command(p.pid) for p in marked) else set()

    seen = census.wait_until(started, 60, program)
    child.send_signal(signum)
    said = child.communicate(timeout=60)
    left = census.left_after([*seen, *census.marked(str(place))], 5)
    census.end(left)
    assert not left
    assert (said, child.returncode) == ((b"", b""), 128 + signum)
    assert not list(place.glob("ownedkernels-check-*"))


NO_PROC = """
import select, subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "none", "/proc"], check=True)
from jupyter_ownedkernels.cli import main
del select.poll
sys.exit(main.main(["check"]))
"""


@needs_root
def test_where_no_process_can_be_seen_it_says_so(place: Path) -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", NO_PROC],
        env=environment(place),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr == ""
    assert "proc       NO" in done.stdout
    assert done.stdout.endswith("processes are not seen.\n")


def test_a_kernel_whose_cell_fails_is_ended(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of a stock server: nobody else would end them."""
    (place / "jupyter_server_config.py").write_text("c.OwnedKernels.enabled = False\n")
    for name, value in {**environment(place), "JUPYTER_CONFIG_PATH": str(place)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    kind = next(one for one in check.KINDS if not one.replies)
    monkeypatch.setattr(check, "KINDS", [replace(kind, spec="check-wrapper")])
    seen: set[census.Proc] = set()
    wait_for = check._wait_for

    def come_to_nothing(path: Path) -> None:
        wait_for(path)
        seen.update(census.marked(str(place)))
        raise TimeoutError("planted")

    monkeypatch.setattr(check, "_wait_for", come_to_nothing)
    with pytest.raises(TimeoutError, match="planted"):
        check.examine()
    assert len(seen) >= 3, "a server, a shell, a kernel"
    left = census.left_after(list(seen), 1)
    census.end(left)
    assert not left
