"""Starting a warm spawner, and waiting until its template is ready."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SpawnerUnavailable
from ..marks import OWNER_MARKER
from ..runtime import wire
from .choice import of_template
from .spawners import SpawnerProcess, unsupported_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .choice import Choice

WARM_SCRIPT = Path(__file__).parents[1] / "runtime" / "warm" / "start.py"
# Importing what a kernel has takes 0.5 to 1 s here; on a cold network disk a minute.
READY_TIMEOUT = 180.0
_ROOM_FOR_TITLE = 512
# Seconds. A spawner that is only just starting must have come as far as to look.
_ABORT_PATIENCE = 1.0


class WarmProcess(SpawnerProcess):
    """One template, in the interpreter of the kernels that it will fork."""

    kind = "warm"

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        super().__init__(process, control)
        self.troubles: list[str] = []
        """What of ``warm_preload`` could not be imported, and why."""

    @classmethod
    def start_for(
        cls, owner_id: str, choice: Choice, environment: Mapping[str, str]
    ) -> WarmProcess:
        """Start one; it is of no use before :meth:`wait_until_ready`.

        Raises SpawnerUnavailable with the reason.
        """
        reason = unsupported_reason()
        if reason is not None:
            raise SpawnerUnavailable(reason)
        plan = json.dumps({"module": choice.module, "preload": list(choice.preload)})
        # Room for a kernel's own command line, where it has to be written over this one.
        plan = plan.ljust(_ROOM_FOR_TITLE)
        process, control = cls._spawn(
            [choice.interpreter, *choice.flags, str(WARM_SCRIPT)],
            [plan],
            {**of_template(environment), OWNER_MARKER: owner_id},
            choice.executable,
        )
        warm = cls(process, control)
        warm.interpreter = choice.executable
        return warm

    def wait_until_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Raises SpawnerUnavailable with the reason why it cannot fork kernels."""
        deadline = time.monotonic() + timeout
        patience = self._control.gettimeout()
        try:
            self._control.settimeout(max(deadline - time.monotonic(), 0.1))
            message, fds = wire.receive(self._control)
        except (wire.Closed, OSError, ValueError):
            raise SpawnerUnavailable("the interpreter ended while it was made ready") from None
        finally:
            with contextlib.suppress(OSError):  # closed in the meantime: the owner leaves
                self._control.settimeout(patience)
        wire.close(fds)
        self.troubles = [str(trouble) for trouble in message.get("troubles", [])]
        self.welcomes = bool(message.get("welcomes"))
        if message.get("state") != "ready":
            raise SpawnerUnavailable(str(message.get("reason")))

    def abort(self) -> None:
        """End it: it has not forked any kernel yet.

        The end of the socket ends it within milliseconds; a moment for it to take its
        rehearsal's files along.
        """
        # Closing alone would not end it while another thread still waits for an answer.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(_ABORT_PATIENCE)
        except subprocess.TimeoutExpired:
            # A child of this process that was not reaped: the number is still its own.
            self._process.kill()
            self._process.wait()


__all__ = ["READY_TIMEOUT", "WarmProcess"]
