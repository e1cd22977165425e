"""The records that pass between the layers, and the JSON that REST and CLI show.

Plain data: no I/O, no clocks. Field names are those of the interfaces.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from .identity import Identity, World

Cause = Literal["exited", "killed", "shutdown", "restart", "owner-died", "keeper-died", "culled"]
LaunchMode = Literal["exec", "fork", "stock", "other"]
EndedBy = Literal["owner", "keeper", "recovery"]
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

    def identity(self, world: World) -> Identity:
        """Its full name, in the world of the owner whose keeper saw it."""
        return Identity(world, self.pid, self.start_ticks)

    def to_json(self) -> dict[str, Any]:
        return _shallow(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Survivor:
        """Read what :meth:`to_json` wrote. ValueError when a field is missing or odd."""
        return cls(
            pid=_typed(data, "pid", int),
            start_ticks=_typed(data, "start_ticks", int),
            session=_typed(data, "session", int),
            reason=cast(Any, _typed(data, "reason", str)),
        )


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
        return _shallow(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Exit:
        """Read what :meth:`to_json` wrote. ValueError when a field is missing or odd."""
        return cls(
            code=_optional(data, "code", int),
            signal=_optional(data, "signal", str),
            core_dump=_typed(data, "core_dump", bool),
            oom=_optional(data, "oom", bool),
            cause=cast(Cause, _typed(data, "cause", str)),
            max_rss_bytes=_optional(data, "max_rss_bytes", int),
            cpu_s=_optional(data, "cpu_s", float),
            at=_typed(data, "at", float),
            summary=_typed(data, "summary", str),
        )


@dataclass(frozen=True)
class OwnerRecord:
    """What the journal knows of the owner. ``url`` never carries a token."""

    owner_id: str
    identity: Identity | None
    """None where the system has no /proc: nothing can be proven about such an owner."""
    user: str = ""
    host: str = ""
    url: str = ""
    started_at: float = 0.0
    version: str = ""
    machine: str = ""
    """Tells installed systems apart, where the system has such an id."""

    def to_json(self) -> dict[str, Any]:
        identity = self.identity.to_json() if self.identity else None
        return {**_shallow(self), "identity": identity}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OwnerRecord:
        """Read what :meth:`to_json` wrote. ValueError when a field is missing or odd."""
        return cls(
            owner_id=_typed(data, "owner_id", str),
            identity=_identity(data, "identity"),
            user=_typed(data, "user", str),
            host=_typed(data, "host", str),
            url=_typed(data, "url", str),
            started_at=_typed(data, "started_at", float),
            version=_typed(data, "version", str),
            machine=_optional(data, "machine", str) or "",
        )


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
    running_at: float | None = None
    ended_at: float | None = None
    ended_by: EndedBy | None = None
    provisioner: dict[str, Any] | None = None
    """For ``launch_mode`` other: what the foreign provisioner says, without secrets."""

    @property
    def open(self) -> bool:
        """Whether something of it may run: its end is not on record."""
        return self.state is not State.ENDED

    def to_json(self) -> dict[str, Any]:
        return {
            **_shallow(self),
            "state": self.state.value,
            "keeper": self.keeper.to_json() if self.keeper else None,
            "process": self.process.to_json() if self.process else None,
            "kernel": self.kernel.to_json() if self.kernel else None,
            "sessions": list(self.sessions),
            "survivors": [survivor.to_json() for survivor in self.survivors],
            "exit": self.exit.to_json() if self.exit else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchRecord:
        """Read what :meth:`to_json` wrote. ValueError when a field is missing or odd."""
        found = data.get("exit")
        return cls(
            launch_id=_typed(data, "launch_id", str),
            kernel_id=_typed(data, "kernel_id", str),
            generation=_typed(data, "generation", int),
            kernel_name=_typed(data, "kernel_name", str),
            connection_file=_typed(data, "connection_file", str),
            launch_mode=cast(LaunchMode, _typed(data, "launch_mode", str)),
            state=State(_typed(data, "state", str)),
            at=_typed(data, "at", float),
            keeper=_identity(data, "keeper"),
            process=_identity(data, "process"),
            kernel=_identity(data, "kernel"),
            sessions=tuple(_items(data, "sessions", int)),
            survivors=tuple(Survivor.from_json(item) for item in _items(data, "survivors", dict)),
            exit=Exit.from_json(found) if isinstance(found, dict) else None,
            detached_policy=cast(Any, _typed(data, "detached_policy", str)),
            running_at=_optional(data, "running_at", float),
            ended_at=_optional(data, "ended_at", float),
            ended_by=cast("EndedBy | None", _optional(data, "ended_by", str)),
            provisioner=_optional(data, "provisioner", dict),
        )


@dataclass(frozen=True)
class HistoryEntry:
    """One thing that happened to a kernel, for the history of REST and CLI."""

    at: float
    event: Literal["ended", "recovered", "cleaned"]
    owner_id: str
    kernel_id: str | None = None
    launch_id: str | None = None
    generation: int | None = None
    kernel_name: str | None = None
    cause: Cause | None = None
    exit: Exit | None = None
    survivors: tuple[Survivor, ...] = ()
    by: EndedBy | None = None
    count: int | None = None
    """How many processes a recovery or clean ended."""
    message: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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


def _shallow(record: Any) -> dict[str, Any]:
    # asdict would go down into identities, whose JSON is flat.
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _typed(data: Mapping[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{name}: {kind.__name__} expected")
    return value


def _optional(data: Mapping[str, Any], name: str, kind: type) -> Any:
    return None if data.get(name) is None else _typed(data, name, kind)


def _items(data: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    values = _typed(data, name, list)
    if any(type(value) is not kind for value in values):
        raise ValueError(f"{name}: list of {kind.__name__} expected")
    return list(values)


def _identity(data: Mapping[str, Any], name: str) -> Identity | None:
    found = _optional(data, name, dict)
    return None if found is None else Identity.from_json(found)
