"""A look at the machine in which only the test's own processes belong to the user.

The doctor looks at every process of the user, and ends strays wherever they come from. A
test must not end what whoever runs it has lying about.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jupyter_ownedkernels import doctor
from jupyter_ownedkernels.doctor.examination import Scope
from jupyter_ownedkernels.processes import look as processes_look
from jupyter_ownedkernels.processes.snapshot import Snapshot
from jupyter_ownedkernels.runtime import procfs

from . import census
from .workspace import MARK, Workspace

_NOBODYS = -1


class _Reader:
    """As the real one. A port that somebody else listens on is free."""

    def __init__(self, table: Snapshot, own: set[int]) -> None:
        self._real = table.reader
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def listeners(self) -> tuple[frozenset[int], frozenset[str]]:
        ours = frozenset[int]().union(*(procfs.socket_inodes(pid) for pid in self._own))
        tcp = procfs.tcp_listeners()
        return frozenset(port for port, inodes in tcp.items() if ours & inodes), frozenset()


def look_of(workspace: Workspace) -> Callable[[], Snapshot]:
    """As ``processes_look.take``; what bears no mark of the workspace is another user's.

    But for the test itself, which no doctor touches.
    """

    def look() -> Snapshot:
        table = processes_look.take()
        own = {proc.pid for proc in census.marked(f"{MARK}={workspace.mark}")}
        own.add(os.getpid())
        uids = {pid: uid if pid in own else _NOBODYS for pid, uid in table.uids.items()}
        return replace(table, uids=uids, reader=_Reader(table, own))

    return look


def scope_of(workspace: Workspace, stale_file_age: float = 3600.0) -> Scope:
    """The doctor's view of a workspace, and of nothing else."""
    return doctor.Scope(
        runtime_dirs=(str(workspace.runtime),),
        journal_dirs=(str(workspace.runtime / "ownedkernels"),),
        kernel_dirs=(str(workspace.path / "data" / "kernels"),),
        stale_file_age=stale_file_age,
        look=look_of(workspace),
    )
