"""Private names of other packages that this one uses: each is here, and is what it is taken for.

Where an upgrade has renamed one, its test fails by that name. A use that is not listed fails
too, and so does a name in the list that nobody uses any more.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitType

import jupyter_ownedkernels

NAME = jupyter_ownedkernels.__name__
PACKAGE = Path(jupyter_ownedkernels.__file__).parent


class Coroutine:
    """A coroutine function. With ``wraps``, one that a decorator has made of another."""

    def __init__(self, wraps: bool = False) -> None:
        self.wraps = wraps

    def __call__(self, found: Any) -> bool:
        wraps = inspect.iscoroutinefunction(getattr(found, "__wrapped__", None))
        return inspect.iscoroutinefunction(found) and wraps == self.wraps


class Has:
    """A mapping with this key."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, found: Any) -> bool:
        return isinstance(found, dict) and self.key in found


def function(found: Any) -> bool:
    return callable(found) and not inspect.iscoroutinefunction(found)


def mapping(found: Any) -> bool:
    return isinstance(found, dict)


def sequence(found: Any) -> bool:
    return isinstance(found, list)


def flag(found: Any) -> bool:
    return isinstance(found, bool)


def number(found: Any) -> bool:
    return isinstance(found, (int, float))


def trait(found: Any) -> bool:
    return isinstance(found, TraitType)


def nothing_yet(found: Any) -> bool:
    return found is None


def open_or_not(found: Any) -> bool:
    """Of what other tests may have made."""
    return found is None or hasattr(found, "closed")


MANAGER = "jupyter_client.manager:KernelManager"
RESTARTER = "jupyter_client.ioloop.restarter:AsyncIOLoopKernelRestarter"
KERNELS = "jupyter_server.services.kernels.kernelmanager:AsyncMappingKernelManager"
CHANNELS = "jupyter_server.services.kernels.connection.channels:ZMQChannelsWebsocketConnection"
APPLICATION = "ipykernel.kernelapp:IPKernelApp"

# A module, then a way from there to the name; ``()`` makes an instance.
RELIED_ON: dict[str, Any] = {
    f"{MANAGER}._async_kill_kernel": Coroutine(),
    f"{MANAGER}._async_start_kernel": Coroutine(wraps=True),
    f"{MANAGER}._async_wait": Coroutine(),
    f"{MANAGER}()._connection_file_written": flag,
    f"{MANAGER}()._kernel_spec": nothing_yet,
    f"{MANAGER}()._random_port_names": nothing_yet,
    f"{MANAGER}()._attempted_start": flag,
    f"{MANAGER}()._ready": nothing_yet,
    f"{RESTARTER}()._pcallback": nothing_yet,
    f"{RESTARTER}()._restart_count": number,
    f"{RESTARTER}()._restarting": flag,
    f"{KERNELS}._add_kernel_when_ready": Coroutine(),
    f"{KERNELS}._async_restart_kernel": Coroutine(),
    f"{KERNELS}._async_shutdown_all": Coroutine(),
    f"{KERNELS}._async_shutdown_kernel": Coroutine(),
    f"{KERNELS}._check_kernel_id": function,
    f"{KERNELS}._finish_kernel_start": Coroutine(),
    f"{KERNELS}._handle_kernel_died": function,
    f"{KERNELS}()._kernel_buffers": mapping,
    f"{KERNELS}()._kernel_connections": mapping,
    f"{KERNELS}()._kernel_ports": mapping,
    f"{KERNELS}()._kernels": mapping,
    f"{KERNELS}()._pending_kernels": mapping,
    f"{CHANNELS}._close_future": trait,
    "jupyter_client.provisioning.local_provisioner:LocalProvisioner._scrub_kwargs": function,
    "jupyter_server.base.handlers:APIHandler._track_activity": flag,
    "traitlets:HasTraits()._get_trait_default_generator": function,
    f"{APPLICATION}._static_immutable_initial_values": Has("parent_handle"),
    f"{APPLICATION}()._trait_values": Has("parent_handle"),
    "prometheus_client:REGISTRY._names_to_collectors": mapping,
    "tornado.web:RequestHandler._unimplemented_method": function,
    "zmq:Context._instance": open_or_not,
    "IPython.core.history:HistoryManager._switch_to_memory_history": function,
    "argparse:_SubParsersAction": inspect.isclass,
    "argparse:ArgumentParser()._actions": sequence,
    "argparse:ArgumentParser().add_subparsers()._choices_actions": sequence,
    "asyncio:_get_running_loop": function,
    "json:__spec__._initializing": flag,
    "logging:_handlerList": sequence,
    "logging:_startTime": number,
    "re:_compiler.compile": function,
    "runpy:_run_module_as_main": function,
    "sys:_getframe": function,
    "threading:main_thread()._set_native_id": function,
}

