"""A server inside of the test's process: for tables of rights, which need no kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import rest_contract
from jupyter_server.serverapp import ServerApp
from pytest_jupyter.jupyter_core import *  # noqa: F403
from pytest_jupyter.jupyter_server import *  # noqa: F403
from support.inside import EXTENSIONS, fresh
from tornado.httpclient import HTTPResponse
from traitlets.config import Config

__all__ = ["fresh"]


@pytest.fixture
def jp_server_config() -> Config:
    return Config({"ServerApp": {"jpserver_extensions": EXTENSIONS}})


@pytest.fixture
def ask(
    jp_serverapp: ServerApp, http_server_client: Any, jp_base_url: str, jp_auth_header: Any
) -> Callable[..., Any]:
    """One request; its answer is held against the specification."""

    async def request(
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        authenticate: bool = True,
    ) -> HTTPResponse:
        sent = dict(headers or {})
        if authenticate:
            sent.update(jp_auth_header)
        answer: HTTPResponse = await http_server_client.fetch(
            jp_base_url.rstrip("/") + path,
            method=method,
            headers=sent,
            body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True,
            raise_error=False,
            follow_redirects=False,
        )
        rest_contract.check(
            method,
            path.partition("?")[0],
            answer.code,
            answer.headers.get("Content-Type", ""),
            answer.body,
        )
        return answer

    return request
