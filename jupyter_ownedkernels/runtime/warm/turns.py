"""Kernels boot a few at a time: more of them at once would only be in each other's way.

Fifty that start together share two processors, and one file with IPython's history that
SQLite lets one of them write at a time. The others sleep for up to 100 ms before they try
again, while the one with the lock waits for a processor: they took 2.7 s, where four at a
time are there after 1.9 s, with the first of them much sooner.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from typing import Any

# Than there are processors: some wait for a disk or for a lock.
_MORE = 2
# Seconds. A boot takes 30 ms, with three others 60 to 120. What takes longer (a file of the
# user's that is slow, a kernel that was stopped, or has died) holds nobody up.
PATIENCE = 0.25
# Seconds that a launch may wait for each one that was asked for before it.
LONGEST = PATIENCE / (1 + _MORE)


# Who has booted: the number of its keeper.
_WORD = struct.Struct("=i")


class Turns:
    """Which of the spawner's kernels are in their boot now."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._most = len(os.sched_getaffinity(0)) + _MORE
        self._taken: dict[int, float] = {}
        """By the number of the keeper, since when."""

    @property
    def fds(self) -> tuple[int, int]:
        """What the spawner reads when a boot is over, and what its kernels write to."""
        return self._reader, self._writer

    def take(self, keeper: int) -> None:
        """The kernel of this keeper begins to boot."""
        self._taken[keeper] = time.monotonic()

    def end(self, keeper: int) -> None:
        """It has booted, or is gone."""
        self._taken.pop(keeper, None)

    def pause(self) -> float | None:
        """Seconds until the next kernel may begin, unless another is done before. None: now."""
        with contextlib.suppress(BlockingIOError):
            for (keeper,) in _WORD.iter_unpack(os.read(self._reader, 1024 * _WORD.size)):
                self.end(keeper)
        begun = time.monotonic() - PATIENCE
        self._taken = {keeper: since for keeper, since in self._taken.items() if since > begun}
        if len(self._taken) < self._most:
            return None
        return max(min(self._taken.values()) - begun, 0.0)


def end_with_boot(writer: int) -> None:
    """Called in the forked child, before the kernel's module runs: its turn ends once it has a
    shell, before extensions, startup files and cells. ipykernel is left as it was.
    """
    application: Any = sys.modules["ipykernel.kernelapp"].IPKernelApp
    init_kernel = application.init_kernel
    pipe = _identity(writer)

    def last_of_boot(app: Any) -> None:
        application.init_kernel = init_kernel
        try:
            init_kernel(app)
        finally:
            # The spawner may be gone. A configuration file may have closed all descriptors: then
            # the number is somebody else's now.
            if _identity(writer) == pipe:
                with contextlib.suppress(OSError):
                    os.write(writer, _WORD.pack(os.getppid()))
                os.close(writer)

    application.init_kernel = last_of_boot


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino
