"""How long a scan of the doctor takes: on tables in memory, and on this machine.

    python benchmarks/doctor_scan.py [--rounds N] [--processes 5000] [--kernels 1000]

Goal: at most 0.25 s with 5,000 processes and 1,000 kernels on record, and linear. The real
part starts that many sleeping processes for some seconds; 0 leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _common import table  # first: it puts the tests' support on the path
from support.tables import NOW, UID, Table, gone, launch, view

from jupyter_ownedkernels import doctor, identity
from jupyter_ownedkernels.connections import Candidate, FileIdentity, Listing, Ports
from jupyter_ownedkernels.doctor.files import Questions, stale_files
from jupyter_ownedkernels.doctor.journaled import journaled
from jupyter_ownedkernels.doctor.unjournaled import Surroundings, unjournaled
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord

FOLDER = "/run/user/1000/jupyter"


HEADS = ("kernels of a", "processes", "kernels", "findings", "median", "processor")


def timed(work: Callable[[], int], rounds: int) -> tuple[str, str, str]:
    """Findings, elapsed time and processor time; the latter is what a busy machine tells."""
    elapsed, used, found = [], [], 0
    for _ in range(rounds):
        begun, spent = time.perf_counter(), time.process_time()
        found = work()
        elapsed.append(time.perf_counter() - begun)
        used.append(time.process_time() - spent)
    return f"{found:,}", ms(elapsed), ms(used)


def ms(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:.0f} ms"


# -- tables in memory ------------------------------------------------------------------


def simulated(processes: int, kernels: int, owner_lives: bool) -> Callable[[], int]:
    """A function that judges such a table once; its answer is the number of findings."""
    scene = Table()
    owner = scene.add(1000) if owner_lives else gone(1000)
    launches = []
    for number in range(kernels):
        pid = 2000 + number
        path = f"{FOLDER}/kernel-{number}.json"
        kernel = scene.add(
            pid,
            ppid=1000 if owner_lives else 1,
            argv=("python", "-m", "ipykernel_launcher", "-f", path),
            launch=f"launch-{number}",
        )
        launches.append(
            launch(number, process=kernel, keeper=gone(60), sessions=(pid,), connection_file=path)
        )
    for number in range(processes - kernels):
        scene.add(100_000 + number, ppid=1 if number % 10 else 100_000 + number - 1)
    files = [
        Candidate(f"{FOLDER}/kernel-{n}.json", FileIdentity(1, n, 1), UID, NOW - 7200)
        for n in range(2 * kernels)
    ]
    asked = Questions(
        ports_of=lambda path: Ports("tcp", "127.0.0.1", (1,)),
        server_of=lambda path: None,
        why_shared=lambda folder: "",
        is_empty=lambda path: False,
    )
    one_journal = view(owner, *launches)

    def once() -> int:
        owners = scene.owners(one_journal)
        found = journaled(owners)
        found += unjournaled(owners, Surroundings((FOLDER,), dict))
        alive = [item.launch.launch_id for item in found if item.launch]
        found += stale_files(owners, Listing(files, []), alive, 3600.0, asked).items
        return len(found)

    return once


def measure_simulated(processes: int, kernels: int, rounds: int) -> None:
    rows = []
    for share in (0.25, 0.5, 1, 2):
        size, on_record = int(processes * share), int(kernels * share)
        for lives in (True, False):
            once = simulated(size, on_record, lives)
            kind = "living owner" if lives else "dead owner"
            rows.append((kind, f"{size:,}", f"{on_record:,}", *timed(once, rounds)))
    print("Judging a table in memory (with as many stale files as kernels)\n")
    table(HEADS, rows[::2] + rows[1::2])


# -- this machine ----------------------------------------------------------------------


def sleepers(count: int, marks: list[str]) -> list[int]:
    """Start processes that sleep; the first of them with a launch's mark."""
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            if number < len(marks):
                os.setsid()
                mark = {"JUPYTER_OWNEDKERNELS_LAUNCH": marks[number]}
                os.execve("/bin/sleep", ["sleep", "3600"], {**os.environ, **mark})
            signal.pause()
            os._exit(0)
        pids.append(pid)
    return pids


def write_journal(folder: Path, pids: list[int], kernels: int) -> Journal:
    one = Journal(journal.this_owner(f"bench-{os.getpid()}"), [str(folder / "ownedkernels")])
    keeper = identity.of_self()
    for number in range(kernels):
        path = folder / f"kernel-{number}.json"
        path.write_text(json.dumps({"ip": "127.0.0.1", "shell_port": 1}))
        os.utime(path, (1e9, 1e9))
        name = f"launch-{number}"
        one.launching(LaunchRecord(name, f"kernel-{number}", 1, "python3", str(path)))
        process = identity.of_pid(pids[number]) if number < len(pids) else None
        one.running(name, keeper=keeper, process=process, sessions=[pids[number]])
    return one


def measure_real(processes: int, kernels: int, rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ok-bench-"))
    scope = doctor.Scope((str(folder),), (str(folder / "ownedkernels"),))
    marks = [f"launch-{number}" for number in range(kernels)]
    pids = sleepers(max(processes, kernels), marks)
    rows = []
    try:
        for lives in (True, False):
            writer = os.fork() if not lives else 0
            if writer == 0:
                one = write_journal(folder, pids, kernels)
                if not lives:
                    os.kill(os.getpid(), signal.SIGKILL)
            else:
                os.waitpid(writer, 0)
            kind = "living owner" if lives else "dead owner"
            told = timed(lambda: sum(doctor.scan(scope).counts.values()), rounds)
            rows.append((kind, f"{len(pids):,}", f"{kernels:,}", *told))
            if lives:
                assert one.path is not None
                os.unlink(one.path)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        shutil.rmtree(folder)
    print("A whole scan of this machine, files and journals included\n")
    table(HEADS, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--processes", type=int, default=5000)
    parser.add_argument("--kernels", type=int, default=1000)
    given = parser.parse_args()
    system = os.uname()
    print(
        f"{system.sysname} {system.release}, {os.cpu_count()} processors, "
        f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}\n"
    )
    measure_simulated(given.processes or 5000, given.kernels, given.rounds)
    if given.processes:
        measure_real(given.processes, given.kernels, given.rounds)


if __name__ == "__main__":
    main()
