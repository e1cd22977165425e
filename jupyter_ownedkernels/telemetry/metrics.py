"""The Prometheus metrics, in the registry that the server's /metrics gives out.

Never a label by kernel: a server that runs for a year would have a million series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

PREFIX = "jupyter_ownedkernels"

T = TypeVar("T")


def _once(name: str, make: Callable[[], T]) -> T:
    """Make a metric, or find the one that an earlier import of this module has made."""
    known: Any = REGISTRY._names_to_collectors.get(name)
    return make() if known is None else known


class Source(Protocol):
    """Where the present numbers come from; asked in whatever thread collects them."""

    def kernels(self) -> Mapping[str, int]:
        """State to number of kernels."""

    def processes(self) -> int | None:
        """Of all kernels together, as last seen; None when never looked at."""

    def strays(self) -> Mapping[str, int] | None:
        """Kind to number of findings, of the last scan; None before the first."""

    def write_errors(self) -> int:
        """Records that could not be written to the journal when they were due."""


class Present(Collector):
    """Gauges that are read off when they are asked for, and so are never wrong."""

    source: Source | None = None

    def collect(self) -> Iterable[Metric]:
        source = self.source
        kernels = GaugeMetricFamily(
            f"{PREFIX}_kernels", "Kernels that this server owns.", labels=["state"]
        )
        processes = GaugeMetricFamily(
            f"{PREFIX}_processes", "Processes of all kernels together, as last seen."
        )
        strays = GaugeMetricFamily(
            f"{PREFIX}_strays", "Findings of the last scan.", labels=["kind"]
        )
        errors = CounterMetricFamily(
            f"{PREFIX}_journal_write_errors",
            "Records that could not be written to the journal when they were due.",
        )
        if source is not None:
            for state, number in source.kernels().items():
                kernels.add_metric([state], number)
            seen = source.processes()
            if seen is not None:
                processes.add_metric([], seen)
            for kind, number in (source.strays() or {}).items():
                strays.add_metric([kind], number)
            errors.add_metric([], source.write_errors())
        return [kernels, processes, strays, errors]


def _registered() -> Present:
    made = Present()
    REGISTRY.register(made)
    return made


PRESENT = _once(f"{PREFIX}_kernels", _registered)

LAUNCH_DURATION = _once(
    f"{PREFIX}_launch_duration_seconds",
    lambda: Histogram(
        f"{PREFIX}_launch_duration_seconds",
        "From the intent to launch a kernel, on disk, to its process.",
        ["mode"],
        buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
    ),
)
LAUNCHES = _once(
    f"{PREFIX}_launches_total",
    lambda: Counter(f"{PREFIX}_launches_total", "Launches of kernels.", ["mode", "result"]),
)
EXITS = _once(
    f"{PREFIX}_exits_total",
    lambda: Counter(f"{PREFIX}_exits_total", "Ends of kernels.", ["cause"]),
)
CLEANED = _once(
    f"{PREFIX}_cleaned_total",
    lambda: Counter(f"{PREFIX}_cleaned_total", "Findings acted on.", ["kind", "outcome"]),
)
SCAN_DURATION = _once(
    f"{PREFIX}_scan_duration_seconds",
    lambda: Histogram(
        f"{PREFIX}_scan_duration_seconds",
        "Scans for strays and stale files.",
        buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
    ),
)
