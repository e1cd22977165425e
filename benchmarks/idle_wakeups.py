"""How often idle keepers and spawners wake up, per second; the kernels' own for comparison."""

from __future__ import annotations

import time
from pathlib import Path

from _common import options, table
from support import census
from support.owner import Owner
from support.workspace import Workspace

WATCHED_FOR = 10.0


def switches(pid: int) -> int:
    """Context switches of all threads of a process so far."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        rows = (line.split(":\t") for line in (task / "status").read_text().splitlines())
        count += sum(int(row[1]) for row in rows if row[0].endswith("ctxt_switches"))
    return count


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    rounds = options(__doc__ or "", 4).rounds
    workspace = Workspace()
    try:
        with Owner(workspace) as owner:
            owner.set(warm="auto")
            spec = workspace.python("python")
            owner.start("first", spec)
            owner.wait_until_warm()
            for number in range(rounds):
                owner.start(f"mini{number}", workspace.mini(f"mini{number}"))
                owner.start(f"python{number}", spec)
                owner.execute(f"python{number}", "1")
            (warm,) = census.children(owner.pid, "warm-spawner")
            groups = {
                "plain spawner": [owner.spawner()],
                "warm spawner": [warm],
                "keepers of the plain spawner": owner.keepers(),
                "keepers of the warm spawner": census.children(warm.pid, "kernel-keeper"),
            }
            keepers = groups["keepers of the warm spawner"]
            groups["Python kernels"] = [census.children(proc.pid)[0] for proc in keepers]
            groups["owner"] = [owner.proc]
            # The owner's part in a launch, and a kernel's first cell, take a moment to settle.
            time.sleep(3)
            before = {p: (switches(p.pid), ticks(p.pid)) for g in groups.values() for p in g}
            time.sleep(WATCHED_FOR)
            rows = []
            for name, procs in groups.items():
                woken = sum(switches(p.pid) - before[p][0] for p in procs)
                spent = sum(ticks(p.pid) - before[p][1] for p in procs)
                each = len(procs) * WATCHED_FOR
                rows.append((name, str(len(procs)), f"{woken / each:.2f}", f"{spent / each:.2f}"))
            table(("process", "number", "wake-ups/s", "ticks/s"), rows)
            print("Goal: 0 for spawners and keepers.")
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
