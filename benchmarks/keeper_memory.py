"""Memory of their own of keepers and spawners: what would be free without them."""

from __future__ import annotations

from pathlib import Path

from _common import median, options, table
from support import census
from support.owner import Owner
from support.workspace import Workspace


def own(pid: int) -> tuple[float, float, float]:
    """MB that nobody shares, the proportional share, and all that is resident."""
    rows = (row.split() for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    size = {row[0].rstrip(":"): int(row[1]) for row in rows}
    private = size["Private_Clean"] + size["Private_Dirty"] + size.get("Private_Hugetlb", 0)
    return private / 1024, size["Pss"] / 1024, size["Rss"] / 1024


def row(name: str, pids: list[int]) -> tuple[str, ...]:
    looks = [own(pid) for pid in pids]
    middle = (median([look[column] for look in looks]) or 0.0 for column in range(3))
    return (name, str(len(pids)), *(f"{value:.2f}" for value in middle))


def main() -> None:
    rounds = options(__doc__ or "", 8).rounds
    workspace = Workspace()
    try:
        with Owner(workspace) as owner:
            owner.set(warm="auto")
            for number in range(rounds):
                owner.start(f"mini{number}", workspace.mini(f"mini{number}"))
                workspace.note(f"mini{number}")
            plain = [proc.pid for proc in owner.keepers()]
            spec = workspace.python("python")
            owner.start("first", spec)
            owner.wait_until_warm()
            for number in range(rounds):
                owner.start(f"python{number}", spec)
                owner.execute(f"python{number}", "1")
            (warm,) = census.children(owner.pid, "warm-spawner")
            forked = [proc.pid for proc in census.children(warm.pid, "kernel-keeper")]
            kernels = [census.children(pid)[0].pid for pid in forked]
            executed = owner.run("result = about('first')['pid']")
            heads = ("process", "number", "of its own MB", "proportional MB", "resident MB")
            table(
                heads,
                [
                    row("keeper of the plain spawner", plain),
                    row("keeper of the warm spawner", forked),
                    row("plain spawner", [owner.spawner().pid]),
                    row("warm spawner", [warm.pid]),
                    row("kernel, executed", [executed]),
                    row("kernel, forked", kernels),
                ],
            )
            print("Goal: at most 1 MB of its own per keeper.")
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
