"""How long journals of other worlds are kept: nobody here can tell whether their owners live."""

from __future__ import annotations

from collections.abc import Iterable

from .read import JournalView

_DAY = 86400.0
FOREIGN_AGE = 30 * _DAY
"""Seconds without a record after which another world's journal is removed, unlocked ones only."""
MOST_FOREIGN = 100
"""More of them than that are kept for a day only: each is read at each scan."""


def outdated(foreign: Iterable[JournalView], now: float) -> list[JournalView]:
    """Journals of other worlds that nobody is likely to ask for any more.

    Only those are to be given that lie where a lock is seen by everybody, and only unlocked
    ones are then removed: a living owner holds its journal's lock.
    """
    aged = sorted(
        ((now - view.file.mtime_ns / 1e9, view) for view in foreign if view.file is not None),
        key=lambda pair: pair[0],
    )
    return [
        view
        for place, (age, view) in enumerate(aged)
        if age > FOREIGN_AGE or (place >= MOST_FOREIGN and age > _DAY)
    ]