# What exists only on instances that are not easily had: the source that sets it.
SET_IN = {
    "_activity_stream": (KERNELS, "start_watching_activity"),
    "_kernel_modules": ("ipykernel.ipkernel:IPythonKernel", "__init__"),
    "_original_stdstream_copy": ("ipykernel.iostream:OutStream", "_setup_stream_redirects"),
    "_recv_callback": ("zmq.eventloop.zmqstream:ZMQStream", "on_recv"),
}

NEW = {
    # Python 3.10 has it under another name, which is used there.
    "re:_compiler.compile": (3, 11),
    # The last IPython for Python 3.10 is older, and there it is done without.
    "IPython.core.history:HistoryManager._switch_to_memory_history": (3, 11),
}


def resolve(path: str) -> Any:
    module, _, way = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in way.split("."):
        found = getattr(found, part.removesuffix("()"))
        if part.endswith("()"):
            found = found()
    return found


@pytest.mark.parametrize("path", RELIED_ON)
def test_it_is_what_it_is_taken_for(path: str) -> None:
    if sys.version_info < NEW.get(path, ()):
        pytest.skip("of a newer Python")
    try:
        found = resolve(path)
    except AttributeError as error:
        pytest.fail(f"{path} is gone: {error}")
    assert RELIED_ON[path](found), f"{path} is {found!r}"


@pytest.mark.parametrize("name", SET_IN)
def test_it_is_still_set_there(name: str) -> None:
    owner, function_name = SET_IN[name]
    source = inspect.getsource(getattr(resolve(owner), function_name))
    assert re.search(rf"\.{name}(: [^=]+)? = ", source), f"{owner} does not set {name} any more"


def listed() -> set[str]:
    of_paths = {part for path in RELIED_ON for part in re.findall(r"(?<![A-Za-z0-9])_\w+", path)}
    return of_paths | set(SET_IN)


# -- is the list complete? ---------------------------------------------------------------


BY_STRING = ("getattr", "hasattr", "setattr")
# Makers of a trait's default. By any other name they would do the same.
OF_NO_MATTER = {"_default_event_logger", "_default_kernel_manager_class"}


def is_private(name: str) -> bool:
    return re.fullmatch(r"_[A-Za-z]\w*[A-Za-z0-9]", name) is not None


@functools.cache
def trees() -> dict[str, ast.Module]:
    paths = [path for path in PACKAGE.rglob("*.py") if "labextension" not in path.parts]
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
    }


def names_defined(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield inner.name
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            if isinstance(inner.value, ast.Name) and inner.value.id in ("self", "cls"):
                yield inner.attr
        elif isinstance(inner, ast.alias):
            yield inner.asname or inner.name
        elif isinstance(inner, ast.arg):
            yield inner.arg


def names_used(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            yield inner.attr
        elif isinstance(inner, ast.Call) and getattr(inner.func, "id", "") in BY_STRING:
            yield from strings_in(inner.args[1:2])
        elif isinstance(inner, ast.For) and isinstance(inner.iter, ast.Tuple):
            yield from strings_in(inner.iter.elts)


def strings_in(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def strangers() -> set[str]:
    """Private names that are used in this package and made nowhere in it."""
    made = {name for tree in trees().values() for name in names_defined(tree)}
    used = {name for tree in trees().values() for name in names_used(tree)}
    return {name for name in used - made if is_private(name)}


def classes() -> Iterator[type]:
    for module in pkgutil.walk_packages(jupyter_ownedkernels.__path__, f"{NAME}."):
        if module.name.startswith(f"{NAME}.runtime.") or module.name.endswith("__main__"):
            continue
        for found in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(found) and found.__module__ == module.name:
                yield found


def shared() -> set[str]:
    """Private names that a class of this package has in common with a stranger above it."""
    found = set()
    for ours in classes():
        above = [base for base in ours.__mro__ if base.__module__.split(".")[0] != NAME]
        sources = [
            inspect.getsource(base)
            for base in above
            if base.__module__.split(".")[0] not in sys.stdlib_module_names
        ]
        own = ast.parse(textwrap.dedent(inspect.getsource(ours)))
        words = {name for name in (*names_defined(own), *names_used(own)) if is_private(name)}
        found |= {name for name in words if any(re.search(rf"\b{name}\b", s) for s in sources)}
    return found


def test_all_that_are_used_are_listed() -> None:
    assert sorted((strangers() | shared()) - listed() - OF_NO_MATTER) == []


def test_all_that_are_listed_are_used() -> None:
    used = {name for tree in trees().values() for name in names_used(tree)}
    defined = {name for tree in trees().values() for name in names_defined(tree)}
    assert sorted(listed() - used - defined) == []
