"""The plain spawner: forks a keeper for each launch, and looks after dead keepers.

One per owner. Single-threaded on purpose: PR_SET_PDEATHSIG follows the thread that
forked. It holds the control socket, the owner's pidfd and nothing else of the owner;
it sleeps in poll() without a timeout. When the owner ends it stays until the last
keeper has ended, then leaves.

A keeper that dies by a signal leaves orphans; as a subreaper the spawner becomes
their parent and ends the core of that launch. Processes that a retired launch left
on purpose become its children too and are only reaped.
"""

from __future__ import annotations

import gc
import mmap
import os
import select
import signal
import socket
import struct
from typing import Any, NamedTuple

from . import child, keeper, lineage, procfs, reports, waiting, wire
from .retire import Retirement
from .tree import Facts

_INHERITED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SESSION = struct.Struct("=q")
# The launched process's session and the kernel's; more than two levels was never seen.
_BOARD_SLOTS = 4


class Board:
    """Sessions that a keeper notes where the spawner can read them after its death.

    Shared memory instead of a pipe: no descriptor per launch, so that a thousand
    kernels do not need a thousand of them here.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SESSION.size * _BOARD_SLOTS)

    def note(self, session: int) -> None:
        for slot in range(_BOARD_SLOTS):
            (seen,) = _SESSION.unpack_from(self._memory, slot * _SESSION.size)
            if seen == session:
                return
            if seen == 0:
                _SESSION.pack_into(self._memory, slot * _SESSION.size, session)
                return

    def sessions(self) -> list[int]:
        slots = range(_BOARD_SLOTS)
        seen = [_SESSION.unpack_from(self._memory, slot * _SESSION.size)[0] for slot in slots]
        return [session for session in seen if session]

    def close(self) -> None:
        self._memory.close()


def tell(lease_fd: int, message: wire.Message) -> None:
    """Say something on the lease of a launch that came to nothing, should anybody listen."""
    try:
        with socket.socket(fileno=os.dup(lease_fd)) as lease:
            wire.send(lease, message)
    except (wire.Closed, OSError):
        pass


class Kept(NamedTuple):
    """What the spawner remembers of one launch while its keeper lives."""

    facts: Facts
    board: Board
    grace: float
    retire_timeout: float


class Spawner:
    """State of the process; one instance, made by :func:`main`."""

    def __init__(
        self, control: socket.socket, owner: int, become: child.Become = child.execute
    ) -> None:
        self._become = become
        self._control: socket.socket | None = control
        self._owner: int | None = owner
        self._kept: dict[int, Kept] = {}
        self._retirements: list[Retirement] = []
        self._dispositions: dict[int, Any] = {
            signum: signal.getsignal(signum) for signum in _INHERITED_SIGNALS
        }
        # The kernels' only: with SIGCHLD blocked nobody here would learn of a child's end.
        self._sigmask = sorted(int(s) for s in signal.pthread_sigmask(signal.SIG_SETMASK, []))
        for signum in _INHERITED_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        self._wakeup, self._writer = waiting.watch_children()

    def serve(self) -> None:
        """Sleep, fork keepers, reap. Returns when the owner and all keepers are gone."""
        while True:
            pause = self._press_on()
            # Looked at after the steps: the last one may have ended what there was to wait for.
            if self._control is None and not self._kept and not self._retirements:
                return
            poller = select.poll()
            poller.register(self._wakeup, select.POLLIN)
            for fd in self._watched():
                poller.register(fd, select.POLLIN)
            ready = [fd for fd, _ in poller.poll(waiting.milliseconds(pause))]
            if self._wakeup in ready:
                waiting.drain(self._wakeup)
                self._reap()
            if self._owner is not None and self._owner in ready:
                self._owner_ended()
            elif self._control is not None and self._control.fileno() in ready:
                self._take_request()

    def _retired_fds(self) -> set[int]:
        """Pidfds of what dead keepers have left; the owner's and the kernels' are not here."""
        return {fd for retirement in self._retirements for fd in retirement.fds}

    def _watched(self) -> list[int]:
        fds = list(self._retired_fds())
        if self._control is not None:
            fds.append(self._control.fileno())
        if self._owner is not None:
            fds.append(self._owner)
        return fds

    def _press_on(self) -> float | None:
        """Step what is being retired here; the shortest wait that any of it asks for."""
        pauses = [(retirement, retirement.step()) for retirement in self._retirements]
        self._retirements = [retirement for retirement, pause in pauses if pause is not None]
        waits = [pause for _, pause in pauses if pause is not None]
        return min(waits) if waits else None

    def _owner_ended(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = self._owner = None

    def _take_request(self) -> None:
        assert self._control is not None
        try:
            request, fds = wire.receive(self._control, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except (wire.Closed, OSError, ValueError):
            self._owner_ended()
            return
        try:
            if request.get("op") == "launch" and len(fds) in (4, 5):
                request["channel"] = fds[4] if len(fds) == 5 else None
                self._launch(request, fds)
        finally:
            wire.close(fds)

    def _launch(self, request: dict[str, Any], fds: list[int]) -> int | None:
        """Fork a keeper; its number. None when that failed, and the owner was told so."""
        request["sigmask"] = self._sigmask
        try:
            board = Board()
            pid = os.fork()
        except OSError as error:
            tell(fds[0], reports.failed("fork", error))
            return None
        if pid == 0:
            self._become_keeper(request, fds, board)
        facts = Facts(request["connection_file"], request["ports"], request["detached"] == "kill")
        self._kept[pid] = Kept(facts, board, request["grace"], request["retire_timeout"])
        return pid

    def _become_keeper(self, request: dict[str, Any], fds: list[int], board: Board) -> None:
        status = 70
        try:
            assert self._owner is not None
            self._close_in_keeper()
            self._kept.clear()
            wakeup, _ = waiting.watch_children()
            lease = socket.socket(fileno=fds[0])
            status = keeper.run(
                lease,
                self._owner,
                wakeup,
                request,
                fds[1:],
                self._dispositions,
                board.note,
                self._become,
            )
        except child.Unwind:
            # Closed by its number already: the object must not close what takes the number.
            lease.detach()
            raise
        except BaseException:
            # No owner's terminal to write to: the lease closes, and the owner, or the
            # spawner by the exit status, ends what this launch has started.
            if os.environ.get("JUPYTER_OWNEDKERNELS_DEBUG"):
                import traceback  # A seventh of a spawner's start, for developers only.

                traceback.print_exc()
        os._exit(status)

    def _close_in_keeper(self) -> None:
        assert self._control is not None
        self._control.close()
        os.close(self._wakeup)
        os.close(self._writer)
        for retirement in self._retirements:
            retirement.close()
        self._retirements.clear()

    def _keeper_ended(self, keeper: int) -> None:
        """Called for each, however it ended."""

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            kept = self._kept.pop(pid, None)
            if kept is None:
                continue
            self._keeper_ended(pid)
            if status != 0:
                self._retire_orphans(kept)
            kept.board.close()

    def _retire_orphans(self, kept: Kept) -> None:
        """End the core of a launch whose keeper died before it could.

        Proof of identity: they are below this process and below no living keeper, and
        in a session that the launch made (its number cannot be given away while a
        member lives).
        """
        others = {s for other in self._kept.values() for s in other.board.sessions()}
        kept.facts.sessions.update(set(kept.board.sessions()) - others)

        def doomed() -> list[procfs.Stat]:
            snapshot, _ = procfs.table()
            below = procfs.descendants(os.getpid(), snapshot)
            for pid in self._kept:
                below.pop(pid, None)
                for inside in procfs.descendants(pid, snapshot):
                    below.pop(inside, None)
            kept.facts.learn(below)
            return list(kept.facts.split(below).core.values())

        self._retirements.append(Retirement(doomed, kept.grace, kept.retire_timeout))


def main(control_fd: int, owner_pidfd: int) -> int:
    """Serve until the owner is gone. Called by ``start.py`` only."""
    lineage.set_name("kernel-spawner")
    if not lineage.become_subreaper():
        return 69
    for fd in (control_fd, owner_pidfd):
        os.set_inheritable(fd, False)
    control = socket.socket(fileno=control_fd)
    # Collected once, then kept out of every later collection: a collection in a
    # keeper would touch, and so copy, each page that it shares with this process.
    gc.collect()
    gc.freeze()
    gc.disable()
    Spawner(control, owner_pidfd).serve()
    return 0
