"""Starting a spawner process, and talking to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LaunchTimeout, SpawnerUnavailable
from ..marks import OWNER_MARKER
from ..runtime import wire

if TYPE_CHECKING:
    import socket

START_SCRIPT = Path(__file__).parents[1] / "runtime" / "start.py"

# A request waits in the socket's buffer while the spawner forks; that it is full for
# this long means that the spawner does not run (stopped, or the machine is out of memory).
_SEND_TIMEOUT = 10.0


def unsupported_reason() -> str | None:
    """Why kernels cannot be watched on this system; None where they can."""
    if not sys.platform.startswith("linux"):
        return f"watching kernels needs Linux, this is {sys.platform}"
    if not hasattr(os, "pidfd_open"):
        return "this Python was built without pidfd support"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"this kernel offers no pidfd ({error.strerror})"
    if not os.path.exists("/proc/self/stat"):
        return "/proc is not mounted"
    if not sys.executable:
        return "the path of the Python interpreter is not known"
    return None


class SpawnerProcess:
    """One spawner, a child of this process.

    It gets three things and no other descriptor: a control socket, a pidfd of this
    process, and /dev/null. When this process ends in any way it sees it and leaves.
    """

    kind = "plain"
    welcomes = False
    """Whether its kernels welcome whoever subscribes to their output."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self.launches = 0
        self.interpreter = sys.executable

    @classmethod
    def start(cls, owner_id: str) -> SpawnerProcess:
        """Start one. Raises SpawnerUnavailable with the reason."""
        reason = unsupported_reason()
        if reason is not None:
            raise SpawnerUnavailable(reason)
        process, control = cls._spawn(
            [sys.executable, "-I", "-S", str(START_SCRIPT)],
            [],
            {**os.environ, OWNER_MARKER: owner_id},
        )
        return cls(process, control)

    @staticmethod
    def _spawn(
        command: list[str], arguments: list[str], env: dict[str, str], executable: str | None = None
    ) -> tuple[subprocess.Popen[bytes], socket.socket]:
        try:
            ours, theirs = wire.pair()
            owner = os.pidfd_open(os.getpid())
        except OSError as error:
            raise SpawnerUnavailable(f"the spawner could not be started: {error}") from error
        ours.settimeout(_SEND_TIMEOUT)
        # Errors of a spawner have nobody to read them; developers may ask for them.
        errors = None if os.environ.get("JUPYTER_OWNEDKERNELS_DEBUG") else subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(owner), *arguments],
                executable=executable,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd="/",
                env=env,
                pass_fds=(theirs.fileno(), owner),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SpawnerUnavailable(f"the spawner could not be started: {error}") from error
        finally:
            theirs.close()
            os.close(owner)
        return process, ours

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Also reaps it when it has ended."""
        return self._process.poll() is None

    def send(self, message: wire.Message, fds: Sequence[int]) -> None:
        """Pass a request on. Raises wire.Closed when the spawner is gone."""
        try:
            wire.send(self._control, message, fds)
        except TimeoutError:
            raise LaunchTimeout("the spawner does not take requests") from None
        self.launches += 1

    def close(self) -> None:
        """Let it go: it leaves once the last of its keepers has ended.

        Reaped in the background, since that may be as long as a kernel takes to end.
        """
        self._control.close()
        if self.alive:
            # One that is stopped would never see it, and hold the streams of what it was asked for.
            self._process.send_signal(signal.SIGCONT)
            # Without a thread (a limit on processes) it is reaped with the next Popen.
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._process.wait, daemon=True).start()

    def abandon(self) -> None:
        """In a forked child: it is the parent's spawner, not ours."""
        with contextlib.suppress(OSError):
            self._control.close()
        # Popen would warn at collection about a process that is not this one's child.
        self._process.returncode = 0
