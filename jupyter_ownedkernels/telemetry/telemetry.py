"""The one place that listens to what happens to kernels, and tells it to the outside:
as events (jupyter-events) and as metrics (Prometheus).

Transitions are reported by other threads than the event loop's; events are emitted on
the loop, where their listeners run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import CleanResult, LaunchRecord, Report, State
from . import metrics

if TYPE_CHECKING:
    from jupyter_events import EventLogger

    from ..owned_kernel import OwnedKernel
    from ..ownership import Ownership
    from ..recovery import Recovery

log = logging.getLogger(__name__)

SCHEMA_ID = "https://events.jupyter.org/jupyter_ownedkernels/kernel_ownership/v1"
SCHEMA = Path(__file__).parents[1] / "event_schemas" / "kernel_ownership" / "v1.yaml"

_ACTED = frozenset({"terminated", "killed", "removed"})


class Telemetry:
    """Events and metrics of one server. Made and used on its event loop."""

    def __init__(self, event_logger: EventLogger, loop: asyncio.AbstractEventLoop) -> None:
        self._events = event_logger
        self._loop = loop
        self._told: set[str] = set()
        self._also: Callable[[LaunchRecord], None] = lambda _: None
        if SCHEMA_ID not in event_logger.schemas:
            event_logger.register_event_schema(SCHEMA)

    def follow(
        self, ownership: Ownership, also: Callable[[LaunchRecord], None] = lambda _: None
    ) -> None:
        """Tell of each transition of the newest launches from now on.

        ``also`` is called with each, on the event loop.
        """
        self._also = also
        ownership.listen(self._on_transition)
        ownership.warm.on_disabled = self._on_warm_disabled

    # -- what is told ----------------------------------------------------------------

    def recovered(self, done: Recovery) -> None:
        """A recovery has ended what dead owners left, or says what it would end."""
        if done.did_something:
            self._emit("recovered", count=done.processes, message=done.message)

    def scanned(self, report: Report) -> None:
        """A scan is done. Tells of what no scan of this server has found before."""
        metrics.SCAN_DURATION.observe(report.duration_ms / 1000)
        found = {one.id for one in report.findings if one.by_default}
        new = found - self._told
        # What a scan does not find any more may be told of again.
        self._told = found
        if new:
            totals: dict[str, int] = {}
            for finding in report.findings:
                if finding.id in new:
                    totals[finding.kind] = totals.get(finding.kind, 0) + 1
            self._emit("stray_found", count=len(new), message=f"found: {_in_words(totals)}")

    def cleaned(self, results: Iterable[CleanResult]) -> None:
        """Somebody's clean is done (no dry run)."""
        done: dict[str, int] = {}
        count = 0
        for result in results:
            kind = result.kind or "unknown"
            metrics.CLEANED.labels(kind=kind, outcome=result.outcome).inc()
            if result.outcome in _ACTED:
                count += 1
                done[kind] = done.get(kind, 0) + 1
        if count:
            self._emit("cleaned", count=count, message=f"ended or removed: {_in_words(done)}")

    # -- transitions -----------------------------------------------------------------

    def _on_transition(self, kernel: OwnedKernel, before: State) -> None:
        self._hop(self._transition, kernel.record, before, kernel.made_again)

    def _on_warm_disabled(self, interpreter: str, reason: str) -> None:
        self._hop(self._emit_warm_disabled, interpreter, reason)

    def _hop(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            log.debug("The event loop is closed: nobody is told")

    def _emit_warm_disabled(self, interpreter: str, reason: str) -> None:
        self._emit("warm_disabled", message=f"{interpreter}: {reason}")

    def _transition(self, record: LaunchRecord, before: State, made_again: bool) -> None:
        self._also(record)
        if before is State.LAUNCHING:
            self._launch_settled(record, made_again)
        if record.state is State.ENDED and _ran(record):
            self._ended(record)

    def _launch_settled(self, record: LaunchRecord, made_again: bool) -> None:
        mode = record.launch_mode
        if not _ran(record):
            metrics.LAUNCHES.labels(mode=mode, result="fallback" if made_again else "failed").inc()
            return
        metrics.LAUNCHES.labels(mode=mode, result="ok").inc()
        if record.running_at is not None:
            metrics.LAUNCH_DURATION.labels(mode=mode).observe(
                max(0.0, record.running_at - record.at)
            )
        watched = "" if record.state is not State.UNWATCHED else ", and is not watched"
        self._emit("launched", record, message=f"kernel {record.kernel_name} was started{watched}")

    def _ended(self, record: LaunchRecord) -> None:
        exit_ = record.exit
        if exit_ is not None:
            metrics.EXITS.labels(cause=exit_.cause).inc()
            if exit_.cause == "keeper-died":
                self._emit("keeper_lost", record, message="the kernel's keeper died")
        self._emit(
            "ended",
            record,
            message=exit_.summary if exit_ is not None else "the kernel has ended",
            **({"exit": exit_.to_json()} if exit_ is not None else {}),
        )
        left = [one for one in record.survivors if one.reason == "detached"]
        if left:
            text = (
                f"{len(left)} detached {'process lives' if len(left) == 1 else 'processes live'} on"
            )
            self._emit("left_detached", record, count=len(left), message=text)

    def _emit(self, action: str, record: LaunchRecord | None = None, **fields: Any) -> None:
        data: dict[str, Any] = {"action": action, **fields}
        if record is not None:
            data["kernel_id"] = record.kernel_id
            data["launch_id"] = record.launch_id
            data["generation"] = record.generation
            process = record.kernel or record.process
            if process is not None:
                data["pid"] = process.pid
        try:
            self._events.emit(schema_id=SCHEMA_ID, data=data)
        except Exception:
            # Whatever a listener or a handler of the log does, the kernel is not affected.
            log.exception("The event %s could not be emitted", action)


def _ran(record: LaunchRecord) -> bool:
    return record.process is not None or record.running_at is not None


_NAMES = {
    "stray_kernel": ("stray kernel", "stray kernels"),
    "stray_process": ("stray process", "stray processes"),
    "detached": ("detached process", "detached processes"),
    "stale_file": ("stale file", "stale files"),
    "unknown": ("other item", "other items"),
}


def _in_words(totals: dict[str, int]) -> str:
    return ", ".join(
        f"{number} {_NAMES.get(kind, (kind, kind))[number != 1]}" for kind, number in totals.items()
    )
