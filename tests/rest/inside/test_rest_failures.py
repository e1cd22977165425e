"""When something below fails: a clear answer, without what is inside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from jupyter_events import EventLogger
from jupyter_server.serverapp import ServerApp

from jupyter_ownedkernels import ownership
from jupyter_ownedkernels.doctor import cleaning, examination
from jupyter_ownedkernels.telemetry import telemetry
from jupyter_ownedkernels.telemetry.telemetry import SCHEMA_ID, Telemetry

API = "/api/ownedkernels"


def unseen(*args: Any, **kwargs: Any) -> Any:
    raise OSError(2, "No such file or directory", "/proc")


async def test_a_system_where_processes_cannot_be_seen(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "scan", unseen)
    monkeypatch.setattr(cleaning, "clean", unseen)
    for verb, path, body in (
        ("GET", f"{API}/strays?refresh=1", None),
        ("POST", f"{API}/cleanup", {"ids": ["x"]}),
    ):
        answer = await ask(verb, path, body)
        assert answer.code == 503
        assert json.loads(answer.body)["code"] == "scan_unavailable"
    # The rest goes on.
    assert (await ask("GET", f"{API}/kernels")).code == 200


async def test_an_accident_is_answered_without_its_inside(
    jp_serverapp: ServerApp,
    jp_fetch: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = jp_serverapp.web_app.settings["jupyter_ownedkernels"]["services"]

    async def broken(limit: int) -> Any:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(services.views, "history", broken)
    answer = await jp_fetch("api", "ownedkernels", "history", raise_error=False)
    assert answer.code == 500
    content = json.loads(answer.body)
    assert content == {"message": "Unhandled error", "reason": None, "code": "error"}


async def test_another_extensions_session_manager_that_fails(
    jp_serverapp: ServerApp, ask: Callable[..., Any]
) -> None:
    class Strange:
        async def list_sessions(self) -> Any:
            raise RuntimeError("not today")

    services = jp_serverapp.web_app.settings["jupyter_ownedkernels"]["services"]
    services.views._sessions_of = Strange()
    assert (await ask("GET", f"{API}/kernels")).code == 200


async def test_another_extensions_session_manager_is_asked(
    jp_serverapp: ServerApp, ask: Callable[..., Any]
) -> None:
    asked = []

    class Strange:
        async def list_sessions(self) -> Any:
            asked.append(1)
            return [{"kernel": {"id": "x"}, "path": "p", "name": "n"}, {"kernel": None}]

    services = jp_serverapp.web_app.settings["jupyter_ownedkernels"]["services"]
    services.views._sessions_of = Strange()
    assert (await ask("GET", f"{API}/kernels")).code == 200
    assert await services.views._sessions() == {"x": {"path": "p", "name": "n", "type": None}}
    assert asked == [1, 1]


def heard(logger: EventLogger) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def listener(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        found.append(data)

    logger.add_listener(schema_id=SCHEMA_ID, listener=listener)
    return found


async def test_warm_starts_that_are_off_are_told_of(jp_serverapp: ServerApp) -> None:
    logger = jp_serverapp.event_logger
    assert logger is not None
    told = heard(logger)
    # From the thread that noticed.
    disabled = ownership.current().warm.on_disabled
    assert disabled is not None
    await asyncio.to_thread(disabled, "/usr/bin/python3", "it has two threads")
    for _ in range(100):
        if told:
            break
        await asyncio.sleep(0.01)
    (event,) = told
    assert event["action"] == "warm_disabled"
    assert event["message"] == "/usr/bin/python3: it has two threads"


async def test_an_event_that_cannot_be_emitted_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = EventLogger()
    teller = Telemetry(logger, asyncio.get_running_loop())
    heard(logger)
    teller._emit("no-such-action", message="")
    assert "could not be emitted" in caplog.text
    # Twice in one program, as tests and embedders do.
    Telemetry(logger, asyncio.get_running_loop())
    assert telemetry.SCHEMA_ID in logger.schemas
