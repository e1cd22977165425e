"""Handles on a kernel's process in the shape of ``subprocess.Popen``.

:class:`OwnedProcess` speaks to a keeper. :class:`StockProcess` is for a launch that no
spawner made: a plain child of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import threading
from concurrent.futures import TimeoutError as FutureTimeout
from typing import IO, TYPE_CHECKING, Any

from jupyter_client.launcher import launch_kernel

from ..launching.launch import settled
from ..processes.tree import RecordedProcess
from ..runtime import procfs
from ..runtime.retire import Retirement, Sent, Target, run, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..identity import Identity
    from ..launching.launch import Launch, Started
    from ..launching.stdio import Stdio


# Seconds between two looks, where nobody tells: as LocalProvisioner does it.
_LOOK_INTERVAL = 0.1


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (nobody here is told)
        await asyncio.sleep(_LOOK_INTERVAL)


class OwnedProcess:
    """The kernel of a launch that a keeper looks after."""

    def __init__(self, launch: Launch, started: Started, stdio: Stdio) -> None:
        self.launch = launch
        self.pid = started.pid
        """The launched process. For a wrapper the kernel process is below it."""
        self.args = list(launch.request.argv)
        self._stdio = stdio
        self._retiring = False

    @property
    def stdin(self) -> IO[Any] | None:
        return self._stdio.stdin

    @property
    def stdout(self) -> IO[Any] | None:
        return self._stdio.stdout

    @property
    def stderr(self) -> IO[Any] | None:
        return self._stdio.stderr

    @property
    def returncode(self) -> int | None:
        return self.launch.returncode

    def poll(self) -> int | None:
        """None while the kernel runs. A local look."""
        return self.launch.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Block until the launch is retired. Raises subprocess.TimeoutExpired."""
        try:
            self.launch.retired.result(timeout)
        except FutureTimeout:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout) from None
        status = self.launch.returncode
        assert status is not None
        return status

    async def wait_async(self, timeout: float) -> int | None:
        """As :meth:`wait`, for a coroutine; after ``timeout`` seconds what is known."""
        with contextlib.suppress(asyncio.TimeoutError):
            await settled(self.launch.retired, timeout)
        return self.launch.returncode

    async def ending(self) -> None:
        """Wait, however long it takes, until it was told to end or has ended."""
        if not self.is_ending:
            await settled(self.launch.exited, None)

    def ready(self) -> None:
        self.launch.ready()

    def send_signal(self, signum: int) -> None:
        """Signal the kernel; does not wait for the answer."""
        if self.poll() is None:
            self.launch.signal(signum)

    async def signal_async(self, signum: int, timeout: float) -> None:
        """Signal the kernel. Raises PermissionError when nothing of it may be signalled, and
        OSError for a signal that does not exist.
        """
        if self.poll() is not None:
            return
        answer = asyncio.wrap_future(self.launch.signal(signum))
        try:
            await asyncio.wait({answer}, timeout=timeout)
            # Cancelled by the end of the launch: then there is nothing to signal any more.
            denied = answer.result() if answer.done() and not answer.cancelled() else 0
        finally:
            answer.cancel()
        if denied:
            raise PermissionError(1, f"{denied} processes of the kernel may not be signalled")

    def retire(self, grace: float) -> None:
        self._retiring = True
        self.launch.retire(grace)

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, or has ended; what it has started may still be there."""
        return self._retiring or self.poll() is not None

    def kill_gracefully(self, grace: float) -> None:
        """SIGKILL at once where :meth:`retire` was called before, else after the grace."""
        self.retire(0.0 if self._retiring else grace)

    def terminate(self) -> None:
        self.retire(self.launch.request.grace)

    def kill(self) -> None:
        self.retire(0.0)

    def close_streams(self) -> None:
        self._stdio.close_own_ends()


class LoadedProcess:
    """The kernel of another process, from what that process stored about it.

    It is nobody's child here, so only proof of its identity allows to signal it, and how
    it ended is not known.
    """

    def __init__(self, recorded: Identity) -> None:
        self._process = RecordedProcess(recorded)
        self.pid = recorded.pid
        self._retiring = False

    def poll(self) -> int | None:
        return self._process.poll()

    async def ending(self) -> None:
        await _until(lambda: self._retiring or self.poll() is not None)

    async def wait_async(self, timeout: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, timeout)
        return self.poll()

    def ready(self) -> None:
        """Its owner's keeper, if it has one, knows."""

    async def signal_async(self, signum: int, timeout: float) -> None:
        self._process.send_signal(signum)

    def retire(self, grace: float) -> None:
        self._retiring = True
        self._process.terminate()

    def kill_gracefully(self, grace: float) -> None:
        self.kill()

    def kill(self) -> None:
        self._retiring = True
        self._process.kill()

    def close_streams(self) -> None:
        """It has none here."""


