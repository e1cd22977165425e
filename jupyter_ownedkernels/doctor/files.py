"""Stale files: connection files, their sockets and server files that nothing alive can belong to.

Fails closed: what cannot be read completely is called stale by nobody, and each doubt
about one file keeps that file. Where its ports prove that nothing uses it, it is no doubt that
the open files of some process may not be read. Late questions (ports, mounts) are passed in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from .. import connections
from ..connections import Answer, Candidate, Listing, Ports, Server
from ..journal.place import why_shared
from ..models import Finding, LaunchRecord
from ..owners import KnownOwner, Owners
from .findings import Item, file_id, shown_only

KnownLaunch = tuple[KnownOwner, LaunchRecord]


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path, follow_symlinks=False).st_size == 0
    except OSError:
        return False


@dataclass(frozen=True)
class Questions:
    """How to find out about files; replaced in tests."""

    ports_of: Callable[[str], Ports | None] = connections.ports_of
    server_of: Callable[[str], Server | None] = connections.server_of
    why_shared: Callable[[str], str] = why_shared
    is_empty: Callable[[str], bool] = _is_empty
    sockets_of: Callable[[str, Ports | None], list[str]] = connections.sockets_of
    in_use: Callable[[Collection[str]], bool] = connections.in_use


@dataclass
class Verdicts:
    """What was found, and why more could not be called stale."""

    items: list[Item] = field(default_factory=list)
    incomplete: str = ""
    doubts: dict[str, str] = field(default_factory=dict)
    """Connection files that may be in use: by their path, why that cannot be ruled out."""


def stale_files(
    owners: Owners,
    listing: Listing,
    alive: Iterable[str],
    stale_file_age: float,
    questions: Questions | None = None,
) -> Verdicts:
    """Judge the files. ``alive`` are launch ids of which something still runs.

    ``listing`` must be older than what ``owners`` was read from: then a file that was
    made meanwhile is not in it.
    """
    table = owners.table
    reason = table.incomplete or owners.incomplete or "; ".join(listing.unreadable)
    if reason:
        return Verdicts(incomplete=reason)
    judge = _Judge(owners, frozenset(alive), stale_file_age, questions or Questions())
    judge.servers_alive(listing.files)
    found: list[Item] = []
    for file in [*listing.files, *judge.recorded_elsewhere(listing.files)]:
        item = judge.server_file(file) if file.server_pid is not None else judge.kernel_file(file)
        if item is not None:
            found.append(item)
    found.extend(judge.about_shared_folders())
    return Verdicts(found, doubts=judge.doubts)


class _Judge:
    def __init__(
        self, owners: Owners, alive: frozenset[str], stale_file_age: float, questions: Questions
    ) -> None:
        self._owners = owners
        self._table = owners.table
        self._alive = alive
        self._age = stale_file_age
        self._ask = questions
        self._shared: dict[str, str] = {}
        self._not_told: dict[str, int] = {}
        self._servers: dict[int, Server | None] = {}
        self._served: dict[int, int] = {}
        self.doubts: dict[str, str] = {}
        self._on_record: dict[str, list[KnownLaunch]] = {}
        for owner in owners.dead:
            for launch in owner.view.launches.values():
                # Of another provisioner's kernel no process is on record: its journal
                # cannot prove its end, and its file is judged like one without a journal.
                if launch.connection_file and launch.launch_mode != "other":
                    name = os.path.basename(launch.connection_file)
                    self._on_record.setdefault(name, []).append((owner, launch))

    # -- connection files ------------------------------------------------------------

    def recorded_elsewhere(self, listed: list[Candidate]) -> list[Candidate]:
        """Connection files of dead owners that lie in no runtime folder."""
        known = {os.path.realpath(file.path) for file in listed}
        found = []
        for launches in self._on_record.values():
            path = launches[0][1].connection_file
            if os.path.realpath(path) in known or not os.path.isabs(path):
                continue
            known.add(os.path.realpath(path))
            file = connections.identity_of(path)
            if file is not None and os.path.isfile(path) and not os.path.islink(path):
                found.append(Candidate(path, file, self._table.uid, file.mtime_ns / 1e9))
        return found

    def kernel_file(self, file: Candidate) -> Item | None:
        """Also a socket of a kernel whose connection file is gone."""
        name = os.path.basename(file.known_as)
        if file.uid != self._table.uid or name in self._owners.protected_names:
            return None
        launches = self._on_record.get(name, [])
        proofs = self._proofs_on_record(launches) if launches else self._proofs_without_record(file)
        if proofs is None or not self._unused(file, proofs):
            return None
        if file.named and not file.is_socket:
            proofs.append("its removal was cut short")
        newest = max(launches, key=lambda known: known[1].generation, default=None)
        return self._item(file, proofs, newest)

    def _proofs_on_record(self, launches: list[KnownLaunch]) -> list[str] | None:
        for _, launch in launches:
            if launch.launch_id in self._alive:
                return None
            for recorded in (launch.keeper, launch.process, launch.kernel):
                if recorded is not None and not self._table.verdict(recorded).proves_death:
                    return None
        return [launches[-1][0].reason, "every process on record of this kernel is gone"]

    def _proofs_without_record(self, file: Candidate) -> list[str] | None:
        if not self._old_enough(file) or not self._told_here(file):
            return None
        return [f"no journal of a living owner names it, and it is {self._hours(file)} old"]

    def _unused(self, file: Candidate, proofs: list[str]) -> bool:
        path = file.path
        unheard = True
        if file.is_socket:
            if self._ask.in_use([path]):
                return self._doubted(file, "something may be bound to it")
            proofs.append("its connection file is gone, and nothing is bound to it any more")
        elif self._ask.is_empty(path):
            # Nobody could have connected: a crash came while it was written.
            proofs.append("it is empty")
            unheard = False
        else:
            ports = self._ask.ports_of(path)
            listener = connections.has_listener(ports, self._table.listeners)
            if listener is not Answer.NO:
                may = "listens" if listener is Answer.YES else "may listen"
                return self._doubted(file, f"something {may} on its ports")
            proofs.append("nothing listens on its ports")
            sockets = self._ask.sockets_of(path, ports)
            if self._ask.in_use(sockets):
                return self._doubted(file, "something may be bound to its sockets")
            if sockets:
                proofs.append(f"with it: {len(sockets)} socket{'s' if len(sockets) > 1 else ''}")
        for name in {path, file.known_as}:
            users = connections.users_of(name, self._table, unheard=unheard)
            if users.answer is not Answer.NO:
                return self._doubted(file, users.reason)
        seen = f" as far as can be seen ({users.reason})" if users.reason else ""
        proofs.append(f"no running process names it, or has it open{seen}")
        return True

    def _doubted(self, file: Candidate, reason: str) -> Literal[False]:
        self.doubts[file.path] = reason
        return False

    # -- files of servers ------------------------------------------------------------

    def servers_alive(self, files: list[Candidate]) -> None:
        """Learn which of the servers live, and so whose ports are explained."""
        for file in files:
            pid = file.server_pid
            if pid is None or not file.known_as.endswith(".json"):
                continue
            server = self._servers[pid] = self._ask.server_of(file.path)
            if server is not None and server.port and self._is_server(pid):
                self._served[server.port] = pid

    def server_file(self, file: Candidate) -> Item | None:
        pid = file.server_pid
        assert pid is not None
        if file.uid != self._table.uid or not self._told_here(file):
            return None
        if self._is_server(pid) or self._port_in_use(pid):
            return None
        known = self._dead_owner(pid)
        if known is not None:
            return self._item(file, [known.reason])
        if not self._old_enough(file):
            return None
        if self._table.alive(pid):
            proof = f"process number {pid} belongs to another program now"
        else:
            proof = f"its server, process {pid}, is gone"
        return self._item(file, [proof, f"it is {self._hours(file)} old"])

    def _is_server(self, pid: int) -> bool:
        """Whether the process of that number may be a Jupyter server. In doubt it is."""
        if not self._table.alive(pid):
            return False
        if self._table.uids.get(pid) not in (self._table.uid, 0):
            return False
        argv = self._table.argv(pid)
        named = any("jupyter" in part or "notebook" in part for part in argv)
        owns = any(
            owner.view.owner is not None
            and owner.view.owner.identity is not None
            and self._table.running(owner.view.owner.identity) is not None
            and owner.view.owner.identity.pid == pid
            for owner in self._owners.known
        )
        return named or owns or self._is_listening(pid)

    def _is_listening(self, pid: int) -> bool:
        server = self._servers.get(pid)
        return bool(server and server.port and server.port in self._table.listeners[0])

    def _port_in_use(self, pid: int) -> bool:
        """Whether something listens on its port that no living server here explains."""
        server = self._servers.get(pid)
        if server is None or not server.port or server.port not in self._table.listeners[0]:
            return False
        return self._served.get(server.port) in (None, pid)

    def _dead_owner(self, pid: int) -> KnownOwner | None:
        if self._table.alive(pid):
            return None
        for owner in self._owners.dead:
            identity = owner.record.identity
            if identity is not None and identity.pid == pid:
                return owner
        return None

    # -- common ----------------------------------------------------------------------

    def _old_enough(self, file: Candidate) -> bool:
        return self._table.now - file.modified_at > self._age

    def _hours(self, file: Candidate) -> str:
        hours = (self._table.now - file.modified_at) / 3600
        return f"{hours / 24:.0f} days" if hours > 48 else f"{hours:.1f} hours"

    def _told_here(self, file: Candidate) -> bool:
        """Whether only this machine can have written it."""
        folder = os.path.dirname(file.path)
        if folder not in self._shared:
            self._shared[folder] = self._ask.why_shared(folder)
        if self._shared[folder]:
            self._not_told[folder] = self._not_told.get(folder, 0) + 1
        return not self._shared[folder]

    def about_shared_folders(self) -> list[Item]:
        """One finding for each folder whose files cannot be judged from here."""
        return [
            shown_only(
                "unknown",
                [
                    self._shared[folder],
                    f"{count} old file{'s' if count > 1 else ''} that no journal names may "
                    "belong to a kernel that cannot be seen from here",
                ],
                path=folder,
            )
            for folder, count in self._not_told.items()
        ]

    def _item(self, file: Candidate, proofs: list[str], known: KnownLaunch | None = None) -> Item:
        owner, launch = known if known is not None else (None, None)
        finding = Finding(
            id=file_id(file.path, file.file),
            kind="stale_file",
            proofs=tuple(proofs),
            action="remove",
            by_default=True,
            kernel_id=(launch.kernel_id or None) if launch else None,
            kernel_name=(launch.kernel_name or None) if launch else None,
            owner=owner.summary() if owner else None,
            started_at=file.modified_at,
            age_s=max(0.0, self._table.now - file.modified_at),
            path=file.path,
        )
        return Item(finding, (), owner, launch, file.file)
