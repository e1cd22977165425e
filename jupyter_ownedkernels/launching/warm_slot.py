"""What is known of the warm starts of one kind of kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choice import Choice
    from .launch import LaunchRequest
    from .warm_spawner import WarmProcess

FAILURES_IN_A_ROW = 3
RETRY_AFTER = 600.0


class Slot:
    """The warm spawner of one kind of kernel, if there is one, and how it fared.

    Changed by :class:`.WarmPool` under its lock.
    """

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.process: WarmProcess | None = None
        self.state = "idle"
        """starting | ready | failed | off"""
        self.reason: str | None = None
        self.failures = 0
        """In a row; a success starts again at 0."""
        self.off_until = 0.0
        self.preload: tuple[str, ...] = choice.preload
        self.used_at = 0.0
        self.wanted: LaunchRequest | None = None
        """The newest launch of this kind: what standby kernels are made like."""

    def to_json(self) -> dict[str, Any]:
        """One entry of ``spawners`` in the health."""
        process = self.process
        return {
            "kind": "warm",
            "pid": process.pid if process is not None else None,
            "interpreter": self.choice.executable,
            "launches": process.launches if process is not None else 0,
            "failures": self.failures,
            "state": self.state,
            "reason": self.reason,
            "preload": list(self.preload),
        }

    def count_failure(self, reason: str, now: float) -> None:
        """The next launch starts another one, if not too many failed."""
        self.failures += 1
        self.state, self.reason = "failed", reason
        if self.failures >= FAILURES_IN_A_ROW:
            self.switch_off(reason, now)

    def switch_off(self, reason: str, now: float) -> None:
        """No warm starts of this kind for RETRY_AFTER seconds."""
        self.failures = max(self.failures, 1)
        self.state, self.reason = "off", reason
        self.off_until = now + RETRY_AFTER

    def let_go(self) -> None:
        """The spawner ends; its kernels live on."""
        if self.process is None:
            return
        if self.state == "starting":
            self.process.abort()
        else:
            self.process.close()
