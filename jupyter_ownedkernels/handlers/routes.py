"""REST API: parse, call, serialise. The rules are in the layers below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from jupyter_server.auth.decorator import authorized
from jupyter_server.utils import url_path_join
from tornado import web

from ..errors import BadRequest
from ..models import FindingKind, Report
from ..redaction import redact
from ..views.health import health_json
from .base import SETTINGS_KEY, OwnedKernelsHandler, Services

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

NAMESPACE = "api/ownedkernels"
KINDS: tuple[str, ...] = get_args(FindingKind)
MOST_IDS = 10_000
LONGEST_ID = 200
MOST_ENTRIES = 1000


class HealthHandler(OwnedKernelsHandler):
    """How far this server owns its kernels, and by what means."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        services = self.services
        self.answer(
            await services.run(
                lambda: health_json(services.mode, services.ownership, services.views.url)
            )
        )


class KernelsHandler(OwnedKernelsHandler):
    """Kernels of this server, or of all living owners of this user on this machine."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        scope = self.one_of("scope", ("owner", "user"), "owner")
        self.answer({"kernels": await self.services.views.kernels(cast(Any, scope))})


class KernelHandler(OwnedKernelsHandler):
    """One kernel of this server with its processes."""

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        self.answer(await self.services.views.kernel(kernel_id))


class StraysHandler(OwnedKernelsHandler):
    """What the doctor finds."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        fresh = self.one_of("refresh", ("0", "1"), "0") == "1"
        report = await self.services.scanner.report(fresh)
        secrets = self.services.secrets()
        await self.answer_many(lambda: _report_json(report, secrets))


class CleanupHandler(OwnedKernelsHandler):
    """End and remove findings, by id or by kind."""

    # Somebody is at work.
    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        body = self.body(("ids", "kinds", "dry_run"))
        ids, kinds, dry_run = _wish(body)
        results = await self.services.scanner.clean(ids, kinds, dry_run)
        await self.answer_many(lambda: {"results": [result.to_json() for result in results]})


class HistoryHandler(OwnedKernelsHandler):
    """How kernels have ended, of all owners of this user."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        limit = self.number("limit", 100, 1, MOST_ENTRIES)
        entries = await self.services.views.history(limit)
        self.answer({"entries": [entry.to_json() for entry in entries]})


def _report_json(report: Report, secrets: list[str]) -> dict[str, Any]:
    told = report.to_json()
    for finding in told["findings"]:
        if finding["cmdline"]:
            finding["cmdline"] = redact(finding["cmdline"], secrets)
    return told


def _wish(body: dict[str, Any]) -> tuple[list[str] | None, list[FindingKind] | None, bool]:
    ids, kinds, dry_run = body.get("ids"), body.get("kinds"), body.get("dry_run", True)
    if ("ids" in body) == ("kinds" in body):
        raise BadRequest("the body has either ids or kinds")
    if not isinstance(dry_run, bool):
        raise BadRequest("dry_run is true or false")
    if "ids" in body:
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            raise BadRequest("ids is a list of texts")
        if not 1 <= len(ids) <= MOST_IDS or any(len(one) > LONGEST_ID for one in ids):
            raise BadRequest(f"ids has 1 to {MOST_IDS} texts of at most {LONGEST_ID} characters")
        return ids, None, dry_run
    if not isinstance(kinds, list) or not kinds or not all(one in KINDS for one in kinds):
        raise BadRequest(f"kinds is a list of some of: {', '.join(KINDS)}")
    return None, kinds, dry_run


default_handlers: list[tuple[str, type[OwnedKernelsHandler]]] = [
    (f"/{NAMESPACE}/health", HealthHandler),
    (f"/{NAMESPACE}/kernels", KernelsHandler),
    (f"/{NAMESPACE}/kernels/([^/]+)", KernelHandler),
    (f"/{NAMESPACE}/strays", StraysHandler),
    (f"/{NAMESPACE}/cleanup", CleanupHandler),
    (f"/{NAMESPACE}/history", HistoryHandler),
]


def install(serverapp: ServerApp, services: Services) -> None:
    """Add the routes to the server's application."""
    serverapp.web_app.settings[SETTINGS_KEY] = {"mode": services.mode, "services": services}
    base = serverapp.web_app.settings["base_url"]
    routes = [(url_path_join(base, path), handler) for path, handler in default_handlers]
    serverapp.web_app.add_handlers(".*$", routes)
