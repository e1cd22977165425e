"""The doctor as a service of one process: scans are shared and kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ScanUnavailable
from ..models import CleanResult, FindingKind, Report
from ..sharing import Shared

if TYPE_CHECKING:
    from .examination import Scope


class Run(Protocol):
    """Calls a function in a worker thread."""

    def __call__(self, function: Callable[[], Any], /) -> Awaitable[Any]: ...


class Scanner:
    """Scan and clean off the event loop. ``told`` gets each new report.

    Works whether or not this server's kernels are owned.
    """

    def __init__(
        self,
        scope: Callable[[], Scope],
        run: Run,
        *,
        max_age: float,
        grace: float,
        timeout: float,
        history_limit: int | None,
        on_report: Callable[[Report], None] = lambda _: None,
        on_cleaned: Callable[[list[CleanResult]], None] = lambda _: None,
    ) -> None:
        self._scope = scope
        self._run = run
        self._grace = grace
        self._timeout = timeout
        self._history_limit = history_limit
        self._on_report = on_report
        self._on_cleaned = on_cleaned
        self._reports: Shared[Report] = Shared(self._scan, max_age)
        self._cleaning = asyncio.Lock()

    @property
    def max_age(self) -> float:
        """Seconds for which a report is given out again."""
        return self._reports.max_age

    @property
    def newest(self) -> Report | None:
        """The last report, however old."""
        return self._reports.newest

    @property
    def age(self) -> float | None:
        """Seconds since the last report; None when there is none that still holds."""
        return self._reports.age

    async def report(self, fresh: bool = False) -> Report:
        """A report of at most ``max_age`` seconds. Raises ScanUnavailable."""
        return await self._reports.get(fresh)

    async def clean(
        self,
        ids: Sequence[str] | None,
        kinds: Collection[FindingKind] | None,
        dry_run: bool,
    ) -> list[CleanResult]:
        """One clean after the other; each looks at everything again. Raises ScanUnavailable."""
        async with self._cleaning:
            return await self._clean(ids, kinds, dry_run)

    async def _clean(
        self, ids: Sequence[str] | None, kinds: Collection[FindingKind] | None, dry_run: bool
    ) -> list[CleanResult]:
        try:
            results: list[CleanResult] = await self._run(lambda: self._call(ids, kinds, dry_run))
        except OSError as error:
            raise ScanUnavailable(f"processes cannot be looked at: {error}") from error
        if not dry_run:
            self._reports.outdate()
            self._on_cleaned(results)
        return results

    async def _scan(self) -> Report:
        try:
            report: Report = await self._run(self._look)
        except OSError as error:
            raise ScanUnavailable(f"processes cannot be looked at: {error}") from error
        self._on_report(report)
        return report

    # In threads. The doctor is imported there: it takes 20 ms that no start should wait for.

    def _look(self) -> Report:
        from .examination import scan

        return scan(self._scope())

    def _call(
        self, ids: Sequence[str] | None, kinds: Collection[FindingKind] | None, dry_run: bool
    ) -> list[CleanResult]:
        from .cleaning import clean

        return clean(
            ids,
            kinds,
            dry_run=dry_run,
            scope=self._scope(),
            grace=self._grace,
            timeout=self._timeout,
            history_limit=self._history_limit,
        )
