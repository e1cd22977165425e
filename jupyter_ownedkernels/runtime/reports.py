"""What a keeper has to say, in the shape in which owner and journal want it."""

from __future__ import annotations

import time
from typing import Any

from . import exits
from .retire import Leftover

# Of a kernel that cannot be reaped: its end is certain, how it ended is not known.
NO_EXIT: dict[str, Any] = {
    "status": None,
    "oom": None,
    "core": False,
    "max_rss": None,
    "cpu_s": None,
}


def failed(stage: str, error: OSError) -> dict[str, Any]:
    """The ``failed`` message for an error of the system."""
    return {
        "op": "failed",
        "stage": stage,
        "errno": error.errno,
        "text": error.strerror,
        "filename": None,
    }


def survivor(left: Leftover) -> dict[str, Any]:
    """One process that lives on after its launch, with the reason."""
    return {
        "pid": left.target.pid,
        "start_ticks": left.target.start_ticks,
        "session": left.session,
        "reason": left.reason,
    }


def ended(launch_id: str, exit_: dict[str, Any], survivors: list[dict[str, Any]]) -> dict[str, Any]:
    """The last line of a launch in the journal, written by a keeper whose owner died."""
    now = time.time()
    return {
        "event": "ended",
        "launch_id": launch_id,
        "at": now,
        "by": "keeper",
        "exit": exits.describe(
            exit_["status"],
            "owner-died",
            now,
            exit_["core"],
            exit_["max_rss"],
            exit_["cpu_s"],
            exit_["oom"],
        ),
        "survivors": survivors,
    }
