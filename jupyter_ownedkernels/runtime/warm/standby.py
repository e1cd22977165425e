"""A standby kernel: booted up to the point before user code, waiting for its place.

It has bound its ports, its threads run, its shell exists. It has not read any code of the
user (a configuration file in Python counts as such, and makes it unfit), has no folder, no
connection file, no session in the history. All that, and the environment of its own, comes
with the claim; then it goes on where an executed kernel would be at that moment.

The claim travels on a socket pair of its own between owner and kernel:

Kernel to owner
    ``standby``   ``ports``: by the names of the connection file
    ``claimed``   it has become that kernel
    ``unfit``     ``reason``; it ends itself
Owner to kernel
    ``boot``      ``ports``: by the names of the connection file. Sent before it is started
    ``expect``    a claim may be about to come: it looks at the files that must be unchanged
    ``reserved``  a claim is about to come, within ``seconds``
    ``claim``     ``argv``, ``env``, ``cwd``, ``umask``, ``connection_file``; the three streams
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from .. import PORT_NAMES, wire
from . import title
from .leftovers import settle

_CONFIG_SUFFIXES = (".py", ".json")
# Seconds. A claim follows its reservation within 10 ms.
_LOOK_HOLDS_FOR = 0.25


class Unfit(Exception):
    """Why it cannot be the kernel that is wanted; nobody has talked to it yet."""


class Standby:
    """Holds one application back, and lets it go on as the kernel that is claimed."""

    def __init__(
        self,
        channel: int,
        given: Mapping[str, str],
        changed: Callable[[], str | None],
        refuse_folder: Callable[[], None],
    ) -> None:
        self._channel = socket.socket(fileno=channel)
        self._given = dict(given)
        self._folder = os.getcwd()
        self._entries = sys.path.count(self._folder)
        self._changed = changed
        self._refuse_folder = refuse_folder
        self._undo: list[Callable[[], None]] = [_first_to_go()]
        self._claimed = False
        self._looked_at = float("-inf")

    def arrange(self) -> None:
        """Called in the forked child, before the kernel's module runs."""
        application: Any = sys.modules["ipykernel.kernelapp"].IPKernelApp
        history: Any = sys.modules["IPython.core.history"].HistoryManager
        go_on = application.init_gui_pylab
        start = application.start

        def hold(app: Any) -> None:
            self._hold(app)
            go_on(app)

        def never_unclaimed(app: Any) -> None:
            if not self._claimed:
                os._exit(1)
            start(app)

        self._replace(application, "init_connection_file", lambda app: self._take_ports(app))
        self._replace(application, "write_connection_file", lambda app, **kwargs: None)
        self._replace(history, "new_session", lambda manager, conn=None: None)
        self._replace(application, "init_gui_pylab", hold)
        self._replace(application, "start", never_unclaimed)

    def _take_ports(self, app: Any) -> None:
        """The owner's choice: it knows which ports are promised to kernels that start."""
        order, _ = wire.receive(self._channel)
        for name in PORT_NAMES:
            setattr(app, name, order["ports"][name])

    def _replace(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        inherited = name not in owner.__dict__
        before = getattr(owner, name)

        def undo() -> None:
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, function)
        self._undo.append(undo)

    def _hold(self, app: Any) -> None:
        try:
            self._refuse_user_code(app)
            # Also so that what a look needs of memory is this process's own by then.
            self._refuse_changes()
            ports = {name: getattr(app, name) for name in PORT_NAMES}
            wire.send(self._channel, {"op": "standby", "ports": ports})
            claim, fds = self._next_order(app)
            while claim["op"] != "claim":
                wire.close(fds)
                if claim["op"] == "reserved":
                    # Nobody comes when the start is cancelled or fails before its launch.
                    self._channel.settimeout(claim["seconds"])
                claim, fds = self._next_order(app)
            for undo in self._undo:
                undo()
            self._take_place(app, claim, fds, ports)
        except wire.Closed:
            os._exit(0)
        except BaseException as error:
            try:
                reason = str(error) or type(error).__name__
                wire.send(self._channel, {"op": "unfit", "reason": reason})
            finally:
                os._exit(0)
        self._claimed = True
        wire.send(self._channel, {"op": "claimed"})
        self._channel.close()
        # Nothing of this fails, or is seen before code runs: the owner need not wait for it.
        self._dress(app, claim["argv"], claim["env"])
        _begin_history(app.kernel.shell.history_manager)

    def _next_order(self, app: Any) -> tuple[dict[str, Any], list[int]]:
        """Of the owner; with it every reason is gone through not to become a kernel now."""
        order, fds = wire.receive(self._channel)
        self._refuse_user_code(app)
        if time.monotonic() - self._looked_at > _LOOK_HOLDS_FOR:
            self._refuse_changes()
            self._looked_at = time.monotonic()
        return order, fds

    def _refuse_changes(self) -> None:
        if self._changed() is not None:
            raise Unfit("files of the interpreter or its packages were changed")

    def _refuse_user_code(self, app: Any) -> None:
        for folder in app.config_file_paths:
            for name in ("ipython_config", os.path.splitext(app.config_file_name)[0]):
                for suffix in _CONFIG_SUFFIXES:
                    path = os.path.join(folder, name + suffix)
                    if os.path.exists(path):
                        raise Unfit(f"{path} is to be read where the kernel starts")

    def _take_place(
        self, app: Any, claim: dict[str, Any], fds: list[int], ports: dict[str, int]
    ) -> None:
        """What may turn out not to be possible, and what is looked for from now on.

        Clients need the key, and the keeper finds the kernel by the connection file it shows.
        """
        self._move(claim["cwd"])
        if claim["umask"] is not None:
            os.umask(claim["umask"])
        _take_streams(fds)
        _refuse_impossible(claim["env"])
        claim["env"]["JPY_PARENT_PID"] = str(os.getppid())
        title.show(claim["argv"], claim["env"])
        _take_connection(app, claim["connection_file"], ports)

    def _dress(self, app: Any, argv: list[str], environment: dict[str, str]) -> None:
        # The boot itself sets some, such as PAGER and TERM.
        made = {name: v for name, v in os.environ.items() if self._given.get(name) != v}
        os.environ.clear()
        os.environ.update({**environment, **made})
        sys.argv[1:] = argv[len(argv) - len(sys.argv) + 1 :]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(argv)
        _take_folder(app.kernel.shell)
        name = environment.get("JPY_SESSION_NAME")
        if name:
            app.kernel.shell.user_ns["__session__"] = name

    def _move(self, folder: str | None) -> None:
        if folder is not None:
            os.chdir(folder)
        self._refuse_folder()
        # Where ``python -m`` has put it, unless the kernel's module took it out.
        if sys.path.count(self._folder) > self._entries:
            sys.path[sys.path.index(self._folder)] = os.getcwd()


