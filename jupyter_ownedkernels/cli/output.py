"""How the command line speaks: tables on a terminal, plain text in a pipe, JSON on demand."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from ..runtime.exits import humanise_bytes

PROGRAM = "jupyter ownedkernels"


def say_json(value: Any) -> None:
    """One JSON document on standard output. Odd bytes of names and arguments are escaped."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def complain(text: str) -> None:
    """One line on standard error. Where nobody reads it the exit status has to do."""
    with contextlib.suppress(OSError):
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


Column = str | tuple[str, str]
# What a column of prose gets at least, and what a shortened name keeps.
_PROSE, _NAME = 24, 8
_ENDLESS = 10_000
_BETWEEN = 2
_FLEXIBLE = {"rest": _PROSE, "text": _PROSE, "below": _PROSE}


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str] | None = None
) -> None:
    """Print a table. A column is a title, or a title and what it does on a narrow terminal.

    ``right``: stands at the right, whole. ``name``: is shortened where nothing else helps.
    ``rest``: takes what width is left, and is shortened. ``text``: goes on in the next
    line. ``below``: the same, and where there is no room beside the others it has a line of
    its own below the row. ``styles`` gives one style a row. In a pipe nothing is cut: a
    program, or grep, may want all of it.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.segment import Segments
    from rich.text import Text

    class Output(Console):
        def on_broken_pipe(self) -> None:
            # Its own answer is exit status 1, which says here that something is left.
            raise

    # The console itself takes a pipe for a terminal that it is told to colour (FORCE_COLOR), and
    # a dumb terminal for one of 80 columns.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ENDLESS
    # Without a height it would not believe the width.
    console = Output(highlight=False, width=width, height=25)
    named = [column if isinstance(column, tuple) else (column, "left") for column in columns]
    cells = [[Text(printable(cell)) for cell in row] for row in rows]
    sized = [
        (title, kind, max([len(title), *(row[place].cell_len for row in cells)]))
        for place, (title, kind) in enumerate(named)
    ]
    room = width - _BETWEEN * (len(sized) - 1)
    beside = list(range(len(sized)))
    if sum(min(natural, _FLEXIBLE.get(kind, natural)) for _, kind, natural in sized) > room:
        beside = [place for place in beside if sized[place][1] != "below"]
    made = _made([sized[place] for place in beside], width)
    for place, row in enumerate(cells):
        made.add_row(*(row[one] for one in beside), style=styles[place] if styles else "")
    if len(beside) == len(sized):
        console.print(made)
        return
    # Nothing goes on in the next line here: each row is one line.
    lines = console.render_lines(made, pad=False, new_lines=True)
    for line in lines[: -len(rows)]:
        console.print(Segments(line), end="")
    for line, row in zip(lines[-len(rows) :], cells, strict=True):
        console.print(Segments(line), end="")
        told = [cell for place, cell in enumerate(row) if place not in beside and cell.plain]
        together = Text("  ").join(told)
        for text in [together] if together.cell_len + 2 <= width else told:
            console.print(Padding(text, (0, 0, 0, 2), expand=False))


def _made(columns: Sequence[tuple[str, str, int]], width: int) -> Any:
    from rich import box
    from rich.table import Table

    fixed = sum(
        0 if kind == "name" else min(natural, _FLEXIBLE.get(kind, natural))
        for _, kind, natural in columns
    )
    names = sum(kind == "name" for _, kind, _ in columns)
    left = (width - fixed - _BETWEEN * (len(columns) - 1)) // max(names, 1)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for title, kind, natural in columns:
        prose = kind in ("text", "below")
        made.add_column(
            title,
            justify="right" if kind == "right" else "left",
            no_wrap=not prose,
            overflow="fold" if prose else "ellipsis",
            ratio=1 if kind == "rest" and width < _ENDLESS else None,
            max_width=min(natural, max(left, _NAME)) if kind == "name" else None,
        )
    made.expand = width < _ENDLESS and any(kind == "rest" for _, kind, _ in columns)
    return made


def takes_control_codes(stream: TextIO) -> bool:
    """Whether it is a terminal on which a line can be written over."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


class Progress:
    """A line on standard error that says what is going on; nothing but on a terminal.

    It is there within ``with``, and taken away before anything else is printed.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._shown = False
        self._wanted = wanted and takes_control_codes(sys.stderr)

    def __call__(self, text: str) -> None:
        if self._wanted:
            print(f"\r\033[K{printable(text)}…", end="", file=sys.stderr, flush=True)
            self._shown = True

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
