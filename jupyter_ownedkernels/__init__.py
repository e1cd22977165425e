"""Jupyter kernels that end when their owner ends.

Importing this package costs next to nothing: every enabled extension is imported at the start of
a Jupyter server, and the provisioner's entry point in every program that starts a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from ._version import __version__
except ImportError:  # a source tree that was never built or installed
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__all__ = ["__version__"]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Say where the built JupyterLab extension lies; called by `jupyter-builder develop`."""
    return [{"src": "labextension", "dest": "jupyter-ownedkernels"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Name the module whose hooks the server calls; the server looks them up in this one."""
    return [{"module": "jupyter_ownedkernels"}]


def _link_jupyter_server_extension(serverapp: ServerApp) -> None:
    """Called before the server builds its kernel manager: the moment to choose its class."""
    from .extension.hooks import link

    link(serverapp)


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    """Called once the kernel manager exists: handlers, events and metrics."""
    from .extension.hooks import load

    load(serverapp)


async def _start_jupyter_server_extension(serverapp: ServerApp) -> None:
    """Called once the server answers: start-up recovery and the first scan."""
    from .extension.hooks import start

    await start(serverapp)
