"""Hostile and mistaken input: each gets a clear 4xx with a code, and nothing happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rest_server import RestServer
from support import census

API = "/api/ownedkernels"
AN_ID = "p1-1-0123456789ab"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("kernels?scope=", 400, "bad_query"),
        ("kernels?scope=everybody", 400, "bad_query"),
        ("kernels?scope=user&scope=owner", 400, "bad_query"),
        ("strays?refresh=yes", 400, "bad_query"),
        ("strays?refresh=1&refresh=1", 400, "bad_query"),
        ("history?limit=0", 400, "bad_query"),
        ("history?limit=-1", 400, "bad_query"),
        ("history?limit=1001", 400, "bad_query"),
        ("history?limit=1e2", 400, "bad_query"),
        ("history?limit=%D9%A1", 400, "bad_query"),  # an Arabic digit
        ("history?limit=" + "9" * 5000, 400, "bad_query"),
        ("kernels/no-such-kernel", 404, "unknown_kernel"),
        ("kernels/00000000-0000-0000-0000-000000000000", 404, "unknown_kernel"),
        ("kernels/" + "x" * 5000, 404, "unknown_kernel"),
        ("kernels/..%2F..%2Fetc%2Fpasswd", 404, "unknown_kernel"),
        ("kernels/%2e%2e", 404, "unknown_kernel"),
        ("kernels/%00", 404, "unknown_kernel"),
        ("kernels/%3Cscript%3E", 404, "unknown_kernel"),
        ("kernels/%FF", 400, "bad_request"),
    ],
)
def test_bad_requests(server: RestServer, path: str, status: int, code: str) -> None:
    answer = server.ask("GET", f"{API}/{path}")
    assert (answer.status, answer.code) == (status, code)
    assert len(answer.body) < 1000


@pytest.mark.parametrize("path", ["kernels/../../contents", "kernels/a/b", "x"])
def test_paths_that_are_no_route(server: RestServer, path: str) -> None:
    assert server.ask("GET", f"{API}/{path}").status == 404


def test_unknown_parameters_are_ignored(server: RestServer) -> None:
    """JupyterLab adds the time to each request, so that no cache answers it."""
    assert server.ask("GET", f"{API}/kernels?1795971937").status == 200
    assert server.ask("GET", f"{API}/kernels?scope=owner&other=1").status == 200


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        5,
        None,
        {},
        {"dry_run": True},
        {"ids": [AN_ID], "kinds": ["detached"]},
        {"ids": [AN_ID], "force": True},
        {"ids": []},
        {"ids": AN_ID},
        {"ids": {AN_ID: 1}},
        {"ids": [1]},
        {"ids": [None]},
        {"ids": [[AN_ID]]},
        {"ids": ["x" * 201]},
        {"ids": [AN_ID] * 10_001},
        {"ids": None},
        {"kinds": []},
        {"kinds": "detached"},
        {"kinds": ["everything"]},
        {"kinds": [["detached"]]},
        {"kinds": [{}]},
        {"ids": [AN_ID], "dry_run": 0},
        {"ids": [AN_ID], "dry_run": "false"},
        {"ids": [AN_ID], "dry_run": None},
    ],
    ids=lambda body: json.dumps(body)[:60],
)
def test_bodies_that_are_not_what_the_schema_says(server: RestServer, body: Any) -> None:
    answer = server.ask("POST", f"{API}/cleanup", raw=json.dumps(body).encode())
    assert (answer.status, answer.code) == (422, "bad_request")
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"ids": ["a"]} extra',
        b"[" * 100_000,
        b'{"ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"ids": ' + b"9" * 100_000 + b"}",
        b"ids=a&dry_run=false",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_bodies_that_are_not_json(server: RestServer, raw: bytes) -> None:
    answer = server.ask("POST", f"{API}/cleanup", raw=raw)
    assert (answer.status, answer.code) == (422, "bad_request")


def test_a_body_of_megabytes_is_not_looked_at(server: RestServer) -> None:
    answer = server.ask("POST", f"{API}/cleanup", raw=b" " * (3 << 20))
    assert (answer.status, answer.code) == (413, "too_large")


def test_as_many_ids_as_are_allowed(server: RestServer) -> None:
    ids = [f"f-{number:012x}" for number in range(10_000)]
    results = server.clean(ids=ids, dry_run=False)
    assert [one["id"] for one in results] == ids
    assert {one["outcome"] for one in results} == {"already-gone"}


@pytest.mark.parametrize(
    "made_up",
    [
        "",
        "x",
        "../../etc/passwd",
        "\ud800",
        "p1-0-0123456789ab",
        "p99999999999999999999-1-0123456789ab",
        "p-1-1-0123456789ab",
        "f-0123456789ab\n",
    ],
)
def test_ids_that_no_scan_has_given(server: RestServer, made_up: str) -> None:
    """The outcome is the item's, and the process that has the number is left alone."""
    (result,) = server.clean(ids=[made_up], dry_run=False)
    assert result["id"] == made_up
    assert result["outcome"] in ("refused", "already-gone", "identity-changed", "kept")


def test_the_id_of_a_living_kernel_ends_nothing(server: RestServer, kernel: str) -> None:
    found = server.kernel(kernel)
    process = census.find(found["pid"])
    wanted = [kernel, found["launch_id"], f"p{process.pid}-{process.start}-0123456789ab"]
    results = server.clean(ids=wanted, dry_run=False)
    assert [one["outcome"] for one in results] == ["refused", "refused", "kept"]
    assert census.runs(process)


@pytest.mark.parametrize("verb", ["PUT", "DELETE", "PATCH", "HEAD", "TRACE"])
@pytest.mark.parametrize("route", ["health", "kernels", "strays", "cleanup", "history"])
def test_other_verbs(server: RestServer, verb: str, route: str) -> None:
    answer = server.ask(verb, f"{API}/{route}")
    assert answer.status == 405
    allowed = "POST, OPTIONS" if route == "cleanup" else "GET, OPTIONS"
    assert answer.headers["Allow"] == allowed


def test_answers_are_not_to_be_kept_or_embedded(server: RestServer) -> None:
    for answer in (
        server.ask("GET", f"{API}/kernels"),
        server.ask("GET", f"{API}/kernels/none"),
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
