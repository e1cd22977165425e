"""The warm spawner: imports once what a booted kernel has, then forks ready kernels.

The process is a template. Whatever it holds when it forks, every kernel gets a copy of:
so it has one thread, no socket but the owner's, no event loop, no device file, and each
fork is preceded by a look at /proc that it is still so. What does not fit is refused
with the reason, and the owner launches by exec. Keepers are those of the plain spawner.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import warnings
from typing import Any, Callable

from .. import lineage, wire
from ..child import Unwind
from ..spawner import Spawner, tell
from . import gate, pages
from .template import Template
from .turns import Turns

# Says that the launch was refused before anything was forked: see wire.py, ``failed``.
REFUSED = "refused"
STALE = "stale"
# Seconds for which one look at all files serves launches that wait in a row.
_BURST = 0.25


class WarmSpawner(Spawner):
    """A spawner that refuses to fork what it cannot fork safely."""

    def __init__(self, control: socket.socket, owner: int, template: Template) -> None:
        super().__init__(control, owner, template.become)
        self._template = template
        self._more_waited = False
        self._turns = Turns()
        self._awaits_turn = False
        self._expected = {control.fileno(), owner, self._wakeup, self._writer, *self._turns.fds}

    def _press_on(self) -> float | None:
        pauses = [super()._press_on(), self._turns.pause()]
        self._awaits_turn = pauses[1] is not None
        return min((pause for pause in pauses if pause is not None), default=None)

    def _watched(self) -> list[int]:
        fds = super()._watched()
        if self._awaits_turn and self._control is not None:
            # Whoever asks for a kernel waits in the socket; the end of the owner is seen.
            fds.remove(self._control.fileno())
            fds.append(self._turns.fds[0])
        return fds

    def _launch(self, request: dict[str, Any], fds: list[int]) -> int | None:
        stage, reason = REFUSED, gate.objection(self._expected | set(fds) | self._retired_fds())
        if reason is None and self._template.changed(_BURST if self._more_waited else 0.0):
            stage, reason = STALE, "files of the interpreter or its packages were changed"
        self._more_waited = self._more_waits()
        if reason is not None:
            told = {"op": "failed", "stage": stage, "errno": None, "text": reason}
            tell(fds[0], {**told, "filename": None})
            return None
        request["turn"] = self._turns.fds[1]
        keeper = super()._launch(request, fds)
        if keeper is not None:
            self._turns.take(keeper)
        return keeper

    def _close_in_keeper(self) -> None:
        super()._close_in_keeper()
        os.close(self._turns.fds[0])

    def _keeper_ended(self, keeper: int) -> None:
        self._turns.end(keeper)

    def _more_waits(self) -> bool:
        poller = select.poll()
        if self._control is not None:
            poller.register(self._control, select.POLLIN)
        return bool(poller.poll(0))


def _die_with_owner(control: socket.socket, wanted: bool) -> None:
    """While importing nobody polls: let the end of the owner's socket be a signal.

    SIGIO is sent when the other end is closed, and its default is to end the process.
    The owner says nothing before it was told that the template is ready.
    """
    if wanted:
        fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(control, fcntl.F_GETFL)
    flags = flags | os.O_ASYNC if wanted else flags & ~os.O_ASYNC
    fcntl.fcntl(control, fcntl.F_SETFL, flags)
    if wanted and _has_hung_up(control):
        os._exit(1)  # before that: there is no signal to come


def _has_hung_up(control: socket.socket) -> bool:
    poller = select.poll()
    poller.register(control, 0)
    return bool(poller.poll(0))


def _settle_threads() -> None:
    """One fork whose child leaves at once.

    OpenBLAS starts its threads when numpy is imported, ends them in its handler before
    a fork, and starts them again in whoever computes next: after this the template has
    none, and each kernel gets its own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def main(
    control_fd: int, owner_pidfd: int, plan: dict[str, Any], at_start: frozenset[str]
) -> Callable[[], str] | None:
    """Prepare, then serve until the owner is gone.

    Returns None in the spawner, and in a forked child what makes it the kernel. Called
    by ``start.py`` only. ``plan``: ``module`` of the kernelspec, ``preload``.
    """
    lineage.set_name("warm-spawner")
    if not lineage.become_subreaper():
        return None
    for fd in (control_fd, owner_pidfd):
        os.set_inheritable(fd, False)
    control = socket.socket(fileno=control_fd)
    template = Template(at_start)
    troubles: list[str] = []
    reason = gate.not_ipykernel(plan["module"])
    if reason is None:
        rehearsal = template.rehearse(control)
        if rehearsal is None:
            return None
        _die_with_owner(control, True)
        reason = template.import_base(rehearsal)
        troubles = template.import_preload(plan["preload"])
        _settle_threads()
        signal.set_wakeup_fd(-1)
        reason = reason or gate.objection({control_fd, owner_pidfd})
    state = "unfit" if reason is not None else "ready"
    template.freeze(__name__.partition(".")[0])
    _die_with_owner(control, False)
    told: dict[str, Any] = {"op": "warm", "state": state, "reason": reason}
    told.update(troubles=troubles, welcomes=template.welcomes)
    try:
        wire.send(control, told)
    except (wire.Closed, OSError):
        return None
    if reason is not None:
        return None
    gc.collect()
    pages.lay_paths_side_by_side()
    pages.fill_holes()
    gc.freeze()
    gc.disable()
    try:
        WarmSpawner(control, owner_pidfd, template).serve()
    except Unwind:
        return template.kernel
    return None


__all__ = ["REFUSED", "STALE", "WarmSpawner", "main"]