def _refuse_impossible(environment: Mapping[str, str]) -> None:
    """What no environment can hold: a session's name may be any text."""
    for name, value in environment.items():
        if not name or "=" in name or b"\0" in os.fsencode(name + value):
            raise Unfit(f"not a variable of the environment: {name!r}")


def _first_to_go() -> Callable[[], None]:
    """When memory runs out nobody misses a kernel that only waits. Answers what undoes it.

    Nobody needs a privilege to go back to where it was.
    """
    before = _oom_score_adj()
    if before is not None:
        _oom_score_adj("1000")

    def undo() -> None:
        if before is not None and _oom_score_adj(before) != before:
            raise Unfit("it cannot be taken back that it is the first to be ended")

    return undo


def _oom_score_adj(wanted: str | None = None) -> str | None:
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as stream:
            if wanted is not None:
                stream.write(wanted)
                stream.flush()
                stream.seek(0)
            return stream.read().strip()
    except OSError:
        return None


def _take_streams(fds: list[int]) -> None:
    """Input, and the originals that ipykernel keeps where it has put its own pipes."""
    terminal = os.isatty(fds[1])
    os.dup2(fds[0], 0)
    for fd, standard, stream in ((fds[1], 1, sys.stdout), (fds[2], 2, sys.stderr)):
        original = getattr(stream, "_original_stdstream_copy", None)
        os.dup2(fd, standard if original is None else original, inheritable=original is None)
    wire.close(fds)
    written: Any = sys.__stdout__
    if written is not None and not written.write_through:
        written.reconfigure(line_buffering=terminal)


def _take_connection(app: Any, path: str, ports: dict[str, int]) -> None:
    before = app.connection_file
    app.connection_file = path
    for config in (app.config, app.cli_config):
        section = config.get("IPKernelApp", {})
        if section.get("connection_file") == before:
            section["connection_file"] = type(section["connection_file"])(path)
    with open(path, encoding="utf-8") as stream:
        info = json.load(stream)
    if "curve_publickey" in info:
        raise Unfit("the connection is to be encrypted")
    if any(info.get(name) != port for name, port in ports.items()):
        raise Unfit("the connection file names other ports")
    app.load_connection_file()


def _take_folder(shell: Any) -> None:
    settle(os.getcwd())
    shell.starting_dir = os.getcwd()
    shell.history_manager.dir_hist[:] = [Path.cwd()]
    shell.user_ns["_dh"] = shell.history_manager.dir_hist


def _begin_history(history: Any) -> None:
    """The session in the history, as when the manager is made; a failure keeps it in memory."""
    if not history.enabled:
        return
    try:
        history.new_session()
    except Exception:
        # Of sqlite3, which not every interpreter has: the database is locked, or full.
        history.log.error("Failed to create history session in %s", history.hist_file)
        if hasattr(history, "_switch_to_memory_history"):
            history._switch_to_memory_history()
