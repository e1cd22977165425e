"""What the benchmarks share: owners of both kinds, waiting without polling, tables."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import census
from support.census import Proc

OURS = "owned-provisioner"
STOCK = "local-provisioner"
# A kernel that a stock owner leaves behind stays for ever; after this long it is called so.
NEVER = 4.0


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    """The command line of a benchmark, for one that adds to it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="measurements of each kind")
    return parser


def announce(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """The machine, for whoever reads the table."""
    system = os.uname()
    print(
        f"{parser.description}\n{system.sysname} {system.release}, {os.cpu_count()} processors, "
        f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}, "
        f"{parsed.rounds} rounds\n",
        flush=True,
    )


def options(description: str, rounds: int) -> argparse.Namespace:
    """The command line of a benchmark that has no options of its own."""
    parser = arguments(description, rounds)
    parsed = parser.parse_args()
    announce(parser, parsed)
    return parsed


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns: the first to the left, numbers to the right."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
    print()


def milliseconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds * 1000:.1f}"


def median(values: Sequence[float | None]) -> float | None:
    """The middle one, where None is longer than anything."""
    return sorted(values, key=lambda one: float("inf") if one is None else one)[len(values) // 2]


def longest(values: Sequence[float | None]) -> float | None:
    return None if None in values else max(value for value in values if value is not None)


def ratio(stock: float | None, ours: float | None) -> str:
    """How many times faster ours is."""
    if ours is None:
        return "-"
    return "inf" if stock is None else f"{stock / ours:.1f}"


def kill_and_time(owner: Proc, procs: Iterable[Proc]) -> float | None:
    """SIGKILL for the owner; seconds until the last of the others has ended, None for never.

    Waits on pidfds: looking at /proc again and again would take the processor away from
    those who do the work.
    """
    fds = {}
    for proc in procs:
        try:
            fds[os.pidfd_open(proc.pid)] = proc
        except ProcessLookupError:
            continue
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    owner_fd = os.pidfd_open(owner.pid)
    begun = time.perf_counter()
    signal.pidfd_send_signal(owner_fd, signal.SIGKILL)
    os.close(owner_fd)
    try:
        while fds:
            left = NEVER - (time.perf_counter() - begun)
            ready = poller.poll(left * 1000) if left > 0 else []
            if not ready:
                return None
            for fd, _ in ready:
                poller.unregister(fd)
                os.close(fd)
                del fds[fd]
        return time.perf_counter() - begun
    finally:
        census.end(fds.values())
        for fd in fds:
            os.close(fd)
