"""Sleeping in poll() until a child ends or has told all: what spawner and keeper share."""

from __future__ import annotations

import os
import select
import signal


def watch_children() -> tuple[int, int]:
    """Make SIGCHLD readable: the answer is the reading and the writing end of a pipe.

    The writing end is the process's wake-up descriptor; a forked child that calls this
    again must close the inherited two.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    return reader, writer


def _nothing(signum: int, frame: object) -> None:
    """A handler in Python is what makes the wake-up descriptor work."""


def drain(fd: int) -> None:
    """Empty a non-blocking pipe."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def read_all(fd: int, poller: select.poll, timeout: float | None = None) -> bytes | None:
    """What a child writes to a pipe, until its end or until ``timeout`` seconds pass in silence.

    None when ``poller`` has something else to tell first: whoever waits has to give it up.
    """
    poller.register(fd, select.POLLIN)
    told = b""
    while ready := poller.poll(milliseconds(timeout)):
        if fd not in [one for one, _ in ready]:
            return None
        chunk = os.read(fd, 65536)
        if not chunk:
            break
        told += chunk
    return told


def milliseconds(pause: float | None) -> int | None:
    """For poll(). Rounded up, so that a wait of 0.4 ms is not a busy loop of zeros."""
    return None if pause is None else int(pause * 1000 + 0.999)
