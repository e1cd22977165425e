"""A dashboard that polls does not keep a server alive; somebody at work does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rest_server import RestServer

READS = ["health", "kernels", "kernels?scope=user", "kernels/none", "strays?refresh=1", "history"]

# The server looks once a minute whether it is still used. Here it looks all the time.
CONFIG = """
import types
import jupyter_server.serverapp as module
from tornado import ioloop

class Often(ioloop.PeriodicCallback):
    def __init__(self, callback, callback_time, *args, **kwargs):
        super().__init__(callback, min(callback_time, 100), *args, **kwargs)

module.ioloop = types.SimpleNamespace(**{**vars(ioloop), "PeriodicCallback": Often})
c.ServerApp.shutdown_no_activity_timeout = 2
"""


def _poll(server: RestServer, ask: Callable[[], object], seconds: float) -> bool:
    """Ask again and again; whether the server has stopped meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if server.process.poll() is not None:
            return True
        with contextlib.suppress(OSError):
            ask()
        time.sleep(0.1)
    return False


def test_a_server_that_is_only_polled_stops(servers: Callable[..., RestServer]) -> None:
    server = servers(config=CONFIG)

    def look() -> None:
        for path in READS:
            server.ask("GET", f"/api/ownedkernels/{path}")

    assert _poll(server, look, 60), "polling has kept the server alive"
    assert server.process.returncode == 0


def test_a_server_on_which_somebody_cleans_goes_on(servers: Callable[..., RestServer]) -> None:
    """The test above can fail."""
    server = servers(config=CONFIG)
    assert not _poll(server, lambda: server.clean(ids=["x"]), 5)
