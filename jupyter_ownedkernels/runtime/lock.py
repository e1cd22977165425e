"""The lock that an owner holds on its journal for as long as it lives.

The system lets go of it with the process, however it ends. It is a second witness of a
live owner beside its identity, never the only one: on some file systems nobody can
lock, and a process that was forked from the owner without exec may hold it longer.
"""

from __future__ import annotations

import enum
import errno
import os
import sys
import time

from . import records

if sys.platform != "win32":
    import fcntl

READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_PROBES = 8
_PAUSE = 0.002


class Lock(enum.Enum):
    """The three answers to "does somebody hold it?"."""

    LOCKED = "locked"
    FREE = "free"
    UNKNOWN = "unknown"
    """Not supported here (network homes, Windows), or not to be found out."""


def take(fd: int) -> Lock:
    """Try to lock an open file. FREE means that it was free and is the caller's now."""
    answer = Lock.UNKNOWN
    for _ in range(_PROBES):
        answer = _try(fd, shared=False)
        if answer is not Lock.LOCKED:
            break
        # A probe of is_locked() holds the file for some microseconds.
        time.sleep(_PAUSE)
    return answer


def is_locked(path: str) -> Lock:
    """Whether some process holds the journal's lock; FREE when it is gone. Never raises."""
    return _probe(path) or Lock.FREE


def is_abandoned(path: str) -> bool:
    """Whether the journal is there and nobody holds its lock. Never raises.

    Its owner may live all the same: it let go, or has become another program (exec).
    """
    return _probe(path) is Lock.FREE


def _probe(path: str) -> Lock | None:
    for _ in range(_PROBES):
        try:
            fd = os.open(path, READ_FLAGS)
        except FileNotFoundError:
            return None
        except OSError:
            return Lock.UNKNOWN
        try:
            answer = _try(fd, shared=True)
            # A compaction lets go of the old file when the new one stands locked in its place.
            if answer is not Lock.FREE or records.is_at(fd, path):
                return answer
        finally:
            os.close(fd)
    return Lock.UNKNOWN


def _try(fd: int, shared: bool) -> Lock:
    if sys.platform == "win32":
        return Lock.UNKNOWN
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        busy = error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
        return Lock.LOCKED if busy else Lock.UNKNOWN
    return Lock.FREE
