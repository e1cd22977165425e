"""From SIGKILL of the owner until the kernel and all it started are gone."""

from __future__ import annotations

from _common import (
    OURS,
    STOCK,
    kill_and_time,
    longest,
    median,
    milliseconds,
    options,
    ratio,
    table,
)
from support import census
from support.owner import Owner
from support.workspace import SHELL, Workspace

# What goes on in the kernel, and what the kernel is behind.
KINDS: dict[str, tuple[str, list[str]]] = {
    "idle": ("idle", []),
    "GIL held in C": ("gil_held", []),
    "stopped by SIGSTOP": ("stopped", []),
    "children in its group": ("children", []),
    "children in another group": ("other_group", []),
    "orphans in its session": ("orphans", []),
    "pool of workers (fork)": ("pool_fork", []),
    "pool of workers (spawn)": ("pool_spawn", []),
    "fork with its sockets, own session": ("socket_holder", []),
    "behind sh -c": ("idle", SHELL),
    "behind setsid": ("idle", ["setsid", "--wait"]),
    "no poller in the kernel": ("idle", ["env", "-u", "JPY_PARENT_PID"]),
    "child that ignores SIGTERM and SIGHUP": ("stubborn", []),
}


def once(workspace: Workspace, provisioner: str, kind: str) -> float | None:
    scene, wrapper = KINDS[kind]
    spec = workspace.python("measured", wrapper)
    workspace.forget_note("measured")
    with Owner(workspace, provisioner=provisioner) as owner:
        top = owner.start("measured", spec)["pid"]
        owner.run("client('measured')")
        owner.submit("measured", workspace.scene_code("measured", scene))
        procs = set(workspace.note("measured").values()) | census.below(top) | {census.find(top)}
        try:
            return kill_and_time(owner.proc, procs)
        finally:
            # A loop of a shell may have started another while its child was ended.
            census.end(workspace.processes())


def without_a_kernel_program(workspace: Workspace, provisioner: str) -> float | None:
    """A kernelspec that is just ``sleep``: nothing in it looks after anything."""
    spec = workspace.spec("sleep", ["sleep", "3600"])
    with Owner(workspace, provisioner=provisioner) as owner:
        owner.set(ready_timeout=0.0)
        top = census.find(owner.start("measured", spec)["pid"])
        return kill_and_time(owner.proc, {top})


def main() -> None:
    rounds = options(__doc__ or "", 7).rounds
    workspace = Workspace()
    rows = []
    try:
        for kind in [*KINDS, "a program that is just sleep"]:
            ours: list[float | None] = []
            stock: list[float | None] = []
            for number in range(rounds):
                for provisioner, times in ((OURS, ours), (STOCK, stock)):
                    # "Never" takes its time, and is the same each time.
                    if provisioner == STOCK and number >= 3:
                        continue
                    if kind in KINDS:
                        times.append(once(workspace, provisioner, kind))
                    else:
                        times.append(without_a_kernel_program(workspace, provisioner))
            middle = median(ours)
            rows.append(
                (
                    kind,
                    milliseconds(middle),
                    milliseconds(longest(ours)),
                    milliseconds(median(stock)),
                    ratio(median(stock), middle),
                )
            )
        table(("kernel", "median ms", "longest ms", "stock ms", "times faster"), rows)
        print("Goals: median at most 30 ms, 150 ms at most unless something ignores SIGTERM.")
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
