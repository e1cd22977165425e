"""Linux calls that tie a process to its parent; each is a no-op where it is missing."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def _prctl(option: int, value: int | bytes) -> bool:
    if _libc is None:
        return False
    argument = ctypes.c_ulong(value) if isinstance(value, int) else ctypes.c_char_p(value)
    return bool(_libc.prctl(option, argument, 0, 0, 0) == 0)


def become_subreaper() -> bool:
    """Orphans below the caller become its children instead of pid 1's."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """SIGKILL for the caller when the *thread* that forked it ends.

    Not retroactive: the caller must compare getppid() with the expected parent after
    this call. Not inherited by fork, kept by exec (but for set-uid programs).
    """
    return _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def set_name(name: str) -> bool:
    """What ``ps`` shows as the name; at most 15 bytes."""
    return _prctl(_PR_SET_NAME, name.encode("ascii")[:15])


def _can_get(option: int) -> bool:
    if _libc is None:
        return False
    answer = ctypes.c_int()
    return bool(_libc.prctl(option, ctypes.byref(answer), 0, 0, 0) == 0)


def knows_subreapers() -> bool:
    """Whether :func:`become_subreaper` can work here. Changes nothing."""
    return _can_get(_PR_GET_CHILD_SUBREAPER)


def knows_parent_death_signals() -> bool:
    """Whether :func:`die_with_parent` can work here. Changes nothing."""
    return _can_get(_PR_GET_PDEATHSIG)
