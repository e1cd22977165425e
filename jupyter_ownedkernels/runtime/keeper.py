"""The keeper: parent and subreaper of one launch, until its lease ends.

Forked by a spawner, single-threaded, asleep in poll() without a timeout while the
kernel runs. It learns of the owner's end twice over (end of file on the lease, the
owner's pidfd) and of the kernel's end by SIGCHLD. Nothing else moves it: SIGTERM,
SIGINT and SIGHUP are ignored, since a terminal or a service manager sends them to
everybody while the owner may still want to end its kernels in order.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from typing import Any, Callable

from . import child, files, lineage, lock, oom, procfs, records, reports, sockets, waiting, wire
from .retire import Leftover, Retirement, Sent, Target, send
from .tree import Facts

_NOT_A_SUBREAPER = 69
# Seconds. Between the end of a process's sockets and that of the process itself.
_DEATH_PATIENCE = 1.0
_DEATHS = 60


class Keeper:
    """One launch, from the fork of the kernel to the report of what is left."""

    def __init__(
        self,
        lease: socket.socket,
        owner: int,
        wakeup: int,
        request: dict[str, Any],
        note_session: Callable[[int], None],
    ) -> None:
        self._lease: socket.socket | None = lease
        self._owner: int | None = owner
        self._owner_pidfd = owner
        self._wakeup = wakeup
        self._request = request
        self._note_session = note_session
        self._facts = Facts(
            request["connection_file"], request["ports"], request["detached"] == "kill"
        )
        self._launched = 0
        self._launched_ticks = 0
        self._memory = oom.Memory(None)
        self._exit: dict[str, Any] | None = None
        self._retirement: Retirement | None = None
        self._is_finished = False

    # -- start -------------------------------------------------------------------

    def launch(self, stdio: list[int], dispositions: dict[int, Any], become: child.Become) -> bool:
        """Fork the kernel; tell the owner. False when there is none to keep."""
        if self._owner_is_gone():
            return False
        try:
            pid, failure = child.start(self._request, stdio, dispositions, become, self._unwanted())
        except OSError as error:
            self._tell(reports.failed("fork", error))
            return False
        finally:
            wire.close(stdio)
        if "turn" in self._request:
            # Its kernel, which has unwound this frame, tells a warm spawner with it that it booted.
            wire.close([self._request.pop("turn")])
        if failure is not None:
            os.waitpid(pid, 0)
            self._tell(dict(failure, op="failed"))
            return False
        self._launched = self._facts.launched = pid
        self._learn_session(pid)
        if self._owner_is_gone():
            # Nobody's code has run in it, nor does it heed SIGTERM until it has become a program.
            self._request["grace"] = 0.0
        self._launched_ticks = _ticks(pid)
        self._memory = oom.memory_of(pid)
        pidfd = os.pidfd_open(pid)
        started = {
            "op": "started",
            "keeper": {"pid": os.getpid(), "start_ticks": _ticks(os.getpid())},
            "process": {"pid": pid, "start_ticks": self._launched_ticks},
            "session": pid,
        }
        self._tell(started, [pidfd])
        os.close(pidfd)
        return True

    def _learn_session(self, session: int) -> None:
        if session not in self._facts.sessions:
            self._facts.sessions.add(session)
        self._note_session(session)

    # -- the loop ----------------------------------------------------------------

    def keep(self) -> None:
        """Sleep until something happens; return when the launch has ended for good."""
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        while True:
            pause = None
            if self._retirement is not None:
                pause = self._retirement.step()
                self._reap()
                if pause is None:
                    break
            self._heed(poller, pause)
        self._report(poller)

    def _heed(self, poller: select.poll, pause: float | None) -> None:
        ready = self._wait(poller, pause)
        if self._wakeup in ready:
            waiting.drain(self._wakeup)
            self._reap()
        if self._owner is not None and self._owner in ready:
            self._lease_ended()
        if self._lease is not None and self._lease.fileno() in ready:
            self._obey()

    def _wait(self, poller: select.poll, pause: float | None) -> list[int]:
        fds = [self._owner, self._lease.fileno() if self._lease else None]
        watched = [fd for fd in fds if fd is not None]
        if self._retirement is not None:
            watched += self._retirement.fds
        for fd in watched:
            poller.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(waiting.milliseconds(pause))]
        for fd in watched:
            poller.unregister(fd)
        return ready

    def _unwanted(self) -> select.poll:
        """Tells when the owner is gone, or has given this launch up."""
        poller = select.poll()
        if self._owner is not None:
            poller.register(self._owner, select.POLLIN)
        if self._lease is not None:
            poller.register(self._lease, 0)
        return poller

    def _owner_is_gone(self) -> bool:
        return bool(self._unwanted().poll(0))

    def _lease_ended(self) -> None:
        """The one decision: the lease ended, what now. Today: retire, always."""
        if self._lease is not None:
            self._lease.close()
        self._lease = self._owner = None
        self._retire(self._request["grace"])

    def _retire(self, grace: float) -> None:
        if self._retirement is None:
            self._facts.learn(self._descendants())
            self._retirement = Retirement(self._doomed, grace, self._request["retire_timeout"])
        else:
            self._retirement.escalate(grace)

    def _doomed(self) -> list[procfs.Stat]:
        processes = self._descendants()
        self._facts.learn(processes, listeners=False)
        return self._facts.doomed(processes)

    @staticmethod
    def _descendants() -> dict[int, procfs.Stat]:
        if procfs.has_children_files():
            return procfs.descendants(os.getpid())
        return procfs.descendants(os.getpid(), procfs.table()[0])

    # -- messages of the owner ---------------------------------------------------

    def _obey(self) -> None:
        assert self._lease is not None
        try:
            message, fds = wire.receive(self._lease, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except (wire.Closed, OSError, ValueError):
            self._lease_ended()
            return
        wire.close(fds)
        try:
            self._do(message)
        except Exception:
            # The end of this process would be the end of the kernel, which is wanted.
            if os.environ.get("JUPYTER_OWNEDKERNELS_DEBUG"):
                import traceback  # A seventh of a spawner's start, for developers only.

                traceback.print_exc()

    def _do(self, message: wire.Message) -> None:
        op = message.get("op")
        if op == "ready":
            self._settle()
        elif op == "signal":
            self._signal(int(message["signum"]))
        elif op == "claim":
            self._claim(message["request"])
        elif op == "retire":
            self._retire(float(message["grace"]))
        elif op == "finish":
            self._is_finished = True

    def _claim(self, request: dict[str, Any]) -> None:
        self._request.update(request)
        before = self._facts
        self._facts = Facts(
            self._request["connection_file"],
            self._request["ports"],
            self._request["detached"] == "kill",
        )
        self._facts.sessions |= before.sessions
        self._facts.launched = before.launched

    def _settle(self) -> None:
        kernel = self._facts.learn(self._descendants(), settle=True)
        if kernel is None:
            return
        self._note_session(kernel.session)
        if kernel.pid != self._launched:
            # A wrapper may have put the kernel into a memory cgroup of its own.
            self._memory = oom.memory_of(kernel.pid)
        self._tell(
            {
                "op": "kernel",
                "pid": kernel.pid,
                "start_ticks": kernel.start_ticks,
                "session": kernel.session,
            }
        )

    def _signal(self, signum: int) -> None:
        """Always answered: the owner takes the answers in the order of its questions."""
        outcomes: list[Sent] = []
        trouble: int | None = None
        try:
            outcomes.extend(send(target, signum) for target in self._addressees())
        except OSError as error:
            trouble = error.errno
        except OverflowError:
            trouble = errno.EINVAL
        counts = {"sent": outcomes.count(Sent.DELIVERED), "denied": outcomes.count(Sent.DENIED)}
        self._tell({"op": "signalled", "errno": trouble, **counts})

    def _addressees(self) -> list[Target]:
        """The kernel process and what it started in its process group, not a wrapper."""
        processes = self._descendants()
        kernel = self._facts.learn(processes)
        top = kernel.pid if kernel is not None else self._launched
        addressee = processes.get(top)
        if addressee is None:
            return []
        members = [addressee, *procfs.descendants(top, processes).values()]
        group = [one for one in members if one.alive and one.pgrp == addressee.pgrp]
        return [Target(one.pid, one.start_ticks) for one in group]

    # -- the end -----------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            kernel = self._facts.kernel
            if pid == self._facts.launched:
                self._facts.launched = None
            if pid == self._launched or (kernel is not None and pid == kernel.pid):
                self._exit = {
                    "status": os.waitstatus_to_exitcode(status),
                    "oom": self._was_victim(pid, status, usage.ru_maxrss * 1024),
                    "core": os.WCOREDUMP(status),
                    "max_rss": usage.ru_maxrss * 1024,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                }
        if self._exit is not None and self._retirement is None and not self._kernel_runs_on():
            self._tell(dict(self._exit, op="exited"))
            self._retire(self._request["grace"])

    def _was_victim(self, pid: int, status: int, max_rss: int) -> bool | None:
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            return False
        return oom.was_victim(pid, self._launched_ticks, max_rss, self._memory)

    def _kernel_runs_on(self) -> bool:
        """After the launched process ended: whether the kernel was behind it and lives.

        A wrapper may start the kernel in the background and leave. The kernel is then a
        child of this process, the subreaper, and its end will be reported instead.
        """
        processes = self._descendants()
        kernel = self._facts.learn(processes)
        if kernel is None:
            return False
        entry = processes.get(kernel.pid)
        return entry is not None and entry.start_ticks == kernel.start_ticks and entry.alive

    def _report(self, poller: select.poll) -> None:
        assert self._retirement is not None
        survivors = [reports.survivor(left) for left in self._retirement.leftovers]
        known = {entry["pid"] for entry in survivors}
        for entry in self._facts.split(self._descendants()).detached.values():
            if entry.pid not in known:
                left = Leftover(Target(entry.pid, entry.start_ticks), entry.session, "detached")
                survivors.append(reports.survivor(left))
        if self._exit is None:
            self._exit = dict(reports.NO_EXIT)
        file = None
        if self._request["remove_connection_file"]:
            file = files.identity_of(self._request["connection_file"])
        if self._lease is not None and not self._owner_is_gone():
            self._tell(dict(self._exit, op="exited"))
            self._tell({"op": "retired", "survivors": survivors})
            # The owner removes the file, or starts the kernel again with it: soon, or when
            # somebody asks. Until then there is something left to do, should it die.
            while file is not None and not self._is_finished and self._lease is not None:
                self._heed(poller, None)
            if self._lease is not None:
                return
        self._finish_for_owner(survivors, file)

    def _owner_died(self) -> bool:
        """False when the owner lives and gave the launch up: the rest is its own affair.

        It may have started the kernel again by then, with a connection file of the same
        name. A process that ends closes its sockets before its pidfd tells: a moment, or
        more than a second on a machine with much to do. One that has become another
        program (exec) lives, but has let go of its journal.
        """
        poller = select.poll()
        poller.register(self._owner_pidfd, select.POLLIN)
        for _ in range(_DEATHS):
            if poller.poll(_DEATH_PATIENCE * 1000):
                return True
            owner = procfs.pid_of(self._owner_pidfd)
            if owner is None or not procfs.is_ending(owner):
                break
        journal = self._request["journal"]
        return bool(journal) and lock.is_abandoned(journal)

    def _finish_for_owner(
        self, survivors: list[dict[str, Any]], file: files.FileIdentity | None
    ) -> None:
        """What the owner would have done: it is dead, so this process does it."""
        if not self._owner_died():
            return
        if file is not None:
            sockets.remove_file(self._request["connection_file"], file)
        if self._request["journal"]:
            assert self._exit is not None
            record = reports.ended(self._request["launch_id"], self._exit, survivors)
            try:
                records.append(self._request["journal"], record)
            except (OSError, ValueError):
                pass  # Nobody is left to be told; recovery finds the launch open and looks.

    def _tell(self, message: wire.Message, fds: list[int] | None = None) -> None:
        if self._lease is None:
            return
        try:
            wire.send(self._lease, message, fds or [])
        except (wire.Closed, OSError):
            pass  # The end of the lease itself is seen, and acted on, by the loop.


def _ticks(pid: int) -> int:
    """0 for a process that is hidden from this user, such as ``sudo`` under hidepid."""
    try:
        entry = procfs.stat(pid)
    except PermissionError:
        return 0
    return entry.start_ticks if entry else 0


def run(
    lease: socket.socket,
    owner: int,
    wakeup: int,
    request: dict[str, Any],
    stdio: list[int],
    dispositions: dict[int, Any],
    note_session: Callable[[int], None],
    become: child.Become,
) -> int:
    """Body of the forked process. The answer is its exit status."""
    lineage.set_name("kernel-keeper")
    if not lineage.become_subreaper():
        return _NOT_A_SUBREAPER
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    keeper = Keeper(lease, owner, wakeup, request, note_session)
    if keeper.launch(stdio, dispositions, become):
        keeper.keep()
    return 0
