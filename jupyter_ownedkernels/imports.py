"""Importing at a server's start, at no more cost than the imports themselves."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Hold the garbage collector back while modules are imported.

    What an import makes, stays. But each 700 objects call the collector, and enough of its
    calls make it go through all that the server has loaded: 95 ms, for nothing, at the start
    of a JupyterLab server. Used by the hooks of the server extension.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
