"""Who imports whom, noted while the template imports."""

from __future__ import annotations

import builtins
import importlib
import itertools
import sys
from collections.abc import Iterable
from typing import Any


class Needs:
    """What each module's import brings along.

    Import statements are seen as they are run. What appears in ``sys.modules`` without one (an
    extension imports in C, or makes modules of its own) is taken for the innermost import
    in which it appeared, and for the module that asked for that.
    """

    def __init__(self) -> None:
        self._needs: dict[str, set[str]] = {}
        self._placed: set[str] = set()
        self._import = builtins.__import__

    def __enter__(self) -> Needs:
        builtins.__import__ = self._note
        return self

    def __exit__(self, *error: object) -> None:
        builtins.__import__ = self._import

    def of(self, name: str) -> Iterable[str]:
        """What is needed at the import of a module, its parent packages included."""
        parent = name.rpartition(".")[0]
        return [parent, *self._needs.get(name, ())] if parent else self._needs.get(name, ())

    def load(self, name: str) -> None:
        """Import a module by its name."""
        self._load_packages(name, name)
        before = len(sys.modules)
        importlib.import_module(name)
        self._place(before, name)

    def _load_packages(self, name: str, importer: str) -> None:
        """Those around a module, one by one, so that each has what it brings itself."""
        dot = name.find(".")
        while dot > 0:
            if name[:dot] not in sys.modules:
                before = len(sys.modules)
                importlib.import_module(name[:dot])
                self._place(before, importer, name[:dot])
            dot = name.find(".", dot + 1)

    def _note(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        importer = _running(globals or {})
        full = _absolute(name, globals or {}, level)
        parts = [f"{full}.{part}" for part in fromlist or () if part != "*"]
        self._needs.setdefault(importer, set()).update([full, *parts])
        if not level:
            self._load_packages(name, importer)
        if parts and full not in sys.modules:
            # In two steps, so that what the parts bring is not taken for the package's.
            before = len(sys.modules)
            self._import(name, globals, locals, (), level)
            self._place(before, importer, full)
        before = len(sys.modules)
        answer = self._import(name, globals, locals, fromlist, level)
        self._place(before, importer, *(parts or [full]))
        return answer

    def _place(self, before: int, *owners: str) -> None:
        """What is new since then, and nobody's yet, is needed by those of the owners that
        are new too, and by the first of them."""
        # In the order in which they came; an import rarely takes one out.
        new = list(itertools.islice(reversed(sys.modules), max(len(sys.modules) - before, 0)))
        stray = [name for name in new if name not in self._placed]
        self._placed.update(stray)
        for owner in owners:
            if owner is owners[0] or owner in new:
                self._needs.setdefault(owner, set()).update(stray)


def _absolute(name: str, scope: dict[str, Any], level: int) -> str:
    if not level:
        return name
    package = scope.get("__package__") or scope.get("__name__", "").rpartition(".")[0]
    base = str(package.rsplit(".", level - 1)[0] if level > 1 else package)
    return f"{base}.{name}" if name else base


def _running(scope: dict[str, Any]) -> str:
    """The module whose code is being run.

    A statement in a function (a package that loads its parts late) is run for the module that
    called it, and not at every import of the function's own.
    """
    if _is_initializing(scope):
        return str(scope["__name__"])
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_initializing(frame.f_globals):
            return str(frame.f_globals["__name__"])
        frame = frame.f_back
    return ""


def _is_initializing(scope: dict[str, Any]) -> bool:
    return bool(getattr(scope.get("__spec__"), "_initializing", False))
