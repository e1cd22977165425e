"""Entry point of a warm spawner, run by path in the kernel's own interpreter.

``python [flags of the kernelspec] start.py CONTROL_FD OWNER_PIDFD PLAN``

A forked kernel comes back to this file, with every frame of spawner and keeper gone,
and goes on as ``python -m`` would. Nothing of this package stays importable in it: the
modules live under a name of their own and leave ``sys.modules`` before the kernel runs.
"""

import sys

AT_START = frozenset(sys.modules)

import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import runpy  # noqa: E402
import types  # noqa: E402

PACKAGE = "_ownedkernels_runtime"


def _load(folder: str) -> types.ModuleType:
    """Make the folder above this one a package, without a place on sys.path."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    return importlib.import_module(PACKAGE + ".warm.spawner")


if __name__ == "__main__":
    _here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == _here:
        del sys.path[0]
    # A kernel keeps no trace of it: whether byte code is written is the flags' business,
    # but in the package's own folder another interpreter must not leave files.
    _writes = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    _warm = _load(os.path.dirname(_here))
    sys.dont_write_bytecode = _writes
    _kernel = _warm.main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), AT_START)
    if _kernel is not None:
        # One frame below the kernel's own; an executed one has none.
        runpy._run_module_as_main(_kernel())  # type: ignore[attr-defined]
