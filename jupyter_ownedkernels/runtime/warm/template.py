"""From fork to kernel without exec: what ``python -m`` would have set up, in a forked child."""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import gc
import importlib.machinery
import os
import re
import socket
import sys
import time
import types
import warnings
from typing import Any, Callable

from .. import inherited, lineage, wire
from ..child import Unwind
from . import gate, title
from .leftovers import PYTHONS_OWN, Leftovers, settle
from .needs import Needs
from .rehearsal import Rehearsal, rehearse
from .shelf import Shelf
from .standby import Standby
from .turns import end_with_boot

_PARENT = "parent_handle"
_INLINE = "module://matplotlib_inline.backend_inline"


class Template:
    """What the template was before and after its imports, and how a child leaves it."""

    def __init__(self, at_start: frozenset[str]) -> None:
        self._machinery = [name for name in sys.modules if name not in at_start]
        self._collects = gc.isenabled()
        self._before = dict(os.environ)
        self._imported: dict[str, str] = {}
        self._files: dict[str, tuple[int, int, int]] = {}
        self._looked_at = float("-inf")
        self._preload: set[str] = set()
        self._shelved: list[str] = []
        self._late: list[str] = []
        self._needs = Needs()
        self._leftovers = Leftovers()
        self._given = inherited.of_this_thread() or {}
        self._foreign: list[str] = []
        self._own: list[str] = []
        self._shelf = Shelf((), (), self._needs, self._leftovers.bring_back)
        self.kernel: Callable[[], str] | None = None
        """In a forked child: makes it the kernel, and answers the module to run."""

    def rehearse(self, owner: socket.socket) -> Rehearsal | None:
        """Learn what a kernel imports; None when the owner has ended meanwhile."""
        return rehearse(self._machinery, owner)

    def import_base(self, rehearsal: Rehearsal) -> str | None:
        """Import what a kernel has; the reason if that is not known.

        What only this process needs, and a kernel has not, is taken out of each child.
        """
        self._foreign = rehearsal.unneeded
        with self._needs:
            for name in rehearsal.modules:
                # Where it fails a child imports it when it needs it, and shows the error.
                with contextlib.suppress(Exception):
                    self._needs.load(name)
        self._late = rehearsal.late
        for pattern, flags in rehearsal.patterns:
            # Into the cache of :mod:`re`, where each kernel finds it.
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(pattern, flags)
        return rehearsal.reason

    def import_preload(self, names: list[str]) -> list[str]:
        """Import what the user named. Answers what could not be, with the reason."""
        troubles = []
        self._leftovers = Leftovers()
        # A kernel sets it before a cell can import matplotlib, which reads it only then.
        os.environ.setdefault("MPLBACKEND", _INLINE)
        for name in names:
            before = set(sys.modules)
            try:
                with self._needs:
                    self._needs.load(name)
            except BaseException as error:
                troubles.append(f"{name}: {type(error).__name__}: {error}")
            # What it had brought before it failed, too.
            made = [new for new in sys.modules if new not in before]
            self._shelved += made
            self._leftovers.put_away(made)
        self._preload = {name.partition(".")[0] for name in self._shelved} - PYTHONS_OWN
        # What this process has for itself and they hold: there must be no second one of it.
        needed = {need for name in self._shelved for need in self._needs.of(name)}
        self._shelved += [name for name in self._foreign if name in needed]
        self._foreign = [name for name in self._foreign if name not in needed]
        if os.environ["MPLBACKEND"] == _INLINE and "MPLBACKEND" not in self._before:
            del os.environ["MPLBACKEND"]
        return troubles

    def freeze(self, package: str) -> None:
        """All imports are made: put the house in the order in which kernels are to find it.

        What is done here need not be done in each of them. ``package`` is the spawner's own.
        """
        self._files = gate.known_files()
        self._imported = {
            name: value for name, value in os.environ.items() if self._before.get(name) != value
        }
        self._own = [n for n in sys.modules if n == package or n.startswith(package + ".")]
        self._own += self._foreign
        self._shelf = Shelf(self._shelved, self._late, self._needs, self._leftovers.bring_back)

    @property
    def welcomes(self) -> bool:
        """Whether kernels send a welcome to each new subscription, as ipykernel does since 7.2."""
        version = getattr(sys.modules.get("ipykernel"), "version_info", ())
        return bool(version[:2] >= (7, 2))

    def changed(self, since: float = 0.0) -> str | None:
        """A file that is not what it was at the import; None when there is none.

        A look takes 2 to 5 ms. One within the last ``since`` seconds that found nothing serves.
        """
        if time.monotonic() - self._looked_at < since:
            return None
        found = gate.changed(self._files)
        if found is None:
            self._looked_at = time.monotonic()
        return found

    # -- in the forked child -----------------------------------------------------------

    def become(self, request: dict[str, Any], tell: int) -> None:
        """Undo the spawner, put on the kernel; ends by :class:`.Unwind`, or an error."""
        argv: list[str] = request["argv"]
        module, arguments = _split(argv)
        self._refuse_shadowed()
        self._refuse_other_sizes(request.get("inherited"))
        channel: int | None = request.get("channel")
        if channel is not None:
            # The frames that are unwound close all numbers that came with the request; it
            # came last, so the others are lower.
            channel = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, channel + 1)
        turn: int = request["turn"]
        _close_all_but({tell, turn} if channel is None else {tell, turn, channel})
        environment = self._environment(request["env"])
        title.show(argv, environment)
        lineage.set_name(os.path.basename(argv[0]))
        os.environ.clear()
        os.environ.update(environment)
        _fit_streams()
        _renew_thread()
        _renew_chance(self._shelf)
        settle(os.getcwd())
        _tell_parent(int(environment["JPY_PARENT_PID"]))
        sys.argv = ["-m", *arguments]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(argv)
        end_with_boot(turn)
        if channel is not None:
            given = request["env"]
            Standby(channel, given, self.changed, self._refuse_shadowed).arrange()
        if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
            sys.path.insert(0, os.getcwd())
        self.kernel = lambda: self._undress(module)
        # Not before: what fails up to here is told, and the kernel is executed.
        os.close(tell)
        raise Unwind

    def _undress(self, module: str) -> str:
        """Called where no frame of the spawner is left: only the kernel's things stay."""
        for name in self._own:
            sys.modules.pop(name, None)
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        if self._collects:
            gc.enable()
        return module

    def _environment(self, wanted: dict[str, str]) -> dict[str, str]:
        """The request's, and what the imports would have set in it as well."""
        made = {name: v for name, v in self._imported.items() if name not in wanted}
        return {**wanted, **made}

    def _refuse_shadowed(self) -> None:
        """A module in the working folder hides an installed one: preloading would undo that."""
        if not self._preload:
            return
        for entry in os.scandir("."):
            hidden = _module_of(entry) if entry.name != "matplotlibrc" else "matplotlib"
            if hidden in self._preload:
                raise RuntimeError(f"{entry.name} in the working folder hides a preloaded module")

    def _refuse_other_sizes(self, wanted: dict[str, Any] | None) -> None:
        """What is read once and cannot be told anew to what is there already.

        The C library takes the size of threads' stacks from the limit of the first one, when a
        program starts. OpenMP and OpenBLAS count the processors when they are loaded.
        """
        if not wanted or not self._given:
            return
        now, then = (one["limits"]["RLIMIT_STACK"][0] for one in (wanted, self._given))
        if now != then:
            raise RuntimeError("the limit of the stack is another than the warm spawner's")
        if self._preload and wanted["processors"] != self._given["processors"]:
            raise RuntimeError("the processors are others than the warm spawner's")


