"""What a server does once it answers: journal, recovery, and the first scan for strays."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

from jupyter_core.paths import jupyter_runtime_dir

from ..errors import ScanUnavailable
from ..journal import journal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..handlers.base import Services
    from ..ownership import Ownership
    from ..recovery import Recovery
    from ..settings import Settings

log = logging.getLogger(__name__)


def begin(services: Services, url: str, recover: Literal["clean", "report"]) -> asyncio.Task[None]:
    """Return at once; everything that takes time is done in threads.

    Called on the event loop when the server's address is known.
    """
    services.views.url = url
    return asyncio.ensure_future(_guarded(services, url, recover))


async def _guarded(services: Services, url: str, recover: Literal["clean", "report"]) -> None:
    # The server works without either, and the scan without the recovery.
    if services.ownership is not None:
        try:
            await _own(services, services.ownership, url, recover)
        except Exception:
            log.exception("The start-up recovery failed")
    try:
        await services.scanner.report()
    except ScanUnavailable as error:
        log.info("No scan for strays: %s", error)
    except Exception:
        log.exception("The first scan for strays failed")


async def _own(
    services: Services, owned: Ownership, url: str, recover: Literal["clean", "report"]
) -> None:
    # First on record, so that another server that starts now sees a living owner.
    await services.run(functools.partial(_open_journal, owned, url))
    done = await _in_thread(functools.partial(_recover, owned.settings, recover))
    services.telemetry.recovered(done)


def _process_goes_on() -> bool:
    return threading.main_thread().is_alive()


def _in_thread(work: Callable[[], Recovery]) -> Awaitable[Recovery]:
    """Work that may take seconds, in a thread that sees when this process is to end.

    The interpreter waits for the threads of executors before it counts the main thread as
    ended, for others after that. A recovery that is stopped midway loses nothing, whereas a
    daemon thread might be stopped while it holds the lock of a stream.
    """
    result: Future[Recovery] = Future()

    def run() -> None:
        try:
            done = work()
        except Exception as error:
            outcome: Callable[[], None] = functools.partial(result.set_exception, error)
        else:
            outcome = functools.partial(result.set_result, done)
        if _process_goes_on():
            outcome()

    threading.Thread(target=run, name="ownedkernels-recovery").start()
    return asyncio.wrap_future(result)


def _open_journal(owned: Ownership, url: str) -> None:
    if owned.journal.open():
        owned.journal.set_url(url)


def _recover(settings: Settings, mode: Literal["clean", "report"]) -> Recovery:
    from .. import recovery  # Here, in the thread: no start waits for it.

    runtime_dir = settings.runtime_dir or jupyter_runtime_dir()
    return recovery.recover(
        journal.folders(runtime_dir, settings.journal_dir),
        (runtime_dir,),
        mode=mode,
        grace=settings.terminate_grace,
        timeout=settings.retire_timeout,
        history_limit=settings.history_limit,
        is_wanted=_process_goes_on,
    )
