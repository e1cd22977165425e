"""Modules that are imported already but must not look so: put away, and given back on import.

``"pandas" in sys.modules`` means something to many a library and to ipykernel's debugger
(it never steps into what was loaded before the kernel). So a forked kernel starts with the
modules that an executed one has at that moment. The others wait here, complete, for the
import statement that asks for them: it costs microseconds instead of seconds. With a module
come those that its import would have brought along, no others.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class Needs:
    """Who imports whom, noted while the template imports."""

    def __init__(self) -> None:
        self._needs: dict[str, set[str]] = {}
        self._import = builtins.__import__

    def __enter__(self) -> Needs:
        builtins.__import__ = self._note
        return self

    def __exit__(self, *error: object) -> None:
        builtins.__import__ = self._import

    def _note(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        importer = (globals or {}).get("__name__", "")
        needs = self._needs.setdefault(importer, set())
        full = name
        if level:
            package = (globals or {}).get("__package__") or importer.rpartition(".")[0]
            base = package.rsplit(".", level - 1)[0] if level > 1 else package
            full = base + "." + name if name else base
        needs.add(full)
        needs.update(full + "." + str(part) for part in fromlist or () if part != "*")
        return self._import(name, globals, locals, fromlist, level)

    def of(self, name: str) -> Iterable[str]:
        """What is needed at the import of a module, its parent packages included."""
        parent = name.rpartition(".")[0]
        return [parent, *self._needs.get(name, ())] if parent else self._needs.get(name, ())


class Shelf:
    """A finder in front of all others, until it has given everything back."""

    def __init__(self, names: Iterable[str], together: Iterable[str], needs: Needs) -> None:
        """``together`` are given back with the first of them: a kernel's first cell needs all."""
        everything = [*together, *names]
        self._kept = {name: sys.modules.pop(name) for name in everything if name in sys.modules}
        self._together = frozenset(together)
        self._needs = needs
        self._asked: dict[str, ModuleType] = {}
        self._specs: dict[str, Any] = {}
        if self._kept:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type, unused-ignore]

    def module(self, name: str) -> Any:
        """The module, if it was imported, wherever it is now."""
        return sys.modules.get(name) or self._kept.get(name)

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Called by the import system for every module that is not in sys.modules."""
        if name not in self._kept:
            return None
        self._give_back(name)
        # The import system puts it into sys.modules; if it finds it there already, it takes
        # the module's own spec instead of this one, and runs the code again.
        self._asked[name] = sys.modules.pop(name)
        return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]

    def _give_back(self, wanted: str) -> None:
        pending = [wanted, *(self._together if wanted in self._together else ())]
        seen = set(pending)
        while pending:
            name = pending.pop()
            module = self._kept.pop(name, None)
            if module is None and name not in sys.modules:
                continue
            if module is not None:
                sys.modules.setdefault(name, module)
            elif name != wanted:
                continue  # it is there, and what it needs as well
            for needed in self._needs.of(name):
                if needed not in seen:
                    seen.add(needed)
                    pending.append(needed)
        if not self._kept and self in sys.meta_path:
            sys.meta_path.remove(self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself, instead of a new one."""
        module = self._asked.pop(spec.name)
        self._specs[spec.name] = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Ran when the template imported it; the import system has just replaced its spec."""
        name = module.__spec__.name if module.__spec__ else module.__name__
        module.__spec__ = self._specs.pop(name, module.__spec__)
