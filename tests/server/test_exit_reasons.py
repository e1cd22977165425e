"""Why a kernel ended: on record, in the kernel's model, and soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cgroup import MemoryGroup
from support.workspace import Workspace

Play = Callable[..., Any]

CELLS = {
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL",
    "import os; os._exit(3)": "exited with code 3",
    "import os; os.abort()": "killed by SIGABRT",
    "import ctypes; ctypes.string_at(0)": "killed by SIGSEGV",
}


def test_each_way_to_crash_has_its_reason(play: Play) -> None:
    found = play("crashes", *CELLS)
    for answer, summary in zip(found, CELLS.values(), strict=True):
        assert answer["exit"]["summary"].startswith(summary)
        assert answer["reason"] == answer["exit"]["summary"]
        (line,) = answer["log"]
        assert line.endswith(f" (python3): {answer['reason']}")
        assert answer["exit"]["cause"] == ("exited" if "code" in summary else "killed")
        assert answer["exit"]["oom"] in (False, None) or "SIGKILL" not in summary
        assert answer["exit"]["max_rss_bytes"] > 10_000_000
        assert answer["exit"]["cpu_s"] > 0
        assert (answer["restarts"], answer["generation"]) == (1, 2)
        # Stock looks every 3 s; a bound that only its absence would pass is enough here.
        assert answer["restarted_after"] < 2
        assert answer["last"]["cause"] == "shutdown"
        assert answer["last"]["summary"] == "shut down"
    codes = [answer["exit"]["code"] for answer in found]
    assert codes == [None, 3, None, None]
    signals = [answer["exit"]["signal"] for answer in found]
    assert signals == ["SIGKILL", None, "SIGABRT", "SIGSEGV"]


@pytest.mark.skipif(bool(MemoryGroup.obstacle()), reason=MemoryGroup.obstacle())
def test_out_of_memory_is_said(play: Play, workspace: Workspace) -> None:
    limit = 300 << 20
    with MemoryGroup(limit) as group:
        workspace.python("limited", wrapper=group.prefix())
        # Bounded, lest a limit that does not hold takes the memory of the machine.
        hog = "import os\nhog = [bytearray(10 << 20) for _ in range(100)]\nos._exit(7)"
        (found,) = play("crashes", hog, TEST_KERNEL="limited")
        assert group.oom_kills() == 1
    assert found["exit"]["oom"] is True
    assert found["exit"]["signal"] == "SIGKILL"
    assert found["exit"]["summary"].startswith("killed by SIGKILL: out of memory (peak ")
    assert found["exit"]["max_rss_bytes"] > limit // 2
    assert found["reason"] == found["exit"]["summary"]


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        ("", [0.0, 0.25, 0.5, 1.0, 2.0, 0.0]),
        ("--KernelRestarter.restart_limit=2", [0.0, 0.25, 0.0]),
    ],
)
def test_a_kernel_that_only_dies_keeps_its_reason(
    play: Play, workspace: Workspace, options: str, pauses: list[float]
) -> None:
    """And its ports, as long as it is restarted, after a longer and longer pause."""
    workspace.spec("dies", ["sh", "-c", "exit 41", "-m ipykernel", "{connection_file}"])
    found = play("gives_up", TEST_SERVER_OPTIONS=options)
    assert found["pauses"] == [[pause, 5] for pause in pauses]
    assert found["held"] == 0
    assert [line.partition(" (")[2] for line in found["log"]] == [
        "dies): exited with code 41" for _ in pauses
    ]
    assert found["exit"]["code"] == 41
    assert found["exit"]["summary"] == "exited with code 41"
    assert found["state"] == "ended"
    assert found["generation"] == len(pauses)  # the first start and the restarts
    assert found["listed"]
    assert found["fds"][1] <= found["fds"][0]
    assert found["later"] == ["running", len(pauses) + 1]
    assert found["later_exit"]["code"] == 41


def test_who_dies_of_the_interrupt_of_a_shutdown_was_shut_down(
    play: Play, workspace: Workspace
) -> None:
    # It binds its ports and has no handler for SIGINT, with which a shutdown begins.
    found = play("shut_down", workspace.mini("interruptible"))
    assert found["signal"] == "SIGINT"
    assert found["cause"] == "shutdown"


def test_culling_is_a_reason_of_its_own(play: Play) -> None:
    assert play("culled") == {"listed": False, "cause": "culled"}


@pytest.mark.parametrize(
    ("options", "raised"), [("", 0), ("--OwnedKernels.oom_score_adj=300", 300)]
)
def test_kernels_before_the_server_when_memory_ends(play: Play, options: str, raised: int) -> None:
    server, kernel = play("adjustment", TEST_SERVER_OPTIONS=options)
    assert kernel == max(server, raised)
