"""How the command line speaks: tables on a terminal, plain text in a pipe, JSON on demand."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..runtime.exits import humanise_bytes

PROGRAM = "jupyter ownedkernels"


def say_json(value: Any) -> None:
    """One JSON document on standard output. Odd bytes of names and arguments are escaped."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def complain(text: str) -> None:
    """One line on standard error."""
    print(f"{PROGRAM}: {printable(text)}", file=sys.stderr)


def printable(text: str) -> str:
    """The text with control characters made visible: a name must not steer a terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "replace").decode("ascii")
        for char in text.encode("utf-8", "replace").decode("utf-8")
    )


def memory(count: int | None) -> str:
    """``11.8 GB``; a dash for what is not known."""
    return "-" if count is None else humanise_bytes(count)


def duration(seconds: float | None) -> str:
    """``45 s``, ``12 min``, ``3 h``, ``9 d``; a dash for what is not known."""
    if seconds is None:
        return "-"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < limit * size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds / 86400)} d"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table(
    columns: Sequence[str | tuple[str, str]], rows: Sequence[Sequence[str]], styles: Any = None
) -> None:
    """Print a table. A column is a title, or a title and ``right`` or ``rest``.

    ``rest`` takes what width is left and is shortened. ``styles`` gives one style a row.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        title, kind = column if isinstance(column, tuple) else (column, "left")
        made.add_column(
            title,
            justify="right" if kind == "right" else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if kind == "rest" else None,
        )
    made.expand = console.is_terminal and any(
        isinstance(c, tuple) and c[1] == "rest" for c in columns
    )
    for place, row in enumerate(rows):
        style = styles[place] if styles else ""
        made.add_row(*(Text(printable(cell)) for cell in row), style=style)
    if not console.is_terminal:
        # In a pipe nothing is cut: a program, or grep, may want all of it.
        console.width = 10_000
    console.print(made)


class Progress:
    """A line on standard error that says what is going on; nothing but on a terminal.

    It is there within ``with``, and taken away before anything else is printed.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._shown = False
        self._wanted = wanted and sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._wanted:
            print(f"\r\033[K{printable(text)}…", end="", file=sys.stderr, flush=True)
            self._shown = True

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
