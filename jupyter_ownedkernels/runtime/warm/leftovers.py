"""What an import leaves outside its modules: there when a cell imports them, not before.

A filter of warnings stands before those that are older, and a handler of log records keeps
the stream that was standard error when it was made. Both are put right when a kernel asks for a
module of that import, as if it were run then; so is the folder that multiprocessing starts
its workers in.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

# Python 3.9 does not tell.
PYTHONS_OWN: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
_STREAMS = ("stdout", "stderr")


class _Of(NamedTuple):
    """Left by one import."""

    modules: frozenset[str]
    filters: list[Any]
    handlers: list[tuple[Any, str]]


class Leftovers:
    """Of the modules that a template preloads."""

    def __init__(self) -> None:
        self._filters: list[Any] = list(warnings.filters)
        self._handlers = set(map(id, _handlers()))
        self._put_away: list[_Of] = []

    def put_away(self, modules: Iterable[str]) -> None:
        """After the import that brought these."""
        filters = [one for one in warnings.filters if one not in self._filters]
        _set_filters(self._filters)
        streams = {id(getattr(sys, name)): name for name in _STREAMS}
        handlers = [
            (handler, streams[id(handler.stream)])
            for handler in _handlers()
            if id(handler) not in self._handlers and id(handler.stream) in streams
        ]
        self._handlers.update(id(handler) for handler, _ in handlers)
        # Those of Python itself are asked for by others too: by the kernel while it boots.
        own = frozenset(name for name in modules if name.partition(".")[0] not in PYTHONS_OWN)
        if own and (filters or handlers):
            self._put_away.append(_Of(own, filters, handlers))

    def bring_back(self, modules: set[str]) -> None:
        """In a kernel that imports these now."""
        for one in [one for one in self._put_away if not modules.isdisjoint(one.modules)]:
            self._put_away.remove(one)
            if one.filters:
                rest = [old for old in warnings.filters if old not in one.filters]
                _set_filters([*one.filters, *rest])
            for handler, name in one.handlers:
                if handler.stream is getattr(sys, f"__{name}__"):
                    handler.setStream(getattr(sys, name))
        if "multiprocessing.process" in modules:
            settle(os.getcwd())


def settle(folder: str) -> None:
    """Where multiprocessing lets new interpreters look for modules of the working folder."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = folder


def _handlers() -> list[Any]:
    # Not imported: what this file needs for itself would be in every kernel from the start.
    logging: Any = sys.modules.get("logging")
    made = [reference() for reference in logging._handlerList] if logging is not None else []
    return [one for one in made if isinstance(one, logging.StreamHandler)]


def _set_filters(wanted: list[Any]) -> None:
    wanted = list(wanted)
    # This tells the modules' registries of warnings already shown that it is another list.
    warnings.resetwarnings()
    warnings.filters.extend(wanted)  # type: ignore[attr-defined]
