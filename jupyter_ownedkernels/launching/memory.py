"""Whether there is memory to spare for what is only made ready."""

from __future__ import annotations

import os

from ..runtime import oom

# Below a tenth of what there is, or below what a kernel with a few libraries needs.
_SHARE = 10
_LEAST = 256 << 20


def is_low() -> bool:
    """Of the machine, or of the control group (a container) that this process is in."""
    return any(map(_is_short, (_of_machine(), oom.memory_of(os.getpid()).room())))


def _is_short(room: tuple[int, int] | None) -> bool:
    if room is None:
        return False
    total, free = room
    return free < max(total // _SHARE, _LEAST)


def _of_machine() -> tuple[int, int] | None:
    """All of it, and what programs could have, in bytes."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            found = dict(line.split(":", 1) for line in stream)
        total, free = (int(found[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    return total, free
