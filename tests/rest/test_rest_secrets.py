"""Nothing secret gets out: every answer, event, metric, log line and journal is searched."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rest_server import RestServer
from support import census
from support.workspace import Workspace

from jupyter_ownedkernels.redaction import MASK, redact

ROUTES = [
    "health",
    "kernels",
    "kernels?scope=user",
    "strays?refresh=1",
    "history",
    "kernels/none",
    "kernels?scope=none",
]


def test_nothing_secret_gets_out(private: Workspace) -> None:
    planted = secrets.token_hex(20)
    password = secrets.token_hex(20)
    with RestServer(private, PLANTED_SECRET=planted) as server, RestServer(private) as other:
        kernel_id = server.start_kernel("python3", "a.ipynb")
        theirs = other.start_kernel("python3")
        keys = [server.connection(kernel_id)["key"], server.connection(theirs)["key"]]
        assert all(len(key) > 30 for key in keys)
        # Users put secrets on command lines, too, those of the server among them.
        server.run(
            kernel_id,
            "import subprocess, os\n"
            f"assert os.environ['PLANTED_SECRET'] == {planted!r}\n"
            f"lines = [['--token={server.token}'], [{server.token!r}], [{keys[0]!r}],\n"
            f"         ['--password', {password!r}], ['--db', 'https://me:{password}@host/']]\n"
            "for line in lines:\n"
            "    subprocess.Popen(['sh', '-c', 'sleep 300; exit', 'sh', *line],\n"
            "                     start_new_session=True)\n",
        )

        def shown() -> list[str]:
            processes = server.kernel(kernel_id)["processes"]
            return [" ".join(one["cmdline"]) for one in processes if one["depth"] == 1]

        census.wait_until(lambda: len(shown()) == 5, 10, "five children")
        assert all(MASK in line for line in shown())
        for path in ROUTES:
            server.ask("GET", f"/api/ownedkernels/{path}")
        server.ask("POST", "/api/ownedkernels/cleanup", {"ids": ["x"]})
        server.end_kernel(kernel_id)
        detached = [
            one for one in server.get("strays?refresh=1")["findings"] if one["kind"] == "detached"
        ]
        assert len(detached) >= 5
        for path in ROUTES:
            server.ask("GET", f"/api/ownedkernels/{path}")
        server.clean(ids=[one["id"] for one in detached], dry_run=False)
        server.metrics()
        places = {
            **{f"answer {n}": body for n, body in enumerate(server.answers)},
            "log": server.log.encode(),
            "events": server.events_path.read_bytes(),
        }
        for path in Path(private.runtime / "ownedkernels").iterdir():
            places[path.name] = path.read_bytes()
        wanted = {
            "the server's token": server.token,
            "the other server's token": other.token,
            "the environment": planted,
            "a password": password,
            "a connection key": keys[0],
            "another owner's connection key": keys[1],
        }
    assert len(places) > 20
    found = [
        f"{what} in {where}"
        for what, secret in wanted.items()
        for where, content in places.items()
        if secret.encode() in content
    ]
    assert found == [], [str(places[one.rpartition(" in ")[2]])[:3000] for one in found[:2]]


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["python", "-m", "x"], ["python", "-m", "x"]),
        (["--IdentityProvider.token=abcd"], [f"--IdentityProvider.token={MASK}"]),
        (["--token", "abcd", "--port", "1"], ["--token", MASK, "--port", "1"]),
        (["--password", "--port"], ["--password", MASK]),
        (["--password", "-abcd", "-v"], ["--password", MASK, "-v"]),
        (["--password=abcd efgh", "-v"], [f"--password={MASK}", "-v"]),
        (["env", "DB_PASSWORD=abcd efgh", "run"], ["env", f"DB_PASSWORD={MASK}", "run"]),
        (["sh", "-c", 'PGPASSWORD="my secret pw" psql'], ["sh", "-c", f"PGPASSWORD={MASK} psql"]),
        (["sh", "-c", "TOKEN='a b'c\"d e\" run"], ["sh", "-c", f"TOKEN={MASK} run"]),
        (["sh", "-c", "TOKEN='a b run"], ["sh", "-c", f"TOKEN={MASK}"]),
        (["sh", "-c", "TOKEN= ; run"], ["sh", "-c", f"TOKEN= {MASK} run"]),
        (["sh", "-c", "API_KEY=abcd run"], ["sh", "-c", f"API_KEY={MASK} run"]),
        (["curl", "http://h/?a=1&token=abcd&b=2"], ["curl", f"http://h/?a=1&token={MASK}&b=2"]),
        (["-H", "Authorization: token abcd"], ["-H", f"Authorization: token {MASK}"]),
        (["git", "https://me:abcd@host/x"], ["git", f"https://{MASK}@host/x"]),
        (["postgres://bob:p@ss/word@db/x"], [f"postgres://{MASK}@db/x"]),
        (["http://me@host/a@b", "http://host/a@b"], [f"http://{MASK}@host/a@b", "http://host/a@b"]),
        (["http://host/?u=http://me:abcd@h"], [f"http://host/?u=http://{MASK}@h"]),
        (["ssh://git@host/x,ssh://a:b@c/d"], [f"ssh://{MASK}@host/x,ssh://{MASK}@c/d"]),
        (['{"password": "abcd", "a": 1}'], [f'{{"password": "{MASK}", "a": 1}}']),
        (['{\\"password\\": \\"ab cd\\", x}'], [f'{{\\"password\\": {MASK}']),
        (["x-known-secret-x"], [f"x-{MASK}-x"]),
        (["\udcff"], ["?"]),
        # Not everything with such a word in it is one.
        (["tokenize.py", "--keys", "a"], ["tokenize.py", "--keys", "a"]),
        (["monkey=1", "keyboard"], ["monkey=1", "keyboard"]),
    ],
)
def test_command_lines_without_their_secrets(argv: list[str], shown: list[str]) -> None:
    assert redact(argv, ["known-secret", ""]) == shown


def in_double_quotes(text: str) -> str:
    return '"' + re.sub(r'(["\\\\$`])', r"\\\1", text) + '"'


FORMS: list[Callable[[str], list[str]]] = [
    lambda secret: ["--password", secret],
    lambda secret: [f"--db.password={secret}"],
    lambda secret: ["env", f"PGPASSWORD={secret}", "psql"],
    lambda secret: ["sh", "-c", f"PGPASSWORD={shlex.quote(secret)} psql -h db"],
    lambda secret: ["sh", "-c", f"PGPASSWORD={in_double_quotes(secret)} psql -h db"],
    lambda secret: ["sh", "-c", "curl -d " + shlex.quote(json.dumps({"password": secret}))],
    lambda secret: ["sh", "-c", "curl -d " + in_double_quotes(json.dumps({"password": secret}))],
    lambda secret: ["curl", "-d", json.dumps({"user": "me", "api_key": secret, "more": [1]})],
    lambda secret: ["python", "-c", repr({"user": "me", "secret": secret})],
    # Without what ends a word, or the part of a URL.
    lambda secret: [f"postgres://bob:{''.join(secret.split())}@db/x"],
    lambda secret: ["sh", "-c", f"psql postgres://bob:{''.join(secret.split())}@db; true"],
    lambda secret: [f"http://h/?token={''.join(secret.split()).replace('&', '')}&b=2"],
]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("'\"\\@/:&=-#? \n$*,}", max_size=3), min_size=3, max_size=6))
def test_nothing_of_a_secret_is_shown(form: Callable[[str], list[str]], between: list[str]) -> None:
    parts = [f"planted{number}" for number in range(len(between))]
    secret = "".join(a + b for a, b in zip(between, parts, strict=True))
    shown = " ".join(redact(form(secret)))
    assert "planted" not in shown, form(secret)


@pytest.mark.parametrize("before", ["x" * 4080, "0123456789" * 500, "x" * 4070 + "0123"])
def test_a_known_secret_is_found_across_the_end_of_what_is_shown(before: str) -> None:
    known = "0123456789" * 5
    (shown,) = redact([before + known], [known, "other"])
    assert not shown.endswith(tuple("0123456789"))
    assert len(shown) <= 4096
    # As in the report of a scan, which was cut by who knows no secrets.
    (shown,) = redact(redact(["x" * 4080 + known]), ["other", known])
    assert "0123" not in shown


@pytest.mark.parametrize("shown_before", [0, 4000, 4081])
@pytest.mark.parametrize("beyond", ["@host/path", "more@host", "/@/" + "x" * 100_000 + "@host"])
def test_a_password_in_a_url_is_found_across_the_end_of_what_is_shown(
    shown_before: int, beyond: str
) -> None:
    for user in ("https://me:", "https://"):
        url = user.rjust(shown_before + len(user), "x")
        secret = "planted" * 1000
        (shown,) = redact([url + secret[: 4096 - len(url)] + beyond])
        assert "plant" not in shown
        assert shown.startswith(f"{url[: -len(user)]}https://{MASK}"[:4096])
        assert len(shown) <= 4096


def test_a_long_url_without_a_user_is_shown() -> None:
    for rest in ("", " me@host", "?to=me@host"):
        url = "https://host/" + "x" * 5000 + rest
        assert redact([url]) == [url[:4096]]


@pytest.mark.parametrize(
    "part",
    [
        "://a:",
        "://",
        "token=",
        'token="',
        "token='a\\",
        'token": "',
        "password",
        "a:b@",
        "@",
        "&",
        "\\",
    ],
)
def test_no_argument_takes_long(part: str) -> None:
    argument = part * (4096 // len(part))
    begun = time.process_time()
    for _ in range(20):
        redact([argument, "x" + argument, argument + "@"])
    assert time.process_time() - begun < 1.0, "3 ms a piece here"


def test_command_lines_are_bounded() -> None:
    shown = redact(["x" * 100_000] * 1000)
    assert len(shown) <= 201
    assert max(map(len, shown)) <= 5000
    assert redact(["a" * 200_000 + "token=" + "b" * 10])[0].startswith("aaa")
