"""The records that pass between the layers, and the JSON that REST and CLI show.

Plain data: no I/O, no clocks. Field names are those of the interfaces.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .identity import Identity

Cause = Literal[
    "exited", "killed", "shutdown", "restart", "owner-died", "keeper-died", "culled"
]
LaunchMode = Literal["exec", "fork", "stock", "other"]
FindingKind = Literal[
    "stray_kernel", "stray_process", "detached", "stale_file", "foreign", "unknown"
]
Outcome = Literal[
    "terminated",
    "killed",
    "removed",
    "already-gone",
    "identity-changed",
    "not-permitted",
    "kept",
    "refused",
]


class State(str, enum.Enum):
    """Where one launch stands."""

    LAUNCHING = "launching"
    RUNNING = "running"
    RETIRING = "retiring"
    ENDED = "ended"
    UNWATCHED = "unwatched"
    """Runs, started the stock way: nothing ends it when the owner dies."""
    UNJOURNALED = "unjournaled"
    """Runs and is watched, but could not be put on record."""


@dataclass(frozen=True)
class Survivor:
    """A process that was left when a launch was retired, and why."""

    pid: int
    start_ticks: int
    session: int
    reason: Literal["detached", "not-permitted", "uninterruptible", "timeout"]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Exit:
    """How a kernel ended. ``summary`` is one sentence for a person."""

    code: int | None
    signal: str | None
    core_dump: bool
    oom: bool | None
    cause: Cause
    max_rss_bytes: int | None
    cpu_s: float | None
    at: float
    summary: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LaunchRecord:
    """What the journal knows of one launch: never a key, token or environment."""

    launch_id: str
    kernel_id: str
    generation: int
    kernel_name: str
    connection_file: str
    launch_mode: LaunchMode = "exec"
    state: State = State.LAUNCHING
    at: float = 0.0
    keeper: Identity | None = None
    process: Identity | None = None
    """The launched process; for a wrapper the kernel process is in ``kernel``."""
    kernel: Identity | None = None
    sessions: tuple[int, ...] = ()
    survivors: tuple[Survivor, ...] = ()
    exit: Exit | None = None
    detached_policy: Literal["keep", "kill"] = "keep"


@dataclass(frozen=True)
class Finding:
    """One thing that the doctor found. ``id`` is opaque and carries the identity."""

    id: str
    kind: FindingKind
    proofs: tuple[str, ...]
    action: Literal["terminate", "remove"] | None = None
    by_default: bool = False
    pid: int | None = None
    kernel_id: str | None = None
    kernel_name: str | None = None
    owner: dict[str, Any] | None = None
    started_at: float | None = None
    age_s: float | None = None
    rss_bytes: int | None = None
    cmdline: tuple[str, ...] | None = None
    path: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """One scan. Nothing is called stale when it is not ``complete``."""

    scanned_at: float
    duration_ms: float
    complete: bool
    incomplete_reason: str | None = None
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @property
    def counts(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for finding in self.findings:
            totals[finding.kind] = totals.get(finding.kind, 0) + 1
        return totals

    def to_json(self) -> dict[str, Any]:
        return {
            "scanned_at": self.scanned_at,
            "duration_ms": self.duration_ms,
            "complete": self.complete,
            "incomplete_reason": self.incomplete_reason,
            "findings": [finding.to_json() for finding in self.findings],
            "counts": self.counts,
        }


@dataclass(frozen=True)
class CleanResult:
    """What a clean did with one item, and why."""

    id: str
    kind: FindingKind | None
    outcome: Outcome
    reason: str
    pid: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
