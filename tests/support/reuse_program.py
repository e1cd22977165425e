"""Rounds in a pid namespace of their own: every number of a crashed owner is taken again.

Run as root by ``unshare --pid --fork --mount-proc``, with a folder and a number of rounds.
Answers with one JSON object: which numbers were really taken again, who is missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_ownedkernels import doctor, identity, recovery
from jupyter_ownedkernels.identity import Identity, World
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord, Survivor
from jupyter_ownedkernels.processes.orphans import retire_orphans
from jupyter_ownedkernels.processes.tree import RecordedProcess

FOLDER = Path(sys.argv[1])
ROUNDS = int(sys.argv[2])
JOURNALS = FOLDER / "ownedkernels"
ROLES = ("owner", "spawner", "keeper", "process", "kernel", "child", "detached")
STRANGE = ("ticks before", "ticks after", "boot", "host", "namespace")


def fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return pid


def sleeper() -> None:
    os.setsid()
    os.execvp("sleep", ["sleep", "3600"])


def with_child() -> None:
    """A leader of the recorded session and group, and a member that it has started."""
    os.setsid()
    # Late, or it would take one of the numbers that are wanted.
    time.sleep(0.03)
    member = os.fork()
    if member == 0:
        os.execvp("sleep", ["sleep", "3600"])
    signal.pause()


def ipykernel() -> None:
    """A real kernel of somebody else: its owner is the process above it, and lives."""
    path = FOLDER / f"kernel-somebody-{os.getpid()}.json"
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    command = ["-m", "ipykernel_launcher", "-f", str(path)]
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.execv(sys.executable, [sys.executable, *command])


def take(pid: int, body: Callable[[], None]) -> int:
    """Start a process under a number; 0 when somebody was quicker."""
    with open("/proc/sys/kernel/ns_last_pid", "w") as stream:
        stream.write(str(pid - 1))
    made = fork(body)
    return made if made == pid else 0


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def crashed_owner() -> tuple[dict[str, Identity], list[str]]:
    """An owner that wrote its journal and died with all that it had started."""
    reading, writing = os.pipe()

    def own() -> None:
        pids = {role: fork(sleeper) for role in ROLES[1:]}
        time.sleep(0.02)
        named = {role: identity.of_pid(pid) for role, pid in pids.items()}
        own_journal = Journal(journal.this_owner(os.urandom(8).hex()), [str(JOURNALS)])
        launches = write(own_journal, named)
        me = identity.of_self()
        told = {"owner": me.to_json(), **{r: n.to_json() for r, n in named.items() if n}}
        os.write(writing, json.dumps([told, launches]).encode())
        end(list(pids.values()))
        os.kill(os.getpid(), signal.SIGKILL)

    pid = fork(own)
    os.waitpid(pid, 0)
    os.close(writing)
    with open(reading) as stream:
        told, launches = json.load(stream)
    return {role: Identity.from_json(one) for role, one in told.items()}, launches


def write(
    own_journal: Journal, named: dict[str, Identity | None], prefix: str = "kernel-"
) -> list[str]:
    """An open launch, one that ended with survivors, and one that never came to run."""
    keeper, process, kernel = named["keeper"], named["process"], named["kernel"]
    assert process is not None
    assert kernel is not None
    sessions = [process.pid, kernel.pid]
    for number, name in enumerate(("open", "ended", "intended")):
        path = FOLDER / f"{prefix}{name}.json"
        path.write_text('{"ip": "127.0.0.1", "shell_port": 1}')
        own_journal.launching(LaunchRecord(name, f"kernel-{number}", 1, "python3", str(path)))
    for name in ("open", "ended"):
        own_journal.running(name, keeper=keeper, process=process, sessions=sessions)
        own_journal.kernel(name, kernel, sessions)
    left = [
        Survivor(one.pid, one.start_ticks, one.pid, reason)  # type: ignore[arg-type]
        for one, reason in ((named["child"], "timeout"), (named["detached"], "detached"))
        if one is not None
    ]
    own_journal.ended("ended", None, left)
    return ["open", "ended", "intended"]


def strange_owner(kind: str, living: list[int]) -> None:
    """A journal that names living processes, but in one respect not quite."""
    here = identity.this_world()
    worlds: dict[str, World] = {
        "boot": replace(here, boot_id="0" * 36),
        "host": replace(here, host="elsewhere"),
        "namespace": replace(here, pid_ns=here.pid_ns + 1),
    }
    off = {"ticks before": -1, "ticks after": 1}.get(kind, 0)
    named = []
    for pid in living:
        real = identity.of_pid(pid)
        assert real is not None
        named.append(Identity(worlds.get(kind, here), pid, real.start_ticks + off))
    owner_id = "strange-" + kind.replace(" ", "-") + os.urandom(3).hex()
    made = replace(journal.this_owner(owner_id), identity=named[0])

    def own() -> None:
        own_journal = Journal(made, [str(JOURNALS)])
        write(own_journal, dict(zip(ROLES[1:], named[1:], strict=False)), "kernel-strange-")
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(fork(own), 0)


def everything_that_ends(named: dict[str, Identity]) -> None:
    """Each way of this package to end something that is on record."""
    scope = doctor.Scope(runtime_dirs=(str(FOLDER),), journal_dirs=(str(JOURNALS),))
    for one in named.values():
        handle = RecordedProcess(one)
        assert handle.poll() is not None, "its number is another's now: it has ended"
        handle.terminate()
        handle.kill()
    record = LaunchRecord(
        "open",
        "kernel-0",
        1,
        "python3",
        "",
        keeper=named["keeper"],
        process=named["process"],
        kernel=named["kernel"],
        sessions=(named["process"].pid, named["kernel"].pid),
        detached_policy="kill",
    )
    retire_orphans(record, "some-owner", grace=0.0, timeout=0.5)
    report = doctor.scan(scope)
    ids = [one.id for one in report.findings]
    kinds = ("stray_kernel", "stray_process", "detached", "stale_file", "foreign", "unknown")
    doctor.clean(ids, dry_run=False, scope=scope, grace=0.0, timeout=0.5)
    doctor.clean(kinds=kinds, dry_run=False, scope=scope, grace=0.0, timeout=0.5)
    recovery.recover([str(JOURNALS)], [str(FOLDER)], grace=0.0, timeout=0.5)


def one_round(result: dict[str, Any]) -> None:
    named, _ = crashed_owner()
    bodies = {"kernel": ipykernel, "process": with_child, "child": with_child}
    canaries = {}
    # A real kernel starts threads, which take numbers too: it comes last.
    for role, recorded in sorted(named.items(), key=lambda one: one[0] == "kernel"):
        taken = take(recorded.pid, bodies.get(role, sleeper))
        if taken:
            canaries[role] = taken
    strays = [fork(sleeper) for _ in ROLES]
    time.sleep(0.1)
    for kind in STRANGE:
        strange_owner(kind, strays)
    result["taken"] += len(canaries)
    result["numbers"] += len(named)
    # Strange journals first: their canaries are named exactly, but for one thing.
    everything_that_ends(named)
    for role, pid in [*canaries.items(), *(("stranger", pid) for pid in strays)]:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            result["killed"].append(role)
        else:
            end([pid])
    for left in JOURNALS.iterdir():
        if left.name.startswith("owner-strange"):
            left.unlink()


def main() -> None:
    result: dict[str, Any] = {"taken": 0, "numbers": 0, "killed": [], "left": []}
    JOURNALS.mkdir(mode=0o700, exist_ok=True)
    for _ in range(ROUNDS):
        one_round(result)
    result["left"] = [name for name in os.listdir(FOLDER) if name.startswith("kernel-open")]
    result["journals"] = [one.name for one in JOURNALS.iterdir() if one.name.startswith("owner-")]
    print("ANSWER " + json.dumps(result))
    # Orphaned members of canaries' sessions end with the namespace.


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, capture_output=True)
    main()
