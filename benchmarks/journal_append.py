"""What a record in the journal costs: plain, durable, shortened, read back.

    python benchmarks/journal_append.py [folder]

The folder decides which disk is measured; the default is the current one.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import Exit, LaunchRecord

ROUNDS = 300
ME = identity.of_self()
EXIT = Exit(0, None, False, None, "shutdown", 90 << 20, 1.5, time.time(), "shut down")


def launch(number: int) -> LaunchRecord:
    path = f"/run/user/1000/jupyter/kernel-{number:032x}.json"
    return LaunchRecord(f"{number:032x}", f"{number:032x}", 1, "python3", path, at=time.time())


def owner(folder: str, owner_id: str, **options: int) -> Journal:
    one = Journal(journal.this_owner(owner_id), [folder], **options)
    if not one.open():
        raise SystemExit(one.reason)
    return one


def timed(label: str, work: Callable[[int], object], rounds: int = ROUNDS) -> None:
    took: list[float] = []
    for number in range(rounds):
        begin = time.perf_counter()
        work(number)
        took.append((time.perf_counter() - begin) * 1000)
    took.sort()
    row = (statistics.median(took), took[int(len(took) * 0.95)], took[-1])
    print(f"{label:<52}" + "".join(f"{value:10.3f}" for value in row))


def whole(one: Journal, number: int) -> None:
    record = launch(number)
    one.launching(record)
    one.running(record.launch_id, keeper=ME, process=ME, sessions=[1])
    one.ended(record.launch_id, EXIT)


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "."
    with tempfile.TemporaryDirectory(dir=base) as place:
        folder = os.path.join(place, "ownedkernels")
        print(f"milliseconds, {ROUNDS} rounds, on {os.path.abspath(base)}")
        print(f"{'':<52}{'median':>10}{'95 %':>10}{'worst':>10}")

        one = owner(folder, "append", compact_bytes=1 << 30)
        running = [launch(number) for number in range(ROUNDS)]
        timed("launching (durable: write and fdatasync)", lambda n: one.launching(running[n]))
        timed(
            "running (plain append)",
            lambda n: one.running(running[n].launch_id, keeper=ME, process=ME, sessions=[1]),
        )
        timed("ended (plain append)", lambda n: one.ended(running[n].launch_id, EXIT))
        path = one.path or ""
        size = os.path.getsize(path)
        timed(f"read {ROUNDS} launches ({size >> 10} kB)", lambda n: journal.read(path), 30)
        timed("ask for the lock", lambda n: journal.is_locked(path))
        one.close()

        short = owner(folder, "short", history_limit=500)
        timed("whole launch, file kept below 256 kB", lambda n: whole(short, n), 1500)
        short.close()

        timed("open and close", lambda n: owner(folder, f"new-{n}").close(), 50)
        timed("history, newest 100", lambda n: journal.history([folder], 100), 30)


if __name__ == "__main__":
    main()
