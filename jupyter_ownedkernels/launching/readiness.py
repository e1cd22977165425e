"""Waiting until a kernel's ports accept connections.

A client that connects before the kernel has bound its ports loses ZeroMQ's reconnect
interval (100 ms), and the server's nudge then adds steps of 500 ms. So a launch is
called ready when the ports listen. They are looked up in the kernel's list of
listening sockets, which opens no connection: a kernel that is not built on libzmq may
take a connection without a handshake for an error.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..runtime import procfs

# The heartbeat is left out: no front end waits for it, and some kernels bind it late.
_NEEDED = ("shell_port", "iopub_port", "stdin_port", "control_port")
# ipykernel binds its ports first, and a little later says what SIGINT is to do: 2 ms at
# most, if it is let run.
_SETTLING = 0.25
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_DONE = 3
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_TCP_LISTEN = 10
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_has_sock_diag = hasattr(socket, "AF_NETLINK")
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
    global _has_sock_diag
    if _has_sock_diag:
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
                link.settimeout(1.0)
                return set().union(*(_dump(link, family) for family in _FAMILIES))
        except (OSError, struct.error):
            # An old kernel, or a container that forbids it.
            _has_sock_diag = False
    return set(procfs.tcp_listeners())


def _dump(link: socket.socket, family: int) -> set[int]:
    """Ask the kernel for listening sockets only: inet_diag_req_v2 and its answers.

    In /proc/net/tcp the kernel goes through its table of all connections to find that
    there are none: 4 to 6 ms for each look, this 0.1 to 1.
    """
    request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, 1 << _TCP_LISTEN)
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 1, 0)
    link.send(header + request)
    ports: set[int] = set()
    while True:
        answer, offset = link.recv(1 << 17), 0
        while offset < len(answer):
            length, kind = struct.unpack_from("=IH", answer, offset)
            if kind == _NLMSG_DONE:
                return ports
            if kind != _SOCK_DIAG_BY_FAMILY:
                raise OSError("the kernel does not list sockets")
            # After a header of 16 bytes and four of family, state and timers.
            ports.add(struct.unpack_from("!H", answer, offset + 20)[0])
            offset += (length + 3) & ~3


def is_ready(
    connection_info: Mapping[str, Any], listening: Callable[[], set[int]] = _listening
) -> bool | None:
    """Whether all needed ports listen. None: this connection cannot be looked at."""
    ports, sockets = ports_of(connection_info), _sockets_of(connection_info)
    if ports:
        return set(ports) <= listening()
    if sockets:
        accepting = procfs.unix_listeners()
        return all(path in accepting for path in sockets)
    return None


class StartUp:
    """Whether a launch is still starting: then it has no cell that could be interrupted."""

    def __init__(self) -> None:
        self.waiting = False
        self._ended_at = 0.0

    async def wait(
        self, connection_info: Mapping[str, Any], has_ended: Callable[[], bool], timeout: float
    ) -> None:
        """As :func:`wait_until_ready`."""
        self.waiting = True
        try:
            await wait_until_ready(connection_info, has_ended, timeout)
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
