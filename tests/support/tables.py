"""Process tables that a test writes itself, and journals to go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_ownedkernels.identity import Identity, World
from jupyter_ownedkernels.journal.journal import JournalView, Lock
from jupyter_ownedkernels.marks import LAUNCH_MARKER, MARKS, OWNER_MARKER
from jupyter_ownedkernels.models import LaunchRecord, OwnerRecord, State
from jupyter_ownedkernels.owners import Owners
from jupyter_ownedkernels.processes.snapshot import Snapshot
from jupyter_ownedkernels.runtime import procfs
from jupyter_ownedkernels.runtime.procfs import Stat

WORLD = World("here", "boot-1", 4026531836)
UID = 1000
NOW = 1_800_000_000.0
UPTIME = 1_000_000.0
DOCTOR = 900


@dataclass
class FakeReader:
    """Late facts. An environment that is an exception is raised."""

    environs: dict[int, Any] = field(default_factory=dict)
    files: dict[int, list[str]] = field(default_factory=dict)
    ports: set[int] = field(default_factory=set)
    uids: dict[int, int] = field(default_factory=dict)
    namespaces: dict[int, int] = field(default_factory=dict)
    unreadable: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    adopter: int = 0
    asked: list[int] = field(default_factory=list)
    """Whose environments were read."""

    def marks(self, pid: int) -> Mapping[str, str] | None:
        self.asked.append(pid)
        found = self.environs.get(pid, {})
        if isinstance(found, Exception):
            raise found
        return None if found is None else {n: v for n, v in found.items() if n in MARKS}

    def open_files(self, pid: int) -> list[str] | None:
        if pid in self.unreadable:
            raise PermissionError
        return self.files.get(pid, [])

    def exists(self, pid: int) -> bool | None:
        return pid in self.taken

    def uid(self, pid: int) -> int | None:
        return self.uids.get(pid)

    def pid_namespace(self, pid: int) -> int:
        return self.namespaces.get(pid, WORLD.pid_ns)

    def listeners(self) -> tuple[frozenset[int], frozenset[str]]:
        return frozenset(self.ports), frozenset()

    def adopts(self, pid: int) -> bool:
        return pid == self.adopter


class Table:
    """Build a table process by process; pid 1 and the doctor (900, in a shell) are there."""

    def __init__(self) -> None:
        self.reader = FakeReader()
        self.processes: dict[int, Stat] = {}
        self.uids: dict[int, int] = {}
        self.argvs: dict[int, tuple[str, ...]] = {}
        self.hidden: set[int] = set()
        self.incomplete = ""
        self.add(1, ppid=0, uid=0, argv=("/sbin/init",), age=UPTIME)
        self.add(899, argv=("bash",), session=899)
        self.add(DOCTOR, ppid=899, session=899, argv=("python", "jupyter-ownedkernels"))

    def add(
        self,
        pid: int,
        *,
        ppid: int = 1,
        session: int | None = None,
        argv: tuple[str, ...] = ("sleep", "1"),
        uid: int = UID,
        age: float = 3600.0,
        ticks: int | None = None,
        state: str = "S",
        environ: Any = None,
        launch: str | None = None,
        owner: str | None = None,
    ) -> Identity:
        """Add a process; its identity. ``launch`` and ``owner`` are its marks."""
        started = round((UPTIME - age) * procfs.CLOCK_TICKS) if ticks is None else ticks
        leader = pid if session is None else session
        self.processes[pid] = Stat(pid, "name", state, ppid, leader, leader, started, 5, 100, 1)
        self.uids[pid] = self.reader.uids[pid] = uid
        if state not in "ZX":
            self.argvs[pid] = argv
        marks = {LAUNCH_MARKER: launch, OWNER_MARKER: owner}
        if isinstance(environ, Exception):
            self.reader.environs[pid] = environ
        else:
            self.reader.environs[pid] = {
                **(environ or {}),
                **{name: value for name, value in marks.items() if value is not None},
            }
        return Identity(WORLD, pid, started)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            world=WORLD,
            uid=UID,
            self_pid=DOCTOR,
            now=NOW,
            uptime=UPTIME,
            processes=dict(self.processes),
            uids=dict(self.uids),
            argvs=dict(self.argvs),
            reader=self.reader,
            hidden=frozenset(self.hidden),
            incomplete=self.incomplete,
        )

    def owners(
        self, *views: JournalView, locked: tuple[str, ...] = (), problems: tuple[str, ...] = ()
    ) -> Owners:
        def lock(path: str) -> Lock:
            return Lock.LOCKED if path in locked else Lock.FREE

        return Owners(views, self.snapshot(), lock, problems)


def gone(pid: int, ticks: int = 7) -> Identity:
    """A process of this world that no table here has."""
    return Identity(WORLD, pid, ticks)


def view(
    identity: Identity | None,
    *launches: LaunchRecord,
    owner_id: str = "owner-1",
    complete: bool = True,
    path: str | None = None,
) -> JournalView:
    """A journal's content. Without an identity the owner cannot be judged."""
    host = identity.world.host if identity else ""
    return JournalView(
        path=path or f"/run/ownedkernels/owner-{owner_id}.jsonl",
        owner=OwnerRecord(owner_id, identity, "me", host),
        launches={launch.launch_id: launch for launch in launches},
        damaged=0 if complete else 1,
        torn=False,
        complete=complete,
        reason="" if complete else "1 of its lines are damaged",
        file=None,
    )


def launch(number: int = 1, **fields: Any) -> LaunchRecord:
    """A launch that is on record as running."""
    return LaunchRecord(
        **{
            "launch_id": f"launch-{number}",
            "kernel_id": f"kernel-id-{number}",
            "generation": 1,
            "kernel_name": "python3",
            "connection_file": f"/run/user/1000/jupyter/kernel-{number}.json",
            "state": State.RUNNING,
            "at": NOW - 3600,
            **fields,
        }
    )
