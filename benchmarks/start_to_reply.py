"""From the request for a kernel to its first reply, by a manager and through a real server."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from pathlib import Path

from _common import OURS, STOCK, announce, arguments, longest, median, milliseconds, ratio, table
from _servers import Server, serving, started
from support.owner import Owner
from support.workspace import Workspace

ONE_START = """
async def one():
    manager = new_manager("timed", spec, "AsyncKernelManager")
    manager.ip = "127.0.0.1"  # Where kernels of a server listen, standby ones too.
    begun = time.perf_counter()
    await manager.start_kernel()
    client_ = manager.client()
    client_.start_channels()
    await client_.kernel_info(reply=True, timeout=60)
    taken = time.perf_counter() - begun
    client_.stop_channels()
    await manager.shutdown_kernel(now=True)
    return taken

result = asyncio.run(one())
"""

# What is measured: who launches, `warm`, and how many kernels wait.
KINDS = {
    "stock": (STOCK, "off", 0),
    "owned, executed": (OURS, "off", 0),
    "owned, forked": (OURS, "auto", 0),
    "owned, from standby": (OURS, "auto", 1),
}
WHAT = ("start to first reply", "POST to first result")


def by_manager(workspace: Workspace, rounds: int) -> dict[str, list[float]]:
    """Seconds of each start after the first, which also starts the spawner.

    The kinds take turns, so that whatever else the machine does meets them alike.
    """
    spec = workspace.python("timed")
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}

    with contextlib.ExitStack() as stack:
        owners = {}
        for kind, (provisioner, warm, standby) in KINDS.items():
            owner = Owner(workspace, provisioner=provisioner, python=())
            owners[kind] = stack.enter_context(owner)
            owner.set(warm=warm, standby=standby)
            owner.run(ONE_START, spec=spec)
        for _ in range(rounds):
            for kind, owner in owners.items():
                _, warm, standby = KINDS[kind]
                if warm == "auto":
                    owner.wait_until_warm(standby)
                time.sleep(0.2)
                taken[kind].append(owner.run(ONE_START, spec=spec))
    return taken


async def first_result(server: Server) -> dict[str, float]:
    """Milliseconds of the POST, of opening the WebSocket and of the first cell."""
    parts: dict[str, float] = {}
    async with started(server, parts) as kernel:
        begun = time.perf_counter()
        await kernel.run("6 * 7")
        parts["first cell"] = 1000 * (time.perf_counter() - begun)
    return parts


def by_server(rounds: int) -> dict[str, list[dict[str, float]]]:
    """Through a server of each kind, by turns."""

    async def run(servers: dict[str, Server]) -> dict[str, list[dict[str, float]]]:
        taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for server in servers.values():
            await first_result(server)
        for _ in range(rounds):
            for kind, server in servers.items():
                _, warm, standby = KINDS[kind]
                if warm == "auto":
                    await asyncio.to_thread(server.wait_until_warm, standby)
                # What a server prepares for the next start is ready by then, as in real use.
                await asyncio.sleep(0.2)
                taken[kind].append(await first_result(server))
        return taken

    with contextlib.ExitStack() as stack:
        servers = {
            kind: stack.enter_context(
                serving(
                    provisioner == OURS,
                    f"--OwnedKernels.warm={warm}",
                    f"--OwnedKernels.standby={standby}",
                )
            )
            for kind, (provisioner, warm, standby) in KINDS.items()
        }
        return asyncio.run(run(servers))


def plot(results: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Bars of the medians with every measurement as a dot: a median alone hides the spread."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "jupyter_ownedkernels"
    figure, all_axes = pyplot.subplots(1, len(results), figsize=(9, 2.6), sharey=True)
    kinds = list(KINDS)[::-1]
    for axes, (what, taken) in zip(all_axes, results.items(), strict=True):
        for row, kind in enumerate(kinds):
            times = [1000 * one for one in taken[kind]]
            middle = 1000 * (median(taken[kind]) or 0.0)
            color = "#9e9e9e" if kind == "stock" else "#f37726"
            axes.barh(row, middle, height=0.6, color=color, alpha=0.85)
            axes.plot(times, [row] * len(times), ".", color="#424242", markersize=3, alpha=0.6)
            axes.annotate(
                f"{middle:.0f} ms", (middle, row), (6, 9), textcoords="offset points", fontsize=9
            )
        axes.set_title(what, fontsize=10, loc="left")
        axes.set_xlabel("ms")
        axes.set_xlim(left=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    all_axes[0].set_yticks(range(len(kinds)), kinds)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = arguments(__doc__ or "", 20)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the result (matplotlib)")
    options = parser.parse_args()
    announce(parser, options)
    workspace = Workspace()
    try:
        by_kind = by_manager(workspace, options.rounds)
    finally:
        workspace.close()
    parts = by_server(options.rounds)
    whole = {
        kind: [sum(one.values()) / 1000 for one in measured] for kind, measured in parts.items()
    }
    results = dict(zip(WHAT, (by_kind, whole), strict=True))
    rows = []
    for what, taken in results.items():
        stock = median(taken["stock"])
        for kind, times in taken.items():
            middle = median(times)
            cells = (milliseconds(middle), milliseconds(min(times)))
            cells += (milliseconds(longest(times)), ratio(stock, middle))
            rows.append((f"{what}, {kind}", *cells))
    table(("measured", "median ms", "shortest", "longest", "times faster"), rows)
    names = tuple(parts["stock"][0])
    table(
        ("of which, median ms", *names),
        [
            (kind, *(f"{statistics.median(one[name] for one in measured):.1f}" for name in names))
            for kind, measured in parts.items()
        ],
    )
    print("Goals: executed not slower than stock; from standby a tenth of stock.")
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    main()
