"""Fewer pages of the template that a kernel writes to, and so has to copy.

A copied page is 4 KB of a kernel's own memory and some microseconds of its start: a third of
a forked kernel's boot. Python writes to whatever it looks at, since it counts references.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# Bytes. Larger chunks than the largest come from pages of their own. glibc gives the small ones
# of each multiple of 16 to requests of that size only, at first.
_LARGEST_CHUNK = 1 << 16
_LARGEST_SMALL_CHUNK = 1032
_SMALLEST_CHUNK = 24
# Ten times what was seen. None of it is written to.
_MOST_BYTES = 1 << 24


class _MallInfo(ctypes.Structure):
    """``struct mallinfo``; ``top`` is what is free at the end of the heap."""

    _fields_ = (("others", ctypes.c_int * 9), ("top", ctypes.c_int))


def lay_paths_side_by_side() -> None:
    """New strings for the modules' ``__file__``, one beside the other.

    ipykernel looks at each of them when a kernel starts, for its debugger. They lie where the
    imports have left them, one to a page: 0.9 MB of 17.
    """
    for module in list(sys.modules.values()):
        # Past what a module of its own kind may have to say about being written to.
        content: Any = getattr(module, "__dict__", None)
        if isinstance(content, dict) and type(content.get("__file__")) is str:
            content["__file__"] = (content["__file__"] + "/")[:-1]


def fill_holes() -> int:
    """Use up what the imports have freed again in the C library's heap.

    What a kernel allocates then lies together behind it, not in a hole of another page each
    time: 0.9 MB of 17, mostly of the environment, sqlite and ZeroMQ. Answers the bytes that
    were filled, 0 with another C library than glibc.
    """
    libc: Any = ctypes.CDLL(None)
    if not all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallinfo", "sbrk")):
        return 0
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    libc.mallinfo.restype = _MallInfo
    end = libc.sbrk(0) - libc.mallinfo().top
    filled, size = 0, _LARGEST_CHUNK
    while size >= _SMALLEST_CHUNK and filled < _MOST_BYTES:
        chunk = libc.malloc(size)
        if chunk is not None and chunk < end:
            filled += size
            continue
        # From the end of the heap, or from a library that replaces malloc: no such hole.
        libc.free(chunk)
        is_small = size <= _LARGEST_SMALL_CHUNK
        size = size - 16 if is_small else max(size - size // 8, _LARGEST_SMALL_CHUNK)
    return filled
