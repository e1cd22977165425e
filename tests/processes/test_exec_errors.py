"""A command that cannot be executed: the error is the one that Jupyter itself raises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

TRY = """
import time
begun = time.monotonic()
try:
    start(name, name, **kwargs)
    result = "started"
except Exception as error:
    names = ("errno", "strerror", "filename", "filename2")
    result = {key: getattr(error, key, None) for key in names}
    result.update(kind=type(error).__name__, text=str(error))
elapsed = time.monotonic() - begun
"""


def cases(folder: Path) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """argv and launch options of commands that do not work."""
    plain = folder / "plain"
    plain.write_text("no program\n")
    plain.chmod(0o644)
    text = folder / "text"
    text.write_text("no shebang\n")
    text.chmod(0o755)
    orphaned = folder / "orphaned"
    orphaned.write_text("#!/there/is/none\n")
    orphaned.chmod(0o755)
    python = sys.executable
    return {
        "no interpreter": ([str(folder / "absent"), "-f", "{connection_file}"], {}),
        "no command on the path": (["there-is-no-such-command", "{connection_file}"], {}),
        "below a file": ([str(plain / "below")], {}),
        "a folder": ([str(folder)], {}),
        "not executable": ([str(plain)], {}),
        "not a program": ([str(text), "{connection_file}"], {}),
        "interpreter of a script": ([str(orphaned)], {}),
        "relative": (["./absent"], {"cwd": str(folder)}),
        "no cwd": ([python, "-c", "0"], {"cwd": str(folder / "absent")}),
        "an empty cwd": ([python, "-c", "0"], {"cwd": ""}),
        "cwd is a file": ([python, "-c", "0"], {"cwd": str(plain)}),
        "neither": ([str(folder / "absent")], {"cwd": str(folder / "nowhere")}),
        "a null byte": ([python, "-c", "a\0b"], {}),
        "arguments too long": ([python, "-c", "0", "x" * (1 << 20)], {}),
    }


NAMES = [
    "no interpreter",
    "no command on the path",
    "below a file",
    "a folder",
    "not executable",
    "not a program",
    "interpreter of a script",
    "relative",
    "no cwd",
    "an empty cwd",
    "cwd is a file",
    "neither",
    "a null byte",
    "arguments too long",
]


@pytest.fixture(scope="module")
def both(workspace: Workspace) -> Iterator[tuple[Owner, Owner, dict[str, Any]]]:
    folder = workspace.path / "commands"
    folder.mkdir()
    commands = cases(folder)
    assert list(commands) == NAMES
    for number, (argv, _) in enumerate(commands.values()):
        workspace.spec(f"case{number}", argv)
    with Owner(workspace) as owned, Owner(workspace, provisioner="local-provisioner") as stock:
        # The spawner is up, so that the time is that of the launch alone.
        owned.start("first", workspace.mini("first"))
        workspace.note("first")
        yield (
            owned,
            stock,
            {name: (f"case{number}", commands[name][1]) for number, name in enumerate(commands)},
        )


@pytest.mark.parametrize("case", NAMES)
def test_same_error_as_stock(both: tuple[Owner, Owner, dict[str, Any]], case: str) -> None:
    owned, stock, specs = both
    name, kwargs = specs[case]
    expected = stock.run(TRY, name=name, kwargs=kwargs)
    helpers = census.below(owned.pid)
    assert owned.run(TRY, 30, name=name, kwargs=kwargs) == expected
    assert owned.run("result = elapsed") < 5
    census.wait_until(
        lambda: census.below(owned.pid) == helpers, 10, "no process of a failed launch is left"
    )
    assert owned.is_alive("first")
