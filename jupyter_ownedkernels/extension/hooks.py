"""The server extension: the three moments at which a Jupyter server calls this package."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..imports import uncollected
from ..takeover import manager_class, websocket_class

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def link(serverapp: ServerApp) -> None:
    """Before the kernel manager is made."""
    _log_with(serverapp)
    manager_class.offer_manager(serverapp)
    websocket_class.offer(serverapp)


def _log_with(serverapp: ServerApp) -> None:
    """Have what this package logs shown where the server's own log is, at its level.

    The server configures its own logger only: elsewhere nothing below a warning is shown.
    """
    logger = logging.getLogger(__package__.partition(".")[0])
    logger.parent = serverapp.log
    logger.setLevel(serverapp.log.level)


def load(serverapp: ServerApp) -> None:
    """After the kernel manager is made: say what became of it, and serve the REST API."""
    with uncollected():
        from ..handlers.routes import install
        from .services import build

    mode = manager_class.settle(serverapp)
    serverapp.log.info("jupyter_ownedkernels: %s (%s)", mode.name, mode.reason)
    install(serverapp, build(serverapp, mode))


# A task that nobody holds may be collected before it is done.
_beginnings: set[asyncio.Task[None]] = set()


async def start(serverapp: ServerApp) -> None:
    """Once the server answers: recovery of what dead servers left, and a first scan."""
    from ..config import OwnedKernels
    from ..handlers.base import SETTINGS_KEY
    from .start import begin
    from .warm import prepare_default

    services = serverapp.web_app.settings[SETTINGS_KEY]["services"]
    recover = OwnedKernels(parent=serverapp).recover
    task = begin(services, serverapp.connection_url, recover)
    tasks = [task]
    if services.ownership is not None:
        warm = prepare_default(serverapp, services.ownership)
        tasks.append(asyncio.create_task(warm))
    for task in tasks:
        _beginnings.add(task)
        task.add_done_callback(_beginnings.discard)
