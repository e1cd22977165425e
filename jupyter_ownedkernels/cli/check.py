"""``jupyter ownedkernels check``: kill a server for real and see what is left.

Starts a Jupyter server and kernels of several kinds in a folder of its own, sends
SIGKILL to the server, and measures when each kernel and all that it started is gone.
Whatever should stay is ended by the check itself, by proof of identity.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import queue
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..launching import layers
from ..runtime import procfs
from ..runtime.retire import Retirement, Target, is_running
from ..runtime.retire import run as run_retirement
from ..runtime.tree import kernel_process
from .check_server import START_TIMEOUT, Server, is_free
from .output import takes_control_codes

# A stock kernel looks at its parent once a second; what is there after this stays.
_PATIENCE = 5.0
_ENDING = (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)
_CHILDREN = """
import subprocess
started = [subprocess.Popen(["sleep", "600"]), subprocess.Popen(["sleep", "600"], process_group=0)
           if __import__("sys").version_info >= (3, 11) else subprocess.Popen(["sleep", "600"])]
"""
# The file says when: a kernel that holds the GIL can send no message any more.
_HOLD_GIL = "import ctypes; open({busy!r}, 'w').close(); ctypes.PyDLL(None).sleep(600)"


@dataclass(frozen=True)
class Kind:
    """One kind of kernel to try: its kernelspec, and the cell that is run in it."""

    name: str
    spec: str
    cell: str
    replies: bool = True
    """False for a cell that keeps the kernel from ever replying."""


KINDS = (
    Kind("idle", "python3", "1"),
    Kind("with child processes", "python3", _CHILDREN),
    Kind("behind a shell wrapper", "check-wrapper", "1"),
    Kind("busy in C, GIL held", "python3", _HOLD_GIL, replies=False),
)


@dataclass
class Tried:
    """What became of one kind."""

    kind: str
    processes: int = 0
    """Those that were seen before the server was killed."""
    gone_ms: float | None = None
    """Until the last of them was gone; None while one is there, or where none was seen."""
    left: list[str] = field(default_factory=list)
    connection_file_removed: bool = False


@dataclass
class Outcome:
    """What the check found; printed as a table or as JSON."""

    version: str
    python: str
    system: str
    mode: str
    reason: str
    layers: list[dict[str, Any]]
    tried: list[Tried]
    port_free: bool

    @property
    def something_stayed(self) -> bool:
        return any(one.left or not one.connection_file_removed for one in self.tried)

    @property
    def ok(self) -> bool:
        """Whether everything was seen to go. What was not seen proves nothing."""
        all_gone = all(one.gone_ms is not None for one in self.tried)
        return bool(self.tried) and all_gone and not self.something_stayed

    @property
    def status(self) -> int:
        return 0 if self.ok else 1 if self.something_stayed else 2


def _start(server: Server, kind: Kind) -> Path:
    """Start one kernel; the answer is its connection file."""
    kernel_id = server.ask("api/kernels", {"name": kind.spec})["id"]
    return Path(os.path.realpath(server.runtime_dir / f"kernel-{kernel_id}.json"))


def _run_cell(kind: Kind, path: Path) -> None:
    from jupyter_client.blocking.client import BlockingKernelClient

    client = BlockingKernelClient(connection_file=str(path))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=START_TIMEOUT)
        if kind.replies:
            client.execute_interactive(kind.cell, timeout=START_TIMEOUT, silent=True)
        else:
            busy = path.with_name(f"busy-{path.stem}")
            client.execute(kind.cell.format(busy=str(busy)), silent=True)
            _wait_for(busy)
    finally:
        client.stop_channels()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("a kernel did not run its cell in time")
        time.sleep(0.005)


def _tree(server_pid: int, connection_file: Path) -> list[procfs.Stat]:
    """The kernel, the wrappers above it up to its keeper or the server, and all below."""
    below_server = procfs.descendants(server_pid)
    kernel = kernel_process(below_server, str(connection_file))
    top = kernel or _bearing(below_server, str(connection_file))
    if top is None:
        return []
    while True:
        above = below_server.get(top.ppid)
        if above is None or above.name.startswith("kernel-keeper"):
            break
        top = above
    return [top, *procfs.descendants(top.pid).values()]


def _bearing(processes: dict[int, procfs.Stat], path: str) -> procfs.Stat | None:
    for pid, entry in processes.items():
        if any(path in part for part in procfs.cmdline(pid) or ()):
            return entry
    return None


def _watch(trees: dict[str, list[procfs.Stat]], since: float) -> Iterator[tuple[str, float]]:
    """The kinds, each with the milliseconds after which nothing of it was left."""
    waiting = {
        name: {Target(entry.pid, entry.start_ticks) for entry in tree}
        for name, tree in trees.items()
        if tree
    }
    while waiting and time.monotonic() - since < _PATIENCE:
        for name, targets in list(waiting.items()):
            targets -= {target for target in targets if not is_running(target)}
            if not targets:
                del waiting[name]
                yield name, (time.monotonic() - since) * 1000
        time.sleep(0.0005)


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Who ends a check by a signal, or closes its terminal, is to be left nothing either."""

    def leave(signum: int, frame: object) -> NoReturn:
        sys.exit(128 + signum)

    # One that is ignored stays so: nohup means it.
    wanted = [one for one in _ENDING if signal.getsignal(one) is signal.SIG_DFL]
    for signum in wanted:
        signal.signal(signum, leave)
    try:
        yield
    finally:
        for signum in wanted:
            signal.signal(signum, signal.SIG_DFL)


