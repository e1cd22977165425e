"""REST API: parse, call, serialise. The rules are in the layers below."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from . import __version__

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from .takeover import Mode

AUTH_RESOURCE = "ownedkernels"
NAMESPACE = "api/ownedkernels"
SETTINGS_KEY = "jupyter_ownedkernels"


class OwnedKernelsHandler(APIHandler):
    """Base of all handlers here."""

    auth_resource = AUTH_RESOURCE
    # A dashboard that polls must not keep the server from being culled.
    _track_activity = False

    @property
    def mode(self) -> Mode:
        return self.settings[SETTINGS_KEY]["mode"]  # type: ignore[no-any-return]


class HealthHandler(OwnedKernelsHandler):
    """Which mode this server is in, and why."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        answer: dict[str, Any] = {
            "mode": self.mode.name,
            "reason": self.mode.reason,
            "version": __version__,
        }
        self.finish(json.dumps(answer))


default_handlers = [(f"/{NAMESPACE}/health", HealthHandler)]


def install(serverapp: ServerApp, mode: Mode) -> None:
    """Add the routes to the server's application."""
    serverapp.web_app.settings[SETTINGS_KEY] = {"mode": mode}
    base = serverapp.web_app.settings["base_url"]
    routes = [(url_path_join(base, path), handler) for path, handler in default_handlers]
    serverapp.web_app.add_handlers(".*$", routes)  # type: ignore[no-untyped-call]
