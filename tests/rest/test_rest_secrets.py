"""Nothing secret gets out: every answer, event, metric, log line and journal is searched."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
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
        (["--password", "--port"], ["--password", "--port"]),
        (["sh", "-c", "API_KEY=abcd run"], ["sh", "-c", f"API_KEY={MASK} run"]),
        (["curl", "http://h/?a=1&token=abcd&b=2"], ["curl", f"http://h/?a=1&token={MASK}&b=2"]),
        (["-H", "Authorization: token abcd"], ["-H", f"Authorization: token {MASK}"]),
        (["git", "https://me:abcd@host/x"], ["git", f"https://{MASK}@host/x"]),
        (['{"password": "abcd"}'], [f'{{"password": {MASK}"}}']),
        (["x-known-secret-x"], [f"x-{MASK}-x"]),
        (["\udcff"], ["?"]),
        # Not everything with such a word in it is one.
        (["tokenize.py", "--keys", "a"], ["tokenize.py", "--keys", "a"]),
        (["monkey=1", "keyboard"], ["monkey=1", "keyboard"]),
    ],
)
def test_command_lines_without_their_secrets(argv: list[str], shown: list[str]) -> None:
    assert redact(argv, ["known-secret", ""]) == shown


def test_command_lines_are_bounded() -> None:
    shown = redact(["x" * 100_000] * 1000)
    assert len(shown) <= 201
    assert max(map(len, shown)) <= 5000
    assert redact(["a" * 200_000 + "token=" + "b" * 10])[0].startswith("aaa")
