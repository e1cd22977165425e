"""Warm starts against the stock server, alternating in one run. Prints a table, or JSON.

``python benchmarks/warm_starts.py [--rounds 20] [--preload PYTHON] [--json FILE]``

Each number is a median. Stock and owned servers run at the same time and are asked in
turn, so that load of the machine hits both. ``PYTHON`` has numpy, pandas and matplotlib.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _servers import Server, serving, started

STANDBY = 1


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(r[name] for r in rows), 1) for name in rows[0]}


async def first_result(server: Server, code: str) -> dict[str, float]:
    times: dict[str, float] = {}
    begun = time.perf_counter()
    async with started(server, times) as kernel:
        cell = time.perf_counter()
        await kernel.run(code)
        done = time.perf_counter()
        times["first_cell"] = 1000 * (done - cell)
        times["total"] = 1000 * (done - begun)
        cell = time.perf_counter()
        await kernel.run("2 + 2")
        times["next_cell"] = 1000 * (time.perf_counter() - cell)
    return times


async def rounds(servers: dict[str, Server], count: int, code: str) -> dict[str, Any]:
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for number in range(count + 1):
        for name, server in servers.items():
            if name != "stock":
                await asyncio.to_thread(server.wait_until_warm, STANDBY if number else 0)
            times = await first_result(server, code)
            if number:  # The first one fills caches, and makes profile and history.
                rows[name].append(times)
    return {name: median(found) for name, found in rows.items()}


async def at_once(server: Server, count: int) -> dict[str, float]:
    begun = time.perf_counter()
    ready = asyncio.Event()
    waiting = [count]

    async def one() -> None:
        async with started(server, {}) as kernel:
            await kernel.run("1")
            waiting[0] -= 1
            if not waiting[0]:
                ready.set()
            await ready.wait()

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await ready.wait()
    wall = time.perf_counter() - begun
    memory = private_memory(server.process.pid)
    await asyncio.gather(*tasks)
    return {"wall_s": round(wall, 2), "private_mb_per_kernel": round(memory, 1)}


def private_memory(root: int) -> float:
    """Median of private megabytes of the processes that show a connection file."""
    found = []
    for pid in below(root):
        try:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        if b"kernel-" in shown and b".json" in shown:
            lines = [line.split() for line in rollup.splitlines()]
            private = sum(int(line[1]) for line in lines if line[0].startswith("Private_"))
            found.append(private / 1024)
    return statistics.median(found) if found else 0.0


def below(root: int) -> list[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {root})
        found |= more


def owned_arguments(*more: str) -> list[str]:
    return [f"--OwnedKernels.standby={STANDBY}", *more]


def compare(count: int, code: str, python: str, *more: str) -> dict[str, Any]:
    with (
        serving(False, python=python) as stock,
        serving(True, *owned_arguments(*more), python=python) as owned,
    ):
        owned.wait_until_warm(0)
        servers = {"stock": stock, "owned": owned}
        return asyncio.run(rounds(servers, count, code))


def many(count: int) -> dict[str, Any]:
    found = {}
    for name in ("stock", "owned"):
        arguments = owned_arguments() if name == "owned" else []
        with serving(name == "owned", *arguments) as server:
            if name == "owned":
                server.wait_until_warm(0)
            asyncio.run(at_once(server, 1))
            found[name] = asyncio.run(at_once(server, count))
    return found


def server_start(count: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {"stock": [], "owned": []}
    for _ in range(count):
        for name, times in found.items():
            with serving(name == "owned") as server:
                times.append(server.start_ms)
    return {name: {"start_ms": round(statistics.median(t), 1)} for name, t in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--many", type=int, default=50)
    parser.add_argument("--preload", metavar="PYTHON", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    modules = "numpy,pandas,matplotlib.pyplot"
    imports = "import pandas, matplotlib.pyplot"
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "first_result": lambda: compare(options.rounds, "1 + 1", sys.executable),
        "at_once": lambda: many(options.many),
        "server_start": lambda: server_start(max(options.rounds // 3, 3)),
    }
    if options.preload:
        preload = f"--OwnedKernels.warm_preload={modules}"
        parts["preload"] = lambda: compare(options.rounds, imports, options.preload, preload)
    results = {}
    for name, measure in parts.items():
        if options.only and name not in options.only.split(","):
            continue
        results[name] = measure()
        print(f"{name} (load {os.getloadavg()[0]:.1f})")
        for who, row in results[name].items():
            print(f"  {who:6}", "  ".join(f"{key} {value:g}" for key, value in row.items()))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
