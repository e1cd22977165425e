"""Many warm starts at once, imports done beforehand, memory, and what a server's start pays.

Stock and owned servers take turns, so that load of the machine hits both alike. One start
at a time is measured by start_to_reply.py.
"""

from __future__ import annotations

import asyncio
import compileall
import importlib.util
import os
import statistics
import sys
import time
from pathlib import Path

from _common import OURS, STOCK, announce, arguments, median, ratio, table
from _servers import Server, serving, started
from support.owner import Owner, OwnerError
from support.workspace import Workspace
from tornado.httpclient import HTTPClientError

import jupyter_ownedkernels

MODULES = "numpy,pandas,matplotlib.pyplot"
IMPORTS = "import pandas, matplotlib.pyplot"
# Seconds in which no further kernel has run its cell. Fifty of the stock stack need 21 for all
# of them; now and then one loses a port to another kernel and never answers, nor is it restarted.
SILENCE = 60.0
ATTEMPTS = 4
BY_MANAGER = """
async def many(count):
    managers = [new_manager(f"one of many {n}", spec, "AsyncKernelManager") for n in range(count)]

    async def one(manager):
        manager.ip = "127.0.0.1"
        await manager.start_kernel()
        client_ = manager.client()
        client_.start_channels()
        try:
            await client_.kernel_info(reply=True, timeout=silence)
        finally:
            client_.stop_channels()

    begun = time.perf_counter()
    tasks = [asyncio.ensure_future(one(manager)) for manager in managers]
    try:
        await asyncio.gather(*tasks)
        return time.perf_counter() - begun
    finally:
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(manager.shutdown_kernel(now=True) for manager in managers))

result = asyncio.run(many(count))
"""


class NeverAnswered(Exception):
    """Some kernels have not run their first cell, and none will."""


