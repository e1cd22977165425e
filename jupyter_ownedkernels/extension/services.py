"""Putting together what one server's handlers, events and metrics work with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, get_args

from jupyter_core.paths import jupyter_runtime_dir

from .. import ownership
from ..config import OwnedKernels
from ..doctor.scanning import Scanner
from ..handlers.base import Services
from ..journal import journal
from ..models import FindingKind
from ..other_kernels import OtherKernels
from ..provisioner import OwnedProvisioner
from ..redaction_known import KnownSecrets
from ..telemetry.metrics import PRESENT
from ..telemetry.telemetry import Telemetry
from ..views.server import ServerViews

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from ..doctor.examination import Scope
    from ..ownership import Ownership
    from ..takeover.manager_class import Mode

# A scan, a clean that waits for processes to end, and short looks beside them.
_THREADS = 4
# A scrape starts a scan when the last one is older than this; seconds.
_SCRAPE_SCAN_AGE = 300.0


def build(serverapp: ServerApp, mode: Mode) -> Services:
    """Called by the load hook, when the kernel manager exists. Reads no files."""
    config = OwnedKernels(parent=serverapp)
    settings = config.settings()
    owned = ownership.current(lambda: settings) if mode.name != "inactive" else None
    loop: asyncio.AbstractEventLoop = serverapp.io_loop.asyncio_loop  # type: ignore[attr-defined]
    executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="ownedkernels-rest")

    def run(function: Callable[[], Any], /) -> Awaitable[Any]:
        return loop.run_in_executor(executor, function)

    secrets = KnownSecrets(serverapp.identity_provider, serverapp.kernel_manager)
    event_logger = serverapp.event_logger
    assert event_logger is not None
    runtime_dir = settings.runtime_dir or jupyter_runtime_dir()
    telemetry = Telemetry(event_logger, loop)
    views = ServerViews(
        ownership=owned,
        kernel_manager=serverapp.kernel_manager,
        # A Gateway's answers each question by a request.
        session_manager=None
        if serverapp.gateway_config.gateway_enabled
        else serverapp.session_manager,
        spec_manager=serverapp.kernel_spec_manager,
        folders=journal.folders(runtime_dir, settings.journal_dir),
        run=run,
        secrets=secrets,
        why=mode.reason if owned is None else "no kernel of the owned provisioner",
    )
    stale_file_age = config.stale_file_age

    def scope() -> Scope:
        from ..doctor.examination import default_scope

        return default_scope(
            runtime_dir=runtime_dir,
            journal_dir=settings.journal_dir,
            stale_file_age=stale_file_age,
        )

    scanner = Scanner(
        scope,
        run,
        max_age=config.scan_max_age,
        grace=settings.terminate_grace,
        timeout=settings.retire_timeout,
        history_limit=settings.history_limit,
        on_report=telemetry.scanned,
        on_cleaned=telemetry.cleaned,
    )
    if owned is not None:
        telemetry.follow(owned, also=lambda record: secrets.note(record.kernel_id))
        others = OtherKernels(owned, serverapp.kernel_manager, OwnedProvisioner, secrets)
        others.follow(event_logger)
    PRESENT.source = _Present(views, scanner, owned, loop)
    return Services(mode, owned, views, scanner, telemetry, run, secrets)


class _Present:
    """The numbers that /metrics asks for; see :class:`.telemetry.metrics.Source`."""

    def __init__(
        self,
        views: ServerViews,
        scanner: Scanner,
        owned: Ownership | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._views = views
        self._scanner = scanner
        self._owned = owned
        self._loop = loop

    def kernels(self) -> Mapping[str, int]:
        return self._views.state_totals()

    def processes(self) -> int | None:
        return self._views.process_total(self._soon)

    def strays(self) -> Mapping[str, int] | None:
        age = self._scanner.age
        if age is not None and age > max(_SCRAPE_SCAN_AGE, self._scanner.max_age):
            self._soon(self._scanner.report)
        report = self._scanner.newest
        if report is None:
            return None
        return dict.fromkeys(get_args(FindingKind), 0) | report.counts

    def write_errors(self) -> int:
        return self._owned.journal.write_errors if self._owned else 0

    def _soon(self, work: Callable[[], Awaitable[Any]]) -> None:
        """The next scrape shall have newer numbers; this one does not wait for them."""

        async def quietly() -> None:
            with contextlib.suppress(Exception):
                await work()

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(quietly()))
