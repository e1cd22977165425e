"""Kernels boot a few at a time: more of them at once would only be in each other's way.

Fifty that start together share two processors, and one file with IPython's history that
SQLite lets one of them write at a time. The others sleep for up to 100 ms before they try
again, while the one with the lock waits for a processor: they took 2.7 s, where four at a
time are there after 1.9 s, with the first of them much sooner.
"""

from __future__ import annotations

import contextlib
import os
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


class Turns:
    """How many of the spawner's kernels are in their boot now."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._most = len(os.sched_getaffinity(0)) + _MORE
        self._taken: list[float] = []

    @property
    def fds(self) -> tuple[int, int]:
        """What the spawner reads when a boot is over, and what its kernels write to."""
        return self._reader, self._writer

    def take(self) -> None:
        """A kernel begins to boot."""
        self._taken.append(time.monotonic())

    def pause(self) -> float | None:
        """Seconds until the next kernel may begin, unless another is done before. None: now."""
        with contextlib.suppress(BlockingIOError):
            del self._taken[: len(os.read(self._reader, len(self._taken) + 1))]
        begun = time.monotonic() - PATIENCE
        self._taken = [since for since in self._taken if since > begun]
        if len(self._taken) < self._most:
            return None
        return max(self._taken[0] - begun, 0.0)


def end_with_boot(writer: int) -> None:
    """Called in the forked child, before the kernel's module runs: its turn ends once it has a
    shell, before any code of the user. ipykernel is left as it was.
    """
    application: Any = sys.modules["ipykernel.kernelapp"].IPKernelApp
    init_kernel = application.init_kernel

    def last_of_boot(app: Any) -> None:
        application.init_kernel = init_kernel
        try:
            init_kernel(app)
        finally:
            # The spawner is gone, or has not read for long.
            with contextlib.suppress(OSError):
                os.write(writer, b".")
            os.close(writer)

    application.init_kernel = last_of_boot
