"""How long REST takes with many kernels, and how long it holds the server's event loop.

Each answer is asked for alone, more than a second after the one before, so that none is
served from a shared look at the processes; ``shared`` are asked for at once after another.
A coroutine in the server notes how late it is woken up: beside ours stands what happens
without any request (``nothing``), and with the stock list of kernels.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from _common import median, milliseconds, options, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "rest"))

from rest_server import RestServer
from support.workspace import Workspace

KERNELS = 200
API = "/api/ownedkernels"
WATCH = """
import asyncio, time
import jupyter_ownedkernels.extension_start as module
begin = module.begin

async def watch():
    with open({path!r}, "a", buffering=1) as notes:
        while True:
            due = time.monotonic() + 0.002
            await asyncio.sleep(0.002)
            print(due, time.monotonic() - due, file=notes)

def begin_and_watch(*args, **kwargs):
    asyncio.get_running_loop().watcher = asyncio.ensure_future(watch())
    return begin(*args, **kwargs)

module.begin = begin_and_watch
"""


def worst_delay(notes: Path, begun: float, ended: float) -> float:
    """The longest that the loop was held within this time; seconds."""
    whole = notes.read_text().rpartition("\n")[0]
    pairs = (line.split() for line in whole.splitlines())
    return max((float(late) for due, late in pairs if begun <= float(due) <= ended), default=0.0)


def main() -> None:
    chosen = options(f"REST with {KERNELS} kernels, each of a notebook; milliseconds", 20)
    workspace = Workspace()
    workspace.mini("mini")
    notes = workspace.path / "delays"
    rows = []
    try:
        with RestServer(workspace, config=WATCH.format(path=str(notes))) as server:
            for number in range(KERNELS):
                server.start_kernel("mini", f"{number}.ipynb")
            kernel_id = server.get("kernels")["kernels"][0]["kernel_id"]
            cases = [
                ("nothing", "", 1.1),
                ("stock: api/kernels", "/api/kernels", 1.1),
                ("stock: api/sessions", "/api/sessions", 1.1),
                ("kernels", f"{API}/kernels", 1.1),
                ("kernels, shared", f"{API}/kernels", 0.05),
                ("kernels?scope=user", f"{API}/kernels?scope=user", 1.1),
                ("kernels/ID", f"{API}/kernels/{kernel_id}", 1.1),
                ("health", f"{API}/health", 0.05),
                ("strays?refresh=1", f"{API}/strays?refresh=1", 0.2),
                ("history", f"{API}/history", 0.2),
                ("/metrics", "/metrics", 1.1),
            ]
            for name, path, pause in cases:
                took, delays = [], []
                for _ in range(chosen.rounds):
                    time.sleep(pause)
                    begun = time.monotonic()
                    if path:
                        server.request("GET", path)
                    else:
                        time.sleep(0.03)
                    ended = time.monotonic()
                    took.append(ended - begun)
                    delays.append((begun, ended))
                time.sleep(0.05)
                held = [worst_delay(notes, *span) for span in delays]
                rows.append(
                    (
                        name,
                        milliseconds(median(took)) if path else "",
                        milliseconds(max(took)) if path else "",
                        milliseconds(median(held)),
                        milliseconds(max(held)),
                    )
                )
    finally:
        workspace.close()
    table(("answer", "median", "longest", "loop held, median", "worst"), rows)


if __name__ == "__main__":
    main()
