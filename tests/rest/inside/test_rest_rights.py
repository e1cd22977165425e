"""Who may do what: authentication, authorization, XSRF, for each route and verb."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jupyter_server.auth import Authorizer
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import JupyterServerAuthWarning, ServerApp
from traitlets.config import Config

from jupyter_ownedkernels.handlers import routes as handlers
from jupyter_ownedkernels.handlers.base import OwnedKernelsHandler

API = "/api/ownedkernels"
AN_ID = "f-0123456789ab"

# Route, verb, body, and the right that it needs.
RIGHTS = [
    (f"{API}/health", "GET", None, "read"),
    (f"{API}/kernels", "GET", None, "read"),
    (f"{API}/kernels?scope=user", "GET", None, "read"),
    (f"{API}/kernels/none", "GET", None, "read"),
    (f"{API}/strays", "GET", None, "read"),
    (f"{API}/strays?refresh=1", "GET", None, "read"),
    (f"{API}/cleanup", "POST", {"ids": [AN_ID], "dry_run": False}, "write"),
    (f"{API}/history", "GET", None, "read"),
]


class Recorder(Authorizer):
    """Notes what it is asked, and answers as it is told."""

    allows = True
    asked: list[tuple[str, str]] = []  # noqa: RUF012

    def is_authorized(self, handler: JupyterHandler, user: Any, action: str, resource: str) -> bool:
        self.asked.append((action, resource))
        return self.allows


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.ServerApp.authorizer_class = Recorder
    Recorder.asked, Recorder.allows = [], True
    return jp_server_config


def test_the_table_has_every_route_and_verb() -> None:
    listed = {(path.partition("?")[0], verb) for path, verb, _, _ in RIGHTS}
    expected = set()
    for pattern, handler in handlers.default_handlers:
        path = pattern.replace("([^/]+)", "none")
        expected |= {(path, verb) for verb in handler._verbs() if verb != "OPTIONS"}
    assert listed == expected


async def test_each_asks_for_its_right(ask: Callable[..., Any]) -> None:
    # Forth and back: a right must not stay that of the first request.
    for path, verb, body, action in [*RIGHTS, *reversed(RIGHTS)]:
        Recorder.asked.clear()
        answer = await ask(verb, path, body)
        assert Recorder.asked == [(action, "ownedkernels")], (verb, path)
        assert answer.code == (404 if path.endswith("none") else 200), (verb, path)


async def test_nothing_is_done_without_the_right(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.allows = False
    for path, verb, body, _ in RIGHTS:
        answer = await ask(verb, path, body)
        assert answer.code == 403, (verb, path)
        content = json.loads(answer.body)
        assert content["code"] == "forbidden"
        assert set(content) == {"message", "reason", "code"}


async def test_nobody_may_do_anything_without_authentication(ask: Callable[..., Any]) -> None:
    for path, verb, body, _ in RIGHTS:
        answer = await ask(verb, path, body, authenticate=False)
        assert answer.code == 403, (verb, path)
        wrong = await ask(verb, path, body, {"Authorization": "token no"}, authenticate=False)
        assert wrong.code == 403, (verb, path)
    assert Recorder.asked == []


async def _cookies(ask: Callable[..., Any]) -> tuple[str, str]:
    """What a browser has after its first page: the login cookie, and the XSRF one."""
    found = {}
    page = await ask("GET", "/login", authenticate=False)
    for answer in (page, await ask("GET", f"{API}/health")):
        for line in answer.headers.get_list("Set-Cookie"):
            name, _, rest = line.partition("=")
            found[name] = rest.partition(";")[0]
    cookies = "; ".join(f"{name}={value}" for name, value in found.items())
    return cookies, found["_xsrf"]


async def test_a_cookie_needs_the_xsrf_token_to_clean(ask: Callable[..., Any]) -> None:
    cookies, xsrf = await _cookies(ask)
    browser = {"Cookie": cookies}
    wish = {"ids": [AN_ID], "dry_run": False}
    assert (await ask("GET", f"{API}/health", None, browser, authenticate=False)).code == 200
    without = await ask("POST", f"{API}/cleanup", wish, browser, authenticate=False)
    assert without.code == 403
    wrong = {**browser, "X-XSRFToken": "x" * len(xsrf)}
    assert (await ask("POST", f"{API}/cleanup", wish, wrong, authenticate=False)).code == 403
    right = {**browser, "X-XSRFToken": xsrf}
    assert (await ask("POST", f"{API}/cleanup", wish, right, authenticate=False)).code == 200


async def test_a_page_of_another_origin_is_refused(ask: Callable[..., Any]) -> None:
    cookies, xsrf = await _cookies(ask)
    headers = {"Cookie": cookies, "X-XSRFToken": xsrf, "Origin": "https://example.org"}
    for path, verb, body, _ in RIGHTS:
        answer = await ask(verb, path, body, headers, authenticate=False)
        assert answer.code in (403, 404), (verb, path)
        assert set(json.loads(answer.body)) == {"message", "reason", "code"}


def test_no_route_is_open_by_mistake(
    jp_configurable_serverapp: Callable[..., ServerApp], jp_server_config: Config
) -> None:
    """As extensions built from Jupyter's template check it: the server warns of verbs that
    are neither authenticated nor said to be open, and -W error makes that a failure to load.
    """
    jp_server_config.ServerApp.allow_unauthenticated_access = False
    jp_server_config.ServerApp.reraise_server_extension_failures = True
    app = jp_configurable_serverapp(config=jp_server_config)
    assert "jupyter_ownedkernels" in app.web_app.settings


def test_an_open_route_would_be_noticed(
    jp_configurable_serverapp: Callable[..., ServerApp],
    jp_server_config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail."""

    class Open(OwnedKernelsHandler):
        async def get(self) -> None:
            self.answer({})

    monkeypatch.setattr(handlers, "default_handlers", [(f"{API}/open", Open)])
    jp_server_config.ServerApp.allow_unauthenticated_access = False
    jp_server_config.ServerApp.reraise_server_extension_failures = True
    with pytest.raises(JupyterServerAuthWarning):
        jp_configurable_serverapp(config=jp_server_config)


async def test_nobody_may_do_anything_when_all_access_needs_authentication(
    ask: Callable[..., Any],
    jp_serverapp: ServerApp,
) -> None:
    jp_serverapp.web_app.settings["allow_unauthenticated_access"] = False
    for path, verb, body, _ in RIGHTS:
        assert (await ask(verb, path, body, authenticate=False)).code in (302, 403), (verb, path)
        assert (await ask(verb, path, body)).code in (200, 404), (verb, path)
