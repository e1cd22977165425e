"""One launch of one kernel: its record, the states it may take, and how its end is described."""

from __future__ import annotations

import logging
import time

from .launching.launch import Exited, Launch
from .models import Cause, Exit, LaunchRecord, State
from .runtime import exits

log = logging.getLogger(__name__)

# From a state to the states that may follow. Anything else is a defect, and refused.
LEGAL: dict[State, frozenset[State]] = {
    State.LAUNCHING: frozenset({State.RUNNING, State.UNWATCHED, State.RETIRING, State.ENDED}),
    State.RUNNING: frozenset({State.RETIRING, State.ENDED}),
    State.UNWATCHED: frozenset({State.RETIRING, State.ENDED}),
    State.RETIRING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}


class OwnedKernel:
    """One launch of one kernel, as its owner knows it. The next launch is a new object."""

    def __init__(self, record: LaunchRecord, previous: OwnedKernel | None) -> None:
        self.record = record
        self.launch: Launch | None = None
        self.wish: Cause | None = None
        """Why the launch is about to end, when somebody asked for it."""
        self.unwatched_reason: str | None = None
        self.made_again = False
        """The launch came to nothing and is made again, in another way."""
        self.removes_file = False
        """The connection file was written for this launch, and goes with it."""
        self.last_exit: Exit | None = previous.last_exit if previous else None
        """How this launch ended, or, while it runs, the one before it."""
        ran_before = previous is not None and previous.record.process is not None
        self.restarts: int = (previous.restarts if previous else 0) + ran_before

    @property
    def kernel_id(self) -> str:
        return self.record.kernel_id

    @property
    def state(self) -> State:
        return self.record.state


def describe_exit(kernel: OwnedKernel, exited: Exited) -> Exit:
    cause: Cause
    if exited.keeper_lost:
        cause = "keeper-died"
    elif kernel.wish is not None:
        cause = kernel.wish
    else:
        cause = "killed" if exited.status is not None and exited.status < 0 else "exited"
    return Exit(
        **exits.describe(
            exited.status,
            cause,
            time.time(),
            exited.core_dump,
            exited.max_rss_bytes,
            exited.cpu_s,
            exited.oom,
        )
    )


def log_accident(record: LaunchRecord, exit_: Exit) -> None:
    """One line about an end that nobody asked for. ``exit()`` in a cell is not worth a warning."""
    if exit_.cause in ("exited", "killed", "keeper-died"):
        level = logging.INFO if exit_.code == 0 else logging.WARNING
        name = f" ({record.kernel_name})" if record.kernel_name else ""
        log.log(level, "Kernel %s%s: %s", record.kernel_id, name, exit_.summary)
