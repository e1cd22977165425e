"""Modules that are imported already but must not look so: put away, and given back on import.

``"pandas" in sys.modules`` means something to many a library and to ipykernel's debugger
(it never steps into what was loaded before the kernel). So a forked kernel starts with the
modules that an executed one has at that moment. The others wait here, complete, for the
import statement that asks for them: it costs microseconds instead of seconds. With a module
come those that its import would have brought along, no others.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from .needs import Needs

# Another name for the main module, which multiprocessing gives it when it is imported.
_MAIN_TOO = "__mp_main__"


class Shelf:
    """A finder in front of all others, until it has given everything back."""

    def __init__(
        self,
        names: Sequence[str],
        together: Sequence[str],
        needs: Needs,
        returned: Callable[[set[str]], None],
    ) -> None:
        """``together`` are given back with the first of them: a kernel's first cell needs all.

        ``returned`` is told each time which are there now.
        """
        everything = [*together, *names]
        # None is there for a module that must not be imported: it is no module.
        present = [name for name in everything if sys.modules.get(name) is not None]
        self._kept = {name: sys.modules.pop(name) for name in dict.fromkeys(present)}
        self._names = list(self._kept)
        self._number = {name: number for number, name in enumerate(self._names)}
        self._brings = _brought(self._number, needs, together)
        self._returned = returned
        self._specs: dict[str, Any] = {}
        self._bound = {name: module for name, module in self._kept.items() if self._unbind(name)}
        if self._kept:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type, unused-ignore]

    def module(self, name: str) -> Any:
        """The module, if it was imported, wherever it is now."""
        kept = self._kept.get(name)
        return sys.modules.get(name) if kept is None else kept

    def _unbind(self, name: str) -> bool:
        """Take a module out of its package, as an import has put it there."""
        package, _, last = name.rpartition(".")
        # Past what a package may have to say about being written to.
        inside = getattr(self.module(package), "__dict__", None)
        if not isinstance(inside, dict) or inside.get(last) is not self._kept[name]:
            return False
        del inside[last]
        return True

    def _bind(self, name: str) -> None:
        module = self._bound.get(name)
        package, _, last = name.rpartition(".")
        inside = getattr(self.module(package), "__dict__", None)
        if module is not None and inside is not None:
            inside.setdefault(last, module)
        self._bound.pop(name, None)

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Called by the import system for every module that is not in sys.modules, and by whoever
        only asks whether there is one: nothing is given back before :meth:`create_module`.
        """
        module = self._kept.get(name)
        if module is None:
            # A reload names its target.
            return self._just_given_back(name) if target is None else None
        return self._spec(name, getattr(module, "__spec__", None))

    def _just_given_back(self, name: str) -> importlib.machinery.ModuleSpec | None:
        """For a thread that has not found the module in sys.modules, where another had it put
        before this one came here: the next finder would run its code a second time.
        """
        module = sys.modules.get(name) if name in self._number else None
        if module is None:
            return None
        self._specs[name] = getattr(module, "__spec__", None)
        # The import system goes by what stands here, when it sees that the module has come.
        module.__spec__ = self._spec(name, self._specs[name])
        return module.__spec__

    def _spec(self, name: str, own: Any) -> importlib.machinery.ModuleSpec:
        spec = importlib.machinery.ModuleSpec(name, self, origin=getattr(own, "origin", None))  # type: ignore[arg-type]
        spec.submodule_search_locations = getattr(own, "submodule_search_locations", None)
        spec.has_location = getattr(own, "has_location", False)
        return spec

    def _give_back(self, wanted: str) -> None:
        back = []
        for number in _ones(self._brings[self._number[wanted]]):
            name = self._names[number]
            module = self._kept.get(name)
            if module is None:
                continue
            # Another thread may want it too: it is complete when it is there, and no moment
            # nowhere.
            self._bind(name)
            sys.modules.setdefault(name, sys.modules["__main__"] if name == _MAIN_TOO else module)
            if self._kept.pop(name, None) is not None:
                back.append(name)
        if not self._kept:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)  # type: ignore[arg-type, unused-ignore]
        self._returned(set(back))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself, instead of a new one."""
        if spec.name in self._kept:
            self._give_back(spec.name)
        # Or it came with what another thread has imported meanwhile.
        module = sys.modules[spec.name]
        self._specs.setdefault(spec.name, getattr(module, "__spec__", None))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Ran when the template imported it; the import system has just replaced its spec."""
        name = module.__spec__.name if module.__spec__ else module.__name__
        module.__spec__ = self._specs.pop(name, module.__spec__)


def _brought(number: Mapping[str, int], needs: Needs, together: Iterable[str]) -> list[int]:
    """For each module those that come with it, itself included: a bit for each, by its number.

    Found in the template. A kernel that went from need to need would write to the names of all
    of them, and copy 600 pages for pandas and matplotlib: 2 of the 7 ms of their import.
    """
    asks = [[number[need] for need in needs.of(name) if need in number] for name in number]
    brought = [1 << index for index in range(len(number))]
    changed = True
    while changed:
        changed = False
        # Who imports stands before what it imports.
        for index in reversed(range(len(number))):
            bits = brought[index]
            for other in asks[index]:
                bits |= brought[other]
            changed = changed or bits != brought[index]
            brought[index] = bits
    group = [number[name] for name in together if name in number]
    everything = 0
    for index in group:
        everything |= brought[index]
    for index in group:
        brought[index] = everything
    return brought


def _ones(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