def examine(say: Any = lambda text: None) -> Outcome:
    """Do it. ``say`` is told, in words, what is going on."""
    folder = Path(tempfile.mkdtemp(prefix="ownedkernels-check-"))
    trees: dict[str, list[procfs.Stat]] = {}
    server: Server | None = None
    try:
        say("Starting a Jupyter server ...")
        server = Server(folder)
        health = server.ask("api/ownedkernels/health")
        files = {}
        # Nothing is started that could not be ended for certain.
        for kind in KINDS if procfs.stat(os.getpid()) else ():
            say(f"Starting a kernel: {kind.name} ...")
            files[kind.name] = path = _start(server, kind)
            trees[kind.name] = _tree(server.process.pid, path)
            try:
                _run_cell(kind, path)
            finally:
                trees[kind.name] = _tree(server.process.pid, path) or trees[kind.name]
        tried = {name: Tried(name, len(tree)) for name, tree in trees.items()}
        say("Killing the server ...")
        killed_at = time.monotonic()
        server.process.kill()
        for name, milliseconds in _watch(trees, killed_at):
            tried[name].gone_ms = round(milliseconds, 1)
        server.process.wait()
        for name, tree in trees.items():
            tried[name].left = [_name(entry) for entry in tree if is_running(_target(entry))]
            tried[name].connection_file_removed = _is_removed(files[name])
        return Outcome(
            version=__version__,
            python=platform.python_version(),
            system=platform.platform(),
            mode=health["mode"],
            reason=health["reason"],
            layers=[asdict(layer) for layer in layers.survey()],
            tried=list(tried.values()),
            port_free=is_free(server.port),
        )
    finally:
        _clear(server, trees)
        shutil.rmtree(folder, ignore_errors=True)


def _is_removed(path: Path) -> bool:
    """The file goes after the processes, so it may take a moment longer."""
    deadline = time.monotonic() + 1.0
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    return not path.exists()


def _target(entry: procfs.Stat) -> Target:
    return Target(entry.pid, entry.start_ticks)


def _name(entry: procfs.Stat) -> str:
    return f"{entry.name} (pid {entry.pid})"


def _clear(server: Server | None, trees: dict[str, list[procfs.Stat]]) -> None:
    started = [entry for tree in trees.values() for entry in tree]
    if server is not None and server.process.poll() is None:
        # Nothing but what the check has begun, a start that came to nothing included.
        started += procfs.descendants(server.process.pid).values()
        server.process.kill()
        server.process.wait()

    def left() -> list[procfs.Stat]:
        return [entry for entry in started if is_running(_target(entry))]

    if left():
        run_retirement(Retirement(left, 0.5, 3.0))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Body of the subcommand. 0: everything was gone; 1: something stayed; 2: not to be told."""
    progress = takes_control_codes(sys.stderr) and not args.json

    def say(text: str) -> None:
        if progress:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    try:
        with _ending_in_order():
            outcome = examine(say)
    except (RuntimeError, OSError, queue.Empty) as error:
        say("")
        reason = str(error) or "a kernel did not answer in time"
        print(f"jupyter ownedkernels check: {reason}", file=sys.stderr)
        return 2
    say("")
    if args.json:
        print(json.dumps({**asdict(outcome), "ok": outcome.ok}, indent=2))
    else:
        print(_table(outcome))
    return outcome.status


def _table(outcome: Outcome) -> str:
    lines = [
        f"jupyter_ownedkernels {outcome.version}, Python {outcome.python}, {outcome.system}",
        f"Mode: {outcome.mode} ({outcome.reason})",
        "",
        "Layers on this machine",
    ]
    lines += [
        f"  {layer['name']:<11}{'yes' if layer['active'] else 'NO':<5}{layer['why']}"
        for layer in outcome.layers
    ]
    if outcome.tried:
        lines += ["", "The server was killed with SIGKILL. Gone after:"]
    for one in outcome.tried:
        if one.gone_ms is not None:
            text = f"{one.gone_ms:7.1f} ms  {one.processes} process{'es' * (one.processes > 1)}"
        elif not one.processes:
            text = "NOT SEEN    its processes were not found"
        else:
            text = f"STAYED      {', '.join(one.left)}"
        file = "" if one.connection_file_removed else ", connection file left"
        lines.append(f"  {one.kind:<24}{text}{file}")
    verdict = (
        "Nothing outlived the server.",
        "Something outlived the server.",
        "It cannot be told here what outlives a server: processes are not seen.",
    )
    return "\n".join([*lines, "", verdict[outcome.status]])
