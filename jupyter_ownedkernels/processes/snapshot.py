"""One look at all processes, and what follows from it: ancestors, marks, mentions.

Everything that decides whom a signal may reach works on a :class:`Snapshot`, never on
/proc directly, so that tests can put any table before it. What costs much (environments,
open files) is read late, by the callables, and only once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from ..identity import Identity, Verdict, World
from ..marks import LAUNCH_MARKER, OWNER_MARKER
from ..runtime import procfs
from ..runtime.procfs import Stat

# Names, not paths: a folder may be reached by several paths, and a container may show it
# at another one. A name may hold spaces and stand inside a shell's command line, so each
# text from a possible start to a possible end counts.
_START = re.compile(r"(?:[\s\"'`=:;,(]+|(?=kernel-))")
_END = ".json"
_MOST = 64


class Reader(Protocol):
    """Where the late facts come from. PermissionError: it may not be read."""

    def marks(self, pid: int) -> Mapping[str, str] | None:
        """Those of :data:`.marks.MARKS` that its environment had at exec; None when it is gone."""

    def open_files(self, pid: int) -> list[str] | None:
        """Paths of what is open; None when the process is gone."""

    def exists(self, pid: int) -> bool | None:
        """Whether the number is taken, for processes that the table does not show."""

    def uid(self, pid: int) -> int | None:
        """Whose process it is, also when its entry in /proc belongs to root."""

    def pid_namespace(self, pid: int) -> int:
        """Inode of the process's pid namespace; 0 where it may not be read."""

    def listeners(self) -> tuple[frozenset[int], frozenset[str]]:
        """TCP ports and Unix socket paths on which something accepts connections."""

    def adopts(self, pid: int) -> bool:
        """Whether that process has become the parent of orphans of the caller."""


@dataclass(frozen=True)
class Snapshot:
    """All processes at one moment, and whose view it is."""

    world: World
    uid: int
    """The user on whose behalf the look was taken."""
    self_pid: int
    now: float
    """Time of day in seconds."""
    uptime: float
    """Seconds since boot, on the clock of the start ticks."""
    processes: Mapping[int, Stat]
    uids: Mapping[int, int]
    """Whose entry in /proc it is; root's for what must not be dumped."""
    argvs: Mapping[int, tuple[str, ...]]
    reader: Reader
    hidden: frozenset[int] = frozenset()
    """Processes that exist and may not be looked at."""
    incomplete: str = ""
    """Why the table may lack processes; empty when it is complete."""
    _marks: dict[int, Mapping[str, str] | None] = field(default_factory=dict, repr=False)

    # -- one process ---------------------------------------------------------------

    def alive(self, pid: int) -> bool:
        """Whether the process is in the table and no zombie."""
        entry = self.processes.get(pid)
        return entry is not None and entry.alive

    def verdict(self, recorded: Identity) -> Verdict:
        """As :func:`identity.compare`, against this table."""
        if recorded.world.over:
            return Verdict.GONE
        if not recorded.world.known or not self.world.known:
            return Verdict.UNKNOWN
        if recorded.world != self.world:
            return Verdict.FOREIGN
        if recorded.pid in self.hidden:
            return Verdict.UNKNOWN
        entry = self.processes.get(recorded.pid)
        if entry is None:
            if self.incomplete and self.reader.exists(recorded.pid) is not False:
                return Verdict.UNKNOWN
            return Verdict.GONE
        if entry.start_ticks != recorded.start_ticks:
            return Verdict.DIFFERENT
        return Verdict.SAME if entry.alive else Verdict.GONE

    def running(self, recorded: Identity | None) -> Stat | None:
        """The table's entry of a recorded process that is proven to run."""
        if recorded is None or self.verdict(recorded) is not Verdict.SAME:
            return None
        return self.processes[recorded.pid]

    def age(self, entry: Stat) -> float:
        """Seconds since the process was started."""
        return max(0.0, self.uptime - entry.start_ticks / procfs.CLOCK_TICKS)

    def argv(self, pid: int) -> tuple[str, ...]:
        """The argument vector; empty where there is none to see."""
        return self.argvs.get(pid, ())

    def is_own(self, pid: int) -> bool:
        """Whether it is certainly the user's process; reads one file more than :attr:`own`."""
        try:
            return pid in self.own and self.reader.uid(pid) == self.uid
        except OSError:
            return False

    def marks(self, pid: int) -> Mapping[str, str] | None:
        """What matters of its environment; None when it is gone or may not be read."""
        if pid not in self._marks:
            try:
                self._marks[pid] = self.reader.marks(pid)
            except OSError:
                self._marks[pid] = None
        return self._marks[pid]

    def ancestors(self, pid: int) -> Iterator[int]:
        """Parent, grandparent and so on, as far as the table shows them."""
        seen = {pid}
        entry = self.processes.get(pid)
        while entry is not None and entry.ppid > 0 and entry.ppid not in seen:
            yield entry.ppid
            seen.add(entry.ppid)
            entry = self.processes.get(entry.ppid)

    def below(self, top: int) -> frozenset[int]:
        """The process and all its descendants, zombies included."""
        found = {top}
        pending = [top]
        while pending:
            fresh = [pid for pid in self.children.get(pending.pop(), ()) if pid not in found]
            found.update(fresh)
            pending.extend(fresh)
        return frozenset(found)

    # -- indices, each one pass ----------------------------------------------------

    @cached_property
    def own(self) -> frozenset[int]:
        """Living processes of the user."""
        return frozenset(
            pid
            for pid, entry in self.processes.items()
            if entry.alive and self.uids.get(pid) == self.uid
        )

    @cached_property
    def own_line(self) -> frozenset[int]:
        """The caller and its ancestors: never to be touched."""
        return frozenset({self.self_pid, *self.ancestors(self.self_pid)})

    @cached_property
    def children(self) -> Mapping[int, list[int]]:
        """Parent to children."""
        below: dict[int, list[int]] = {}
        for entry in self.processes.values():
            below.setdefault(entry.ppid, []).append(entry.pid)
        return below

    @cached_property
    def _mentions(self) -> tuple[Mapping[str, set[int]], list[tuple[str, int]]]:
        found: dict[str, set[int]] = {}
        crowded: list[tuple[str, int]] = []
        for pid, argv in self.argvs.items():
            for element in argv:
                if _END not in element:
                    continue
                names = names_in(element)
                if names is None:
                    crowded.append((element, pid))
                for name in names or ():
                    found.setdefault(name, set()).add(pid)
        return found, crowded

    def mentioned_by(self, path: str) -> frozenset[int]:
        """Living processes, of any user, that name the file in an argument.

        By the file's name alone. One pass over all processes serves every question about
        a ``.json`` file; another name (a journal may hold one) costs a pass of its own.
        """
        name = os.path.basename(path)
        if not name.endswith(_END):
            return frozenset(
                pid for pid, argv in self.argvs.items() if any(name in element for element in argv)
            )
        found, crowded = self._mentions
        return frozenset(found.get(name, ())).union(
            pid for element, pid in crowded if name in element
        )

    @cached_property
    def marked(self) -> tuple[Mapping[str, list[int]], Mapping[str, list[int]]]:
        """The user's living processes by launch marker and by owner marker.

        Reads the environment of each (10 µs a process): asked for only when a dead owner
        left something open.
        """
        launches: dict[str, list[int]] = {}
        owners: dict[str, list[int]] = {}
        for pid in sorted(self.own):
            marks = self.marks(pid)
            if not marks:
                continue
            if LAUNCH_MARKER in marks:
                launches.setdefault(marks[LAUNCH_MARKER], []).append(pid)
            if OWNER_MARKER in marks:
                owners.setdefault(marks[OWNER_MARKER], []).append(pid)
        return launches, owners

    @cached_property
    def open_names(self) -> tuple[frozenset[str], str]:
        """Names of ``.json`` files that the user's processes have open; why it may lack some."""
        names: set[str] = set()
        unreadable = 0
        # The first process is no kernel, and in a container often one that nobody may read.
        for pid in self.own - {1}:
            try:
                paths = self.reader.open_files(pid)
            except OSError:
                unreadable += 1
                continue
            names.update(
                os.path.basename(path.removesuffix(" (deleted)"))
                for path in paths or ()
                if ".json" in path
            )
        reason = f"{unreadable} of the user's processes may not be read" if unreadable else ""
        return frozenset(names), reason

    @cached_property
    def listeners(self) -> tuple[frozenset[int], frozenset[str]]:
        """Where something accepts connections: TCP ports, paths of Unix sockets."""
        return self.reader.listeners()


def names_in(element: str) -> set[str] | None:
    """Names of ``.json`` files that an argument may mean; None when they are too many."""
    found: set[str] = set()
    for part in element.split("/"):
        ends = [match.end() for match in re.finditer(re.escape(_END), part)]
        if not ends:
            continue
        starts = [0, *(match.end() for match in _START.finditer(part))]
        if len(starts) > _MOST or len(ends) > _MOST:
            return None
        found.update(part[start:end] for start in starts for end in ends if start < end)
    return found
