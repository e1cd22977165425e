"""What a template must be for its forks to be sound: looked up, not assumed."""

from __future__ import annotations

import importlib.machinery
import os
import stat
import sys
import threading

# Shared by every process, without state of its own.
_HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
_STAMP = dict[str, tuple[int, int, int]]
_PACKAGES = ("site-packages", "dist-packages")
_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")


def objection(expected: set[int]) -> str | None:
    """Why this process must not be forked into a kernel now; None when it may.

    ``expected`` are the descriptors that belong to spawner and launch; the three
    standard ones and harmless devices are always allowed.
    """
    tasks = os.listdir("/proc/self/task")
    if len(tasks) != 1 or threading.active_count() != 1:
        return f"the template has {max(len(tasks), threading.active_count())} threads"
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd <= 2 or fd in expected:
            continue
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the descriptor of this very listing
        if target not in _HARMLESS:
            return f"the template has {target} open"
    zmq = sys.modules.get("zmq.sugar.context")
    context = getattr(getattr(zmq, "Context", None), "_instance", None)
    if context is not None and not context.closed:
        return "the template has a ZeroMQ context"
    asyncio = sys.modules.get("asyncio.events")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return "the template has an event loop"
    return None


def not_ipykernel(module: str) -> str | None:
    """Why ``python -m module`` cannot be started from a booted ipykernel; None when it can.

    Looked up in the source, since importing a stranger's package here, or running it,
    is not ours to do.
    """
    if module in ("ipykernel_launcher", "ipykernel"):
        return None
    path, spec = None, None
    for part in module.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return f"no module {module}"
        path = list(spec.submodule_search_locations or [])
    sources = [os.path.join(folder, "__main__.py") for folder in path or []]
    if not sources and spec is not None and spec.origin:
        sources = [spec.origin]
    for source in sources:
        try:
            with open(source, encoding="utf-8", errors="replace") as stream:
                text = stream.read(100_000)
        except OSError:
            continue
        if "ipykernel" in text or "IPKernelApp" in text:
            return None
    return f"{module} is not seen to be built on ipykernel"


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return status.st_mtime_ns, status.st_ino, size


def known_files() -> _STAMP:
    """Everything that was imported from a file, and the folders of installed packages.

    Of Python's own library the folders instead of the files, two fifths of the time: nobody
    edits it in place, and an upgrade puts new files there. Folders of the user's own on
    sys.path are left out: they change with every save.
    """
    paths = {sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")}
    paths.update(p for p in sys.path if os.path.basename(p) in _PACKAGES)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            paths.add(os.path.dirname(path) if _is_pythons_own(path) else path)
    # Side by side: those of the modules lie on hundreds of pages, and whoever looks at them in a
    # forked process gets each of these for its own (1.4 of 3.6 ms).
    names = "\0".join(sorted(paths)).split("\0")
    stamps = ((path, _stamp(path)) for path in names)
    return {path: stamp for path, stamp in stamps if stamp is not None}


def _is_pythons_own(path: str) -> bool:
    return path.startswith(_LIBRARY) and not any(
        f"{os.sep}{name}{os.sep}" in path for name in _PACKAGES
    )


def changed(known: _STAMP) -> str | None:
    """The first file that is not what it was; None when all are. 2 ms for 1000."""
    for path, stamp in known.items():
        if _stamp(path) != stamp:
            return path
    return None
