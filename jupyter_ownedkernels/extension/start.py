"""What a server does once it answers: journal, recovery, and the first scan for strays."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Literal

from jupyter_core.paths import jupyter_runtime_dir

from ..errors import ScanUnavailable
from ..journal import journal

if TYPE_CHECKING:
    from ..handlers.base import Services
    from ..ownership import Ownership
    from ..recovery.recovery import Recovery
    from ..settings import Settings

log = logging.getLogger(__name__)


def begin(services: Services, url: str, recover: Literal["clean", "report"]) -> asyncio.Task[None]:
    """Return at once; everything that takes time is done in threads.

    Called on the event loop when the server's address is known.
    """
    services.views.url = url
    return asyncio.ensure_future(_guarded(services, url, recover))


async def _guarded(services: Services, url: str, recover: Literal["clean", "report"]) -> None:
    try:
        if services.ownership is not None:
            await _own(services, services.ownership, url, recover)
        await services.scanner.report()
    except ScanUnavailable as error:
        log.info("No scan for strays: %s", error)
    except asyncio.CancelledError:
        raise
    except Exception:
        # The server works without it.
        log.exception("The start-up recovery failed")


async def _own(
    services: Services, owned: Ownership, url: str, recover: Literal["clean", "report"]
) -> None:
    # First on record, so that another server that starts now sees a living owner.
    await services.run(functools.partial(_open_journal, owned, url))
    done = await services.run(functools.partial(_recover, owned.settings, recover))
    services.telemetry.recovered(done)


def _open_journal(owned: Ownership, url: str) -> None:
    if owned.journal.open():
        owned.journal.set_url(url)


def _recover(settings: Settings, mode: Literal["clean", "report"]) -> Recovery:
    from ..recovery import recovery  # Here, in the thread: no start waits for it.

    runtime_dir = settings.runtime_dir or jupyter_runtime_dir()
    return recovery.recover(
        journal.folders(runtime_dir, settings.journal_dir),
        (runtime_dir,),
        mode=mode,
        grace=settings.terminate_grace,
        timeout=settings.retire_timeout,
        history_limit=settings.history_limit,
    )
