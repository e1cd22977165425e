"""Waiting until a kernel's ports accept connections.

A client that connects before the kernel has bound its ports loses ZeroMQ's reconnect
interval (100 ms), and the server's nudge then adds steps of 500 ms. So a launch is
called ready when the ports listen. They are looked up in the kernel's list of
listening sockets, which opens no connection: a kernel that is not built on libzmq may
take a connection without a handshake for an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..runtime import listening, procfs

# The heartbeat is left out: no front end waits for it, and some kernels bind it late.
_NEEDED = ("shell_port", "iopub_port", "stdin_port", "control_port")
# ipykernel binds its ports first, and a little later says what SIGINT is to do: 2 ms at
# most, if it is let run.
_SETTLING = 0.25
# A look takes 0.1 ms; a kernel takes 40 (forked) to thousands of milliseconds to bind.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.02
# When fifty kernels start at once, those who look in the same moment share one look: it takes
# 1 ms and more by then, and all together took a sixth of the server's time.
_LOOK_HOLDS_FOR = 0.0015
_last_look: tuple[float, set[int]] = (float("-inf"), set())


def ports_of(connection_info: Mapping[str, Any]) -> tuple[int, ...]:
    """The TCP ports that a client needs; none for another transport."""
    if connection_info.get("transport", "tcp") != "tcp":
        return ()
    ports = (connection_info.get(name, 0) for name in _NEEDED)
    return tuple(port for port in ports if isinstance(port, int) and port > 0)


def _sockets_of(connection_info: Mapping[str, Any]) -> tuple[str, ...]:
    if connection_info.get("transport") != "ipc":
        return ()
    return tuple(
        f"{connection_info.get('ip')}-{connection_info[name]}"
        for name in _NEEDED
        if connection_info.get(name)
    )


def _listening_just_now() -> set[int]:
    global _last_look
    looked_at, ports = _last_look
    if time.monotonic() - looked_at > _LOOK_HOLDS_FOR:
        ports = _listening()
        _last_look = (time.monotonic(), ports)
    return ports


def _listening() -> set[int]:
    """TCP ports on which something listens, of both families."""
    return set(listening.tcp_listeners())


def is_ready(
    connection_info: Mapping[str, Any], look: Callable[[], set[int]] = _listening
) -> bool | None:
    """Whether all needed ports listen. None: this connection cannot be looked at.

    False also where there is no descriptor left for the look: that may pass.
    """
    ports, sockets = ports_of(connection_info), _sockets_of(connection_info)
    try:
        if ports:
            return set(ports) <= look()
        if sockets:
            accepting = procfs.unix_listeners()
            return all(path in accepting for path in sockets)
    except OSError:
        return False
    return None


class StartUp:
    """Whether a launch is still starting: then it has no cell that could be interrupted."""

    def __init__(self) -> None:
        self.waiting = False
        self._ended_at = 0.0

    async def wait(
        self, connection_info: Mapping[str, Any], has_ended: Callable[[], bool], timeout: float
    ) -> bool:
        """As :func:`wait_until_ready`."""
        self.waiting = True
        try:
            return await wait_until_ready(connection_info, has_ended, timeout)
        finally:
            self.waiting = False
            self._ended_at = time.monotonic()

    async def takes_interrupt(self, in_a_hurry: bool) -> bool:
        """Whether to send one. Waits for the moment between the ports and the handler.

        ``in_a_hurry``: the kernel is about to be shut down, the interrupt is not worth it.
        """
        if self.waiting:
            return False
        remaining = self._ended_at + _SETTLING - time.monotonic()
        if remaining > 0:
            if in_a_hurry:
                return False
            await asyncio.sleep(remaining)
        return True


async def wait_until_ready(
    connection_info: Mapping[str, Any], has_ended: Callable[[], bool], timeout: float
) -> bool:
    """Wait for the ports, for the kernel's end, or for ``timeout`` seconds.

    True when the ports listen. Never raises: a kernel that does not bind its ports is
    started all the same, and whoever talks to it will see.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not has_ended():
        ready = is_ready(connection_info, _listening_just_now)
        if ready is not False:
            return bool(ready)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        await asyncio.sleep(min(pause, remaining))
        pause = min(pause * 1.2, _LONGEST_PAUSE)
    return False
