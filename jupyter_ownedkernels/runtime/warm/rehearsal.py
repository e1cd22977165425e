"""Learning what a booted kernel has imported, by booting one that nobody will use.

A forked child of the still empty template starts ipykernel on a throw-away connection
file (Unix sockets, in a private folder), runs one cell of its own, and reports the
names of all modules in the order in which their import began: imported in that order
they pull each other in as they did in a kernel. Profile, startup files and
configuration of the user are left out: nothing of the user's runs twice.

It also reports the regular expressions that functions have compiled. Those of Python's
tokenizer and of IPython take 4 ms, half of it before the first cell is run.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from typing import Any, NamedTuple

from .. import PORT_NAMES, lineage, waiting

TIMEOUT = 60.0
# The reply to the cell leaves in another thread, which may still have to import.
_AFTERGLOW = 0.05
_CELL = "print(1)\n1"


class Rehearsal(NamedTuple):
    """What a kernel imports; ``reason`` says why nothing was learnt.

    ``late`` is the part of ``modules`` that comes after the kernel object was made;
    ``unneeded`` are those of the spawner's own that a kernel has not; ``patterns`` are
    regular expressions with their flags.
    """

    modules: list[str]
    late: list[str]
    unneeded: list[str]
    patterns: list[tuple[str, int]]
    reason: str | None = None


def _nothing(reason: str) -> Rehearsal:
    return Rehearsal([], [], [], [], reason)


class _Recorder:
    """First on sys.meta_path: sees each import begin, and finds nothing."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.names.append(name)


class _Patterns:
    """Notes what :mod:`re` compiles for functions; a module's own come with its import."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        # Not this file's own: the kernel has imported it anew.
        module: Any = importlib.import_module("re")
        # Python 3.11 gave it another name.
        compiler: Any = getattr(module, "_compiler", None) or module.sre_compile
        self._compile = compiler.compile
        compiler.compile = self._note

    def _note(self, pattern: Any, flags: int = 0) -> Any:
        caller: Any = sys._getframe(1)
        while caller.f_globals.get("__name__") == "re":
            caller = caller.f_back
        if isinstance(pattern, str) and caller.f_code.co_name != "<module>":
            self.found.append((pattern, int(flags)))
        return self._compile(pattern, flags)


def rehearse(
    unload: list[str], owner: socket.socket | None = None, timeout: float = TIMEOUT
) -> Rehearsal | None:
    """Boot a kernel in a child, which is gone when this returns, as are its files.

    ``unload`` names the modules that are there for the spawner's own sake: the child
    forgets them, so that it sees which of them a kernel imports as well. The answer is
    None when the owner, at the other end of the socket, has ended meanwhile.
    """
    try:
        folder = tempfile.mkdtemp(prefix="ownedkernels-")
    except OSError as error:
        return _nothing(f"no room for a rehearsal: {error}")
    reader, writer = os.pipe()
    template = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _boot(template, folder, writer, unload)
        except BaseException as error:
            os.write(writer, json.dumps({"error": repr(error)[:500]}).encode("ascii"))
        finally:
            os._exit(1)
    os.close(writer)
    poller = select.poll()
    if owner is not None:
        poller.register(owner, 0)
    try:
        told = waiting.read_all(reader, poller, timeout)
    finally:
        # A child of ours that is not reaped yet: nobody else can have its number.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        shutil.rmtree(folder, ignore_errors=True)
    if told is None:
        return None
    try:
        answer = json.loads(told)
    except ValueError:
        return _nothing("the rehearsal did not come to its end")
    if "error" in answer:
        return _nothing("the rehearsal failed: {}".format(answer["error"]))
    patterns = [(pattern, flags) for pattern, flags in answer["patterns"]]
    return Rehearsal(answer["modules"], answer["late"], answer["unneeded"], patterns)


def _connection_file(folder: str) -> str:
    content: dict[str, Any] = {name: number for number, name in enumerate(PORT_NAMES, 1)}
    content.update(
        transport="ipc",
        ip=os.path.join(folder, "s"),
        key=os.urandom(16).hex(),
        signature_scheme="hmac-sha256",
    )
    path = os.path.join(folder, "kernel.json")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(content, stream)
    return path


def _boot(template: int, folder: str, writer: int, unload: list[str]) -> None:
    os.setsid()
    lineage.die_with_parent()
    if os.getppid() != template:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(IPYTHONDIR=folder, JPY_PARENT_PID=str(template))
    sys.argv = ["-m", "-f", _connection_file(folder)]
    recorder = _Recorder()
    sys.meta_path.insert(0, recorder)
    for name in unload:
        sys.modules.pop(name, None)
    patterns = _Patterns()

    import ipykernel.kernelapp

    # A kernel on TCP looks for the addresses of the machine, with psutil. This one is on
    # Unix sockets, and would need no port for it.
    with contextlib.suppress(Exception):
        importlib.import_module("jupyter_client.localinterfaces").localhost()
    application: Any = ipykernel.kernelapp.IPKernelApp
    application.load_config_file = lambda self, *args, **kwargs: None
    start = application.start

    def rehearsing(app: Any) -> None:
        _run_a_cell(app, lambda: _report(app, recorder.names, unload, patterns.found, writer))
        start(app)

    application.start = rehearsing
    importlib.import_module("runpy").run_module(
        "ipykernel_launcher", run_name="__main__", alter_sys=True
    )


def _run_a_cell(app: Any, then: Any) -> None:
    import zmq
    from tornado.ioloop import IOLoop

    loop: Any = IOLoop.current()
    client = zmq.Context().socket(zmq.DEALER)
    client.connect(f"{app.transport}://{app.ip}-{app.shell_port}")
    content = {
        "code": _CELL,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": True,
    }
    app.session.send(client, "kernel_info_request", content={})
    app.session.send(client, "execute_request", content=content)
    app.shell.events.register("post_execute", lambda: loop.call_later(_AFTERGLOW, then))


def _report(
    app: Any,
    recorded: list[str],
    unload: list[str],
    patterns: list[tuple[str, int]],
    writer: int,
) -> None:
    names = [name for name in dict.fromkeys(recorded) if name in sys.modules]
    told = {
        "modules": names,
        "late": _late(app, names),
        "unneeded": [name for name in unload if name not in sys.modules],
        "patterns": list(dict.fromkeys(patterns)),
    }
    answer = json.dumps(told).encode("ascii")
    while answer:
        answer = answer[os.write(writer, answer) :]
    os._exit(0)


def _late(app: Any, names: list[str]) -> list[str]:
    """From the first module on whose file the kernel object did not see when it was made."""
    seen = getattr(app.kernel, "_kernel_modules", None)
    if not seen or "ipykernel.debugger" not in names:
        return []
    known = frozenset(seen)
    for index in range(names.index("ipykernel.debugger"), len(names)):
        path = getattr(sys.modules[names[index]], "__file__", None)
        if path and path not in known:
            return names[index:]
    return []