async def at_once(server: Server, count: int) -> tuple[float, float]:
    """Seconds until ``count`` kernels have each run a cell; private megabytes of one.

    NeverAnswered after SILENCE; what a start raises is raised at once.
    """
    begun = time.perf_counter()
    measured = asyncio.Event()
    answers: asyncio.Queue[None] = asyncio.Queue()

    async def one() -> None:
        async with started(server, {}) as kernel:
            await kernel.run("1")
            answers.put_nowait(None)
            await measured.wait()

    async def hear() -> None:
        for missing in range(count, 0, -1):
            try:
                await asyncio.wait_for(answers.get(), SILENCE)
            except asyncio.TimeoutError:
                raise NeverAnswered(f"{missing} of {count} kernels never answered") from None

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    hearing = asyncio.create_task(hear())
    first, _ = await asyncio.wait([hearing, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in first:
        await task
    wall = time.perf_counter() - begun
    memory = private_memory(server.process.pid)
    measured.set()
    await asyncio.gather(*tasks)
    return wall, memory


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


def many_by_manager(count: int, rounds: int) -> list[tuple[str, ...]]:
    """Seconds until each of ``count`` has replied for the first time, in one asyncio program."""
    taken: dict[str, list[float]] = {STOCK: [], OURS: []}
    workspace = Workspace()
    try:
        spec = workspace.python("many")
        for _ in range(rounds):
            for provisioner, times in taken.items():
                once = at_once_by_manager(workspace, spec, provisioner, count)
                if once is None:
                    print(f"not measured: {count} kernels of {provisioner}", file=sys.stderr)
                    return []
                times.append(once)
    finally:
        workspace.close()
    before, after = median(taken[STOCK]), median(taken[OURS])
    what = f"{count} kernels at once, by a manager to the first reply, s"
    return [(what, f"{before:.2f}", f"{after:.2f}", ratio(before, after))]


def at_once_by_manager(
    workspace: Workspace, spec: str, provisioner: str, count: int
) -> float | None:
    for _ in range(ATTEMPTS):
        with Owner(workspace, provisioner=provisioner, python=()) as owner:
            owner.set(warm="auto" if provisioner == OURS else "off", standby=0)
            owner.run(BY_MANAGER, spec=spec, count=1, silence=SILENCE)
            if provisioner == OURS:
                owner.wait_until_warm(0)
            try:
                given = {"spec": spec, "count": count, "silence": SILENCE}
                return float(owner.run(BY_MANAGER, 4 * SILENCE, **given))
            except OwnerError as error:
                print(f"{provisioner}: {error.kind}: {error.text}", file=sys.stderr)
    return None


def many(count: int) -> list[tuple[str, ...]]:
    stock, ours = stock_at_once(count), on_a_server(True, count)
    if stock is None:
        print(f"not measured: {count} kernels at once, of the stock stack", file=sys.stderr)
        return []
    (wall, memory), (our_wall, our_memory) = stock, ours
    what = f"{count} kernels at once, by a server to the first cell, s"
    return [
        (what, f"{wall:.2f}", f"{our_wall:.2f}", ratio(wall, our_wall)),
        (
            "MB of its own per kernel",
            f"{memory:.1f}",
            f"{our_memory:.1f}",
            ratio(memory, our_memory),
        ),
    ]


def stock_at_once(count: int) -> tuple[float, float] | None:
    """Again when a kernel never answers: what all of them take is to be known."""
    for _ in range(ATTEMPTS):
        try:
            return on_a_server(False, count)
        except (NeverAnswered, HTTPClientError) as error:
            # Or it was restarted until it was given up, and then is not there any more.
            print(f"stock stack: {error}", file=sys.stderr)
    return None


def on_a_server(owned: bool, count: int) -> tuple[float, float]:
    with serving(owned) as server:
        if owned:
            server.wait_until_warm(0)
        asyncio.run(at_once(server, 1))
        return asyncio.run(at_once(server, count))


def with_imports(rounds: int) -> list[tuple[str, ...]]:
    """POST until a cell that imports pandas and matplotlib is done; one start at a time."""
    if any(importlib.util.find_spec(name.partition(".")[0]) is None for name in MODULES.split(",")):
        print(f"not measured: a first cell with imports needs {MODULES}", file=sys.stderr)
        return []

    async def run(server: Server) -> float:
        begun = time.perf_counter()
        async with started(server, {}) as kernel:
            await kernel.run(IMPORTS)
            return 1000 * (time.perf_counter() - begun)

    async def turns(stock: Server, ours: Server) -> dict[Server, list[float]]:
        taken: dict[Server, list[float]] = {stock: [], ours: []}
        for number in range(rounds + 1):
            for server, times in taken.items():
                if server is ours:
                    await asyncio.to_thread(server.wait_until_warm, 1 if number else 0)
                once = await run(server)
                if number:  # The first one fills caches, and makes profile and history.
                    times.append(once)
        return taken

    with serving(False) as stock, serving(True, f"--OwnedKernels.warm_preload={MODULES}") as ours:
        taken = asyncio.run(turns(stock, ours))
        before, after = median(taken[stock]), median(taken[ours])
    return [(f"POST to `{IMPORTS}`, ms", f"{before:.0f}", f"{after:.0f}", ratio(before, after))]


def server_start(rounds: int) -> list[tuple[str, ...]]:
    times: dict[bool, list[float]] = {False: [], True: []}
    # As at an installation: the stock packages have their byte code.
    compileall.compile_dir(Path(jupyter_ownedkernels.__file__).parent, quiet=1)
    for _ in range(rounds):
        for owned, taken in times.items():
            with serving(owned) as server:
                taken.append(server.start_ms)
    stock, ours = (statistics.median(times[owned]) for owned in (False, True))
    return [("start of the server, ms", f"{stock:.0f}", f"{ours:.0f}", ratio(stock, ours))]


def main() -> None:
    parser = arguments(__doc__ or "", 20)
    parser.add_argument("--many", type=int, default=50, help="kernels at once")
    options = parser.parse_args()
    announce(parser, options)
    rows = [*many_by_manager(options.many, 5), *many(options.many)]
    rows += [*with_imports(options.rounds), *server_start(options.rounds)]
    table(("measured, median", "stock", "owned", "times better"), rows)
    print("Goals: a fifth of stock, half, a twentieth; a server's start not 50 ms longer.")


if __name__ == "__main__":
    main()