def _module_of(entry: os.DirEntry[str]) -> str | None:
    """The name of the module that can be imported from a file or folder, if it is one.

    A folder without ``__init__`` hides nothing.
    """
    for suffix in importlib.machinery.all_suffixes():
        if entry.name.endswith(suffix):
            return entry.name.partition(".")[0]
    if not entry.is_dir() or not entry.name.isidentifier():
        return None
    inside = (os.path.join(entry.path, "__init__" + s) for s in importlib.machinery.all_suffixes())
    return entry.name if any(map(os.path.exists, inside)) else None


def _split(argv: list[str]) -> tuple[str, list[str]]:
    for index, part in enumerate(argv[1:], 1):
        if part == "-m":
            return argv[index + 1], argv[index + 2 :]
        if part.startswith("-m"):
            return part[2:], argv[index + 1 :]
    raise ValueError("no -m in the command")


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            wire.close([int(name)])


def _fit_streams() -> None:
    """The interpreter made them for /dev/null; a terminal's are flushed at each line."""
    streams: list[Any] = [sys.stdout, sys.__stdout__]
    for stream in streams:
        # With -u they have no buffer at all.
        if stream is not None and not stream.closed and not stream.write_through:
            stream.reconfigure(line_buffering=os.isatty(1))


def _renew_thread() -> None:
    """Python does not tell the main thread of a forked process the system's number for it.

    matplotlib compares it to see whether a window is opened where it must be.
    """
    threading: Any = sys.modules.get("threading")
    tell = getattr(threading and threading.main_thread(), "_set_native_id", None)
    if tell is not None:
        tell()


def _renew_chance(shelf: Shelf) -> None:
    """What a process draws once must not be drawn from the template.

    ``random`` renews itself in a forked child, so does OpenSSL; uuid and secrets ask the
    system each time.
    """
    numpy = shelf.module("numpy.random")
    if numpy is not None:
        numpy.seed()
    # Of the processor only: torch.seed() would leave a seed for CUDA to be found at its start.
    torch = getattr(shelf.module("torch"), "default_generator", None)
    if torch is not None:
        torch.seed()
    process = shelf.module("multiprocessing.process")
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
        trait = one.class_traits().get(_PARENT)
        if trait is not None:
            trait.default_value = parent
        for name in ("_static_immutable_initial_values", "_trait_values"):
            values = one.__dict__.get(name)
            if isinstance(values, dict) and _PARENT in values:
                values[_PARENT] = parent
