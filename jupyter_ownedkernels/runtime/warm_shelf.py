"""Modules that are imported already but must not look so: put away, and given back on import.

``"pandas" in sys.modules`` means something to many a library and to ipykernel's debugger
(it never steps into what was loaded before the kernel). So a forked kernel starts with the
modules that an executed one has at that moment. The others wait here, complete, for the
import statement that asks for the first of them: it costs microseconds instead of seconds.
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any


class Shelf:
    """A finder in front of all others, until it has given everything back.

    ``groups`` are lists of module names in the order of their import; a later group may
    need all earlier ones, so those are given back with it.
    """

    def __init__(self, groups: list[list[str]]) -> None:
        self._groups: list[dict[str, ModuleType]] = []
        for group in groups:
            taken = {name: sys.modules.pop(name) for name in group if name in sys.modules}
            if taken:
                self._groups.append(taken)
        self._specs: dict[str, Any] = {}
        if self._groups:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type, unused-ignore]

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Called by the import system for every module that is not in sys.modules."""
        for index, group in enumerate(self._groups):
            if name in group:
                self._give_back(index)
                self._specs[name] = getattr(sys.modules[name], "__spec__", None)
                return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]
        return None

    def _give_back(self, index: int) -> None:
        given, self._groups = self._groups[: index + 1], self._groups[index + 1 :]
        for group in given:
            for name, module in group.items():
                sys.modules.setdefault(name, module)
        if not self._groups and self in sys.meta_path:
            sys.meta_path.remove(self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself, instead of a new one."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Ran when the template imported it; the import system has just replaced its spec."""
        module.__spec__ = self._specs.pop(module.__name__, module.__spec__)