class StockProcess:
    """The kernel of a stock launch: a child of this process, in its own session.

    It is not reaped before :meth:`wait`. So its number stays taken, and with it the
    session's: whoever is in that session was started by this kernel.
    """

    def __init__(self, popen: subprocess.Popen[Any], retire_timeout: float) -> None:
        self._popen = popen
        self._retire_timeout = retire_timeout
        self.pid = popen.pid
        self.args = popen.args
        self._status: int | None = None
        self._retiring: threading.Thread | None = None
        self._retirement: Retirement | None = None

    @classmethod
    def start(cls, cmd: list[str], kwargs: dict[str, Any], retire_timeout: float) -> StockProcess:
        """As jupyter_client does it. Raises what Popen raises."""
        return cls(launch_kernel(cmd, **kwargs), retire_timeout)

    @property
    def stdin(self) -> IO[Any] | None:
        return self._popen.stdin

    @property
    def stdout(self) -> IO[Any] | None:
        return self._popen.stdout

    @property
    def stderr(self) -> IO[Any] | None:
        return self._popen.stderr

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        if self._status is None:
            if self._popen.returncode is not None:
                self._status = self._popen.returncode
            else:
                try:
                    seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                except ChildProcessError:
                    # Reaped by the program itself. The number may be somebody else's by now:
                    # Popen learns of it here, says 0 as it always does, and nothing is signalled.
                    self._popen.poll()
                    self._status = self._popen.returncode
                    return self._status
                if seen is not None:
                    exited = seen.si_code == os.CLD_EXITED
                    self._status = seen.si_status if exited else -seen.si_status
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """End what is left in its session, then reap it."""
        if self.poll() is None:
            self._await_exit(timeout)
        self.retire(0.0)
        if self._retiring is not None:
            self._retiring.join(timeout)
        self._popen.wait()
        assert self._status is not None
        return self._status

    def _await_exit(self, timeout: float | None) -> None:
        # The pidfd, not waitpid: the child must stay unreaped.
        fd = os.pidfd_open(self.pid)
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            if not poller.poll(None if timeout is None else timeout * 1000):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
        finally:
            os.close(fd)
        self.poll()

    async def ending(self) -> None:
        # Not in a thread: one that waits for a kernel would keep this process from its end.
        await _until(lambda: self._retirement is not None or self.poll() is not None)

    async def wait_async(self, timeout: float) -> int | None:
        try:
            return await asyncio.to_thread(self.wait, timeout)
        except subprocess.TimeoutExpired:
            return self.poll()

    def ready(self) -> None:
        """Nobody to be told."""

    def _members(self) -> list[procfs.Stat]:
        self.poll()
        if self._popen.returncode is not None:
            return []  # Reaped: the session's number proves nothing any more.
        table, _ = procfs.table()
        return [entry for entry in table.values() if entry.session == self.pid]

    def send_signal(self, signum: int) -> None:
        """Signal its process group, one by one. PermissionError when none may be signalled."""
        outcomes = [
            send(Target(entry.pid, entry.start_ticks), signum)
            for entry in self._members()
            # A session leader, it leads the group of its own number for good.
            if entry.alive and entry.pgrp == self.pid
        ]
        if Sent.DENIED in outcomes and Sent.DELIVERED not in outcomes:
            raise PermissionError(1, "the kernel may not be signalled")

    async def signal_async(self, signum: int, timeout: float) -> None:
        await asyncio.to_thread(self.send_signal, signum)

    def retire(self, grace: float) -> None:
        if self._retirement is not None:
            self._retirement.escalate(grace)
        elif self._popen.returncode is None:
            self._retirement = Retirement(self._members, grace, self._retire_timeout)
            self._retiring = threading.Thread(target=run, args=(self._retirement,), daemon=True)
            self._retiring.start()

    def kill_gracefully(self, grace: float) -> None:
        self.retire(0.0 if self._retirement is not None else grace)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.retire(0.0)

    def close_streams(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
