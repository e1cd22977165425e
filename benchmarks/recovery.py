"""How long start-up recovery takes to end what a dead owner left.

    python benchmarks/recovery.py [--rounds N] [--kernels 200]

Goal: 200 kernels in at most 2 s. Each kernel is a process with its launch's mark and a
connection file; no keeper is left to do it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import table

from jupyter_ownedkernels import identity, recovery
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord


def dead_owner(folder: Path, kernels: int) -> list[int]:
    """An owner that starts all of them, puts them on record and is killed; their pids."""
    told, tell = os.pipe()
    owner = os.fork()
    if owner == 0:
        one = Journal(journal.this_owner("bench"), [str(folder / "ownedkernels")])
        pids = []
        for number in range(kernels):
            name, path = f"launch-{number}", folder / f"kernel-{number}.json"
            path.write_text(json.dumps({"ip": "127.0.0.1", "shell_port": 1}))
            one.launching(LaunchRecord(name, f"kernel-{number}", 1, "python3", str(path)))
            child = subprocess.Popen(
                ["sleep", "3600"],
                env={**os.environ, "JUPYTER_OWNEDKERNELS_LAUNCH": name},
                start_new_session=True,
            )
            process = identity.of_pid(child.pid)
            one.running(name, keeper=None, process=process, sessions=[child.pid])
            pids.append(child.pid)
        os.write(tell, json.dumps(pids).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(tell)
    with open(told) as stream:
        pids = json.load(stream)
    os.waitpid(owner, 0)
    return list(pids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", type=int, default=200)
    given = parser.parse_args()
    system = os.uname()
    print(
        f"{system.sysname} {system.release}, {os.cpu_count()} processors, "
        f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}\n"
    )
    rows = []
    for kernels in sorted({1, given.kernels // 4, given.kernels}):
        times, done = [], None
        for _ in range(given.rounds):
            folder = Path(tempfile.mkdtemp(prefix="ok-bench-"))
            try:
                dead_owner(folder, kernels)
                begun = time.perf_counter()
                done = recovery.recover([str(folder / "ownedkernels")], [str(folder)])
                times.append(time.perf_counter() - begun)
                assert done.processes == kernels
                assert len(done.files) == kernels
            finally:
                shutil.rmtree(folder)
        rows.append(
            (
                f"{kernels}",
                f"{statistics.median(times) * 1000:.0f} ms",
                f"{max(times) * 1000:.0f} ms",
            )
        )
    table(("kernels", "median", "longest"), rows)


if __name__ == "__main__":
    main()
