"""How long REST takes with many kernels, and how long it holds the server's event loop.

Each answer is asked for alone, more than a second after the one before, so that none is
served from a shared look at the processes; ``shared`` are asked for at once after another.
Then the same again, while a coroutine in the server notes how late it is woken up: beside
ours stands what happens without any request (``nothing``), and with the stock lists.
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
import asyncio, os, time
import jupyter_ownedkernels.extension.start as module
begin = module.begin

async def watch():
    while not os.path.exists({path!r}):
        await asyncio.sleep(0.5)
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


def measure(
    server: RestServer, name: str, path: str, pause: float, rounds: int
) -> list[tuple[float, float]]:
    """Ask some times; when each question and its answer came."""
    spans = []
    for _ in range(rounds):
        time.sleep(pause)
        begun = time.monotonic()
        if path:
            server.request("GET", path)
        else:
            time.sleep(0.03)
        spans.append((begun, time.monotonic()))
    return spans


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
            spans = {case: measure(server, *case, rounds=chosen.rounds) for case in cases}
            notes.touch()
            time.sleep(1)
            watched = {case: measure(server, *case, rounds=chosen.rounds) for case in cases}
            time.sleep(0.1)
            for case in cases:
                took = [ended - begun for begun, ended in spans[case]]
                held = [worst_delay(notes, *span) for span in watched[case]]
                answered = [milliseconds(median(took)), milliseconds(max(took))]
                delays = [milliseconds(median(held)), milliseconds(max(held))]
                rows.append((case[0], *(answered if case[1] else ["", ""]), *delays))
    finally:
        workspace.close()
    table(("answer", "median", "longest", "loop held, median", "worst"), rows)


if __name__ == "__main__":
    main()
