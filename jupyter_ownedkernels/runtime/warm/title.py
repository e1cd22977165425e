"""What /proc, ``ps`` and ``top`` show of a forked kernel: its own argv and environment.

A fork keeps the argument area of the template. Linux lets a process name another area
of its memory (PR_SET_MM_MAP, no privilege needed since 3.18 where the kernel was built
with CONFIG_CHECKPOINT_RESTORE), so /proc/PID/cmdline and environ of a forked kernel are
byte for byte those of an executed one: whoever looks for the connection file's path or
for the launch marker finds it. Where that is refused the line is written over the template's,
if it is not longer; the environment then stays the template's, with the owner's marker.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Mapping, Sequence

_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
# Columns of /proc/self/stat, counted after the name, that PR_SET_MM_MAP must repeat.
_START_CODE, _END_CODE, _START_STACK = 23, 24, 25
_START_DATA, _END_DATA, _START_BRK = 42, 43, 44
_ARG_START, _ARG_END = 45, 46

# The areas are this process's argv from then on: they must never be collected.
_areas: list[mmap.mmap] = []


_ADDRESSES = (
    "start_code end_code start_data end_data start_brk brk start_stack "
    "arg_start arg_end env_start env_end auxv"
)


class _Map(ctypes.Structure):
    """struct prctl_mm_map"""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in _ADDRESSES.split()),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


def show(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Show these as the process's own. False when the system does not let us."""
    if not sys.platform.startswith("linux"):
        return False
    arguments = b"".join(os.fsencode(part) + b"\0" for part in argv)
    variables = b"".join(
        os.fsencode(name) + b"=" + os.fsencode(value) + b"\0" for name, value in environment.items()
    )
    try:
        return _point_at(arguments, variables) or _write_over(arguments)
    except (OSError, ValueError, AttributeError, ctypes.ArgumentError):
        return False


def _columns() -> list[bytes]:
    with open("/proc/self/stat", "rb") as stream:
        raw = stream.read()
    return raw[raw.rindex(b")") + 2 :].split()


def _write_over(arguments: bytes) -> bool:
    """In place: what is left of the template's line is filled with zeros."""
    columns = _columns()
    start, end = int(columns[_ARG_START]), int(columns[_ARG_END])
    if not 0 < start < start + len(arguments) <= end:
        return False
    ctypes.memmove(start, arguments.ljust(end - start, b"\0"), end - start)
    return True


def _point_at(arguments: bytes, variables: bytes) -> bool:
    columns = _columns()
    # Private: /proc shows anonymous memory only, and a shared area counts as a file.
    area = mmap.mmap(-1, len(arguments) + len(variables) + 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.write(arguments + variables)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    split = start + len(arguments)
    wanted = _Map(
        start_code=int(columns[_START_CODE]),
        end_code=int(columns[_END_CODE]),
        start_data=int(columns[_START_DATA]),
        end_data=int(columns[_END_DATA]),
        start_brk=int(columns[_START_BRK]),
        brk=libc.sbrk(ctypes.c_long(0)),
        start_stack=int(columns[_START_STACK]),
        arg_start=start,
        arg_end=split,
        env_start=split,
        env_end=split + len(variables),
        auxv=0,
        auxv_size=0,
        exe_fd=0xFFFFFFFF,
    )
    done: int = libc.prctl(
        _PR_SET_MM,
        ctypes.c_ulong(_PR_SET_MM_MAP),
        ctypes.byref(wanted),
        ctypes.c_ulong(ctypes.sizeof(wanted)),
        ctypes.c_ulong(0),
    )
    if done != 0:
        return False
    _areas.append(area)
    return True
