"""From fork to kernel without exec: what ``python -m`` would have set up, in a forked child."""

from __future__ import annotations

import builtins
import gc
import os
import runpy
import sys
import time
import types
from typing import Any, Callable

from . import lineage, warm_gate, warm_title
from .child import Unwind

_CONNECTION_DEFAULT = "parent_handle"


class Template:
    """What the template was before and after its imports, and how a child leaves it."""

    def __init__(self) -> None:
        self._collects = gc.isenabled()
        self._before = dict(os.environ)
        self._imported: dict[str, str] = {}
        self._files: dict[str, tuple[int, int, int]] = {}
        self._preload: list[str] = []
        self.kernel: Callable[[str], None] | None = None
        """In a forked child: what makes it the kernel."""

    def imported(self, files: dict[str, tuple[int, int, int]]) -> None:
        self._files = files

    def preloaded(self, names: list[str]) -> None:
        self._preload = sorted({name.partition(".")[0] for name in names})

    def freeze(self, files: dict[str, tuple[int, int, int]]) -> None:
        """All imports are made: remember what they did to the environment."""
        self._files = files
        self._imported = {
            name: value for name, value in os.environ.items() if self._before.get(name) != value
        }

    def changed(self) -> str | None:
        return warm_gate.changed(self._files)

    # -- in the forked child -----------------------------------------------------------

    def become(self, request: dict[str, Any], tell: int) -> None:
        """Undo the spawner, put on the kernel; ends by :class:`.Unwind`, or an error."""
        argv: list[str] = request["argv"]
        module, arguments = _split(argv)
        self._refuse_shadowed()
        _close_all_but(tell)
        environment = self._environment(request["env"])
        warm_title.show(argv, environment)
        lineage.set_name(os.path.basename(argv[0]))
        os.environ.clear()
        os.environ.update(environment)
        _fit_streams()
        _renew_chance()
        _tell_parent(int(environment["JPY_PARENT_PID"]))
        os.close(tell)
        sys.argv = ["-m", *arguments]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(argv)
        if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
            sys.path.insert(0, os.getcwd())
        collects = self._collects
        self.kernel = lambda package: _run(module, package, collects)
        raise Unwind

    def _environment(self, wanted: dict[str, str]) -> dict[str, str]:
        """The request's, and what the imports would have set in it as well."""
        made = {name: v for name, v in self._imported.items() if name not in wanted}
        return {**wanted, **made}

    def _refuse_shadowed(self) -> None:
        """A module in the working folder hides an installed one: preloading would undo that."""
        if not self._preload:
            return
        for entry in os.scandir("."):
            stem = entry.name.partition(".")[0]
            if stem in self._preload or entry.name == "matplotlibrc":
                raise RuntimeError(f"{entry.name} in the working folder hides a preloaded module")


def _split(argv: list[str]) -> tuple[str, list[str]]:
    for index, part in enumerate(argv[1:], 1):
        if part == "-m":
            return argv[index + 1], argv[index + 2 :]
        if part.startswith("-m"):
            return part[2:], argv[index + 1 :]
    raise ValueError("no -m in the command")


def _close_all_but(tell: int) -> None:
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, tell)
    os.closerange(tell + 1, highest + 1)


def _fit_streams() -> None:
    """The interpreter made them for /dev/null; a terminal's are flushed at each line."""
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not stream.closed:
            stream.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]


def _renew_chance() -> None:
    """What a process draws once must not be drawn from the template.

    ``random`` renews itself in a forked child, so does OpenSSL; uuid and secrets ask the
    system each time.
    """
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "seed"):
        torch.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    logging = sys.modules.get("logging")
    started = getattr(logging, "_startTime", None)
    if started is not None:
        now = time.time_ns() if isinstance(started, int) else time.time()
        logging._startTime = now  # type: ignore[union-attr]


def _tell_parent(parent: int) -> None:
    """The trait's default was read from the environment when the template imported it.

    ipykernel's own watch of its parent is another layer, so it must have the keeper's
    number. traitlets copies plain defaults into each class of the family.
    """
    module = sys.modules.get("ipykernel.kernelapp")
    if module is None:
        return
    family = [module.IPKernelApp]
    for one in family:
        family.extend(one.__subclasses__())
        trait = one.class_traits().get(_CONNECTION_DEFAULT)
        if trait is not None:
            trait.default_value = parent
        for name in ("_static_immutable_initial_values", "_trait_values"):
            values = one.__dict__.get(name)
            if isinstance(values, dict) and _CONNECTION_DEFAULT in values:
                values[_CONNECTION_DEFAULT] = parent


def _run(module: str, package: str, collects: bool) -> None:
    """As ``python -m module``: called where no frame of the spawner is left."""
    for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
        del sys.modules[name]
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if collects:
        gc.enable()
    runpy._run_module_as_main(module)  # type: ignore[attr-defined]
