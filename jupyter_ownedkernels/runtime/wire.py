"""The messages between owner, spawner and keeper.

Transport: a ``SOCK_SEQPACKET`` socket pair, so that one send is one message (a stream
would need a length, and two messages in one read are a bug waiting to happen). A
message is one JSON object with an ``op``; file descriptors travel beside it. What does
not fit into a packet (an environment may be megabytes) goes into an anonymous file
whose descriptor is sent last.

Version rule: a receiver ignores fields and ops that it does not know.

Owner to spawner, on the control socket
    ``launch``    LaunchRequest; descriptors: the keeper's end of the lease, stdin, stdout, stderr;
                  for a standby kernel the channel on which it is claimed (warm/standby.py)
Warm spawner to owner, on the control socket
    ``warm``      once, when it can fork or knows that it cannot: ``state`` (``ready``, ``unfit``),
                  ``reason``, ``troubles`` with the preload, ``welcomes``
Owner to keeper, on the lease
    ``ready``     the kernel accepts connections: look for the kernel process once
    ``signal``    ``signum``; to the kernel process and descendants in its process group
    ``claim``     a standby kernel gets its place: ``request``, what of the launch is new
    ``retire``    ``grace`` in seconds; 0 sends SIGKILL at once. A second one only hastens
    ``finish``    after the end: the owner has done its part, the keeper need not stay for it
Keeper to owner, on the lease
    ``started``   ``keeper``, ``process`` (``pid``, ``start_ticks``), ``session``; a pidfd
    ``failed``    ``stage``, ``errno``, ``text``, ``filename``
    ``kernel``    the kernel process, once known: ``pid``, ``start_ticks``, ``session``
    ``signalled`` ``sent``, ``denied``: how many processes were and could not be signalled;
                  ``errno`` of what else went wrong. The answer to each ``signal``, in order
    ``exited``    ``status`` (negative: signal), ``core``, ``max_rss``, ``cpu_s``, ``oom``
    ``retired``   ``survivors``: what was left, each with its reason
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

# Below the smallest default of net.core.wmem_default (212992) by a wide margin.
INLINE_LIMIT = 32 * 1024
MAX_FDS = 8
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

Message = dict[str, Any]


class Closed(Exception):
    """The other end is closed: for a lease this means that it has ended."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep message boundaries, both close-on-exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _anonymous_file(payload: bytes) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ownedkernels-message", os.MFD_CLOEXEC)
    else:
        import tempfile  # It brings in half the library, and Linux never gets here.

        fd, path = tempfile.mkstemp()
        os.unlink(path)
    try:
        view = memoryview(payload)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message. The descriptors stay open here: closing them is the caller's.

    Raises Closed when nobody can receive it any more, BlockingIOError when a
    non-blocking socket is full.
    """
    payload = json.dumps(message).encode("ascii")
    spill = -1
    try:
        if len(payload) > INLINE_LIMIT:
            spill = _anonymous_file(payload)
            payload = b'{"op":"spilled"}'
            fds = [*fds, spill]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sock.sendmsg([payload], rights, getattr(socket, "MSG_NOSIGNAL", 0))
        except (BrokenPipeError, ConnectionResetError, ConnectionRefusedError):
            raise Closed from None
    finally:
        if spill >= 0:
            os.close(spill)


def receive(sock: socket.socket, flags: int = 0) -> tuple[Message, list[int]]:
    """Receive one message and the descriptors that came with it (all close-on-exec).

    Raises Closed at the end of file, BlockingIOError with ``MSG_DONTWAIT`` when there
    is nothing to read, and OSError when this process has no descriptor left for the file
    that holds the message. Other descriptors may be missing then: callers count them.
    """
    try:
        payload, ancillary, outcome, _ = sock.recvmsg(
            2 * INLINE_LIMIT, socket.CMSG_SPACE(MAX_FDS * 4), flags | _CLOEXEC
        )
    except ConnectionResetError:
        raise Closed from None
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not payload:
        close(fds)
        raise Closed
    message: Message = json.loads(payload)
    if message.get("op") == "spilled":
        if outcome & socket.MSG_CTRUNC or not fds:
            close(fds)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        spill = fds.pop()
        with open(spill, "rb") as stream:
            stream.seek(0)
            message = json.load(stream)
    return message, list(fds)


def close(fds: Sequence[int]) -> None:
    """Close descriptors; one that is closed already is no error."""
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass
