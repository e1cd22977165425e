"""Stray kernels that no journal knows: leaked before this package, or beside it.

Only what looks like an installed kernelspec's kernel, or like ipykernel's launcher, can
be ended. Everything else that seems lost is shown, never touched. Pure functions: the
table, the journals and the kernelspecs are passed in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..marks import FIXTURE_MARKER, PARENT_VARIABLE
from ..owners import Owners
from ..processes.snapshot import Snapshot
from ..runtime.procfs import Stat
from ..runtime.tree import Looks, kernel_process
from .findings import Item, of_process, pids

MIN_AGE = 60.0
"""Seconds. A younger kernel may still be on its way to whoever will own it."""

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?", re.IGNORECASE)
_CONNECTION_FILE = re.compile(r"kernel-.*\.json", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_]+\}")


@dataclass(frozen=True)
class Surroundings:
    """What decides beside the processes and the journals."""

    runtime_dirs: tuple[str, ...]
    """Jupyter runtime folders, as real paths."""
    kernelspecs: Callable[[], dict[str, list[str]]]
    """Name to argv of the installed ones. Asked only when something may be one of them."""


@dataclass(frozen=True)
class _Kernel:
    """A process that serves a connection file, by its looks."""

    entry: Stat
    path: str
    name: str | None
    because: str


def unjournaled(owners: Owners, surroundings: Surroundings) -> list[Item]:
    """Findings about kernels that are on no journal's record."""
    table = owners.table
    found: list[Item] = []
    wrappers: set[int] = set()
    for pid in sorted(table.own):
        argv = table.argv(pid)
        if not any(".json" in element for element in argv):
            continue
        if pid in owners.recorded_pids or pid in table.own_line or _on_record(pid, owners):
            continue
        kernel = _looks_like_kernel(table.processes[pid], table, surroundings)
        if kernel is None:
            continue
        item = _judge(kernel, table)
        if item is not None:
            found.append(item)
            above = set(table.ancestors(pid))
            wrappers.update(entry.pid for entry in item.doomed if entry.pid in above)
    # A wrapper looks like the kernel that it carries: both lead to one finding, or two.
    kernels: dict[int | None, Item] = {}
    for item in found:
        known = kernels.get(item.finding.pid)
        if item.finding.pid not in wrappers and (
            known is None or len(known.doomed) < len(item.doomed)
        ):
            kernels[item.finding.pid] = item
    found = list(kernels.values())
    return [*found, *_helpers(owners, found)]


def _on_record(pid: int, owners: Owners) -> bool:
    """Whether the process names a connection file that is in some journal."""
    return any(
        os.path.basename(element) in owners.recorded_names for element in owners.table.argv(pid)
    )


# -- is it a kernel? -----------------------------------------------------------------


def _looks_like_kernel(entry: Stat, table: Snapshot, surroundings: Surroundings) -> _Kernel | None:
    argv = table.argv(entry.pid)
    path = launcher_file(argv)
    if path is not None:
        return _Kernel(entry, path, None, "it is ipykernel's launcher, run by a Python")
    paths = [element for element in argv if _in_runtime_dir(element, surroundings)]
    if not paths:
        return None
    for name, template in surroundings.kernelspecs().items():
        for path in paths:
            if matches(argv, template, path):
                because = f"its command is that of the kernelspec {name}"
                return _Kernel(entry, path, name, because)
    return None


def launcher_file(argv: Sequence[str]) -> str | None:
    """The connection file of ``python … -m ipykernel_launcher … -f PATH``; else None."""
    if not argv or not _PYTHON.fullmatch(os.path.basename(argv[0])):
        return None
    for place in range(1, len(argv) - 1):
        if argv[place] == "-m" and argv[place + 1] == "ipykernel_launcher":
            return _option_f(argv[place + 2 :])
    return None


def _option_f(arguments: Sequence[str]) -> str | None:
    for place, argument in enumerate(arguments):
        if argument == "-f" and place + 1 < len(arguments):
            return arguments[place + 1]
        for prefix in ("-f=", "--f="):
            if argument.startswith(prefix):
                return argument[len(prefix) :]
    return None


def _in_runtime_dir(element: str, surroundings: Surroundings) -> bool:
    folder, name = os.path.split(element)
    if not folder.startswith("/") or not _CONNECTION_FILE.fullmatch(name):
        return False
    return folder in surroundings.runtime_dirs or os.path.realpath(folder) in (
        surroundings.runtime_dirs
    )


def matches(argv: Sequence[str], template: Sequence[str], path: str) -> bool:
    """Whether a command line is a kernelspec's with that connection file.

    What a kernel program is started by may stand before it (a shebang's interpreter), and
    extra arguments after it. Fixed arguments must all be there, in their order; options
    may have been rewritten on the way, as R's start script does.
    """
    if not template or not any("{connection_file}" in part for part in template):
        return False
    program = os.path.basename(template[0])
    python = bool(_PYTHON.fullmatch(program))
    for start, element in enumerate(argv[:3]):
        name = os.path.basename(element)
        same = name == program or (python and start == 0 and _PYTHON.fullmatch(name))
        if same and _arguments_match(argv[start + 1 :], template[1:], path):
            return True
    return False


def _arguments_match(arguments: Sequence[str], template: Sequence[str], path: str) -> bool:
    rest = iter(arguments)
    wanted = [
        part.replace("{connection_file}", path)
        for part in template
        if "{connection_file}" in part or not (part.startswith("-") or _PLACEHOLDER.search(part))
    ]
    # One iterator for all: each is looked for after the one before it.
    return all(any(argument == part for argument in rest) for part in wanted)


# -- is it lost? ---------------------------------------------------------------------


def _judge(kernel: _Kernel, table: Snapshot) -> Item | None:
    """A finding, when nothing that lives can own the kernel."""
    entry = kernel.entry
    line = _line_to_adopter(entry, table, kernel.path)
    if line is None or table.age(entry) < MIN_AGE or not table.is_own(entry.pid):
        return None
    # Of another container the numbers in the environment mean nothing here.
    if table.reader.pid_namespace(entry.pid) != table.world.pid_ns:
        return None
    adopter, wrappers = line
    if any(table.argv(part.pid) == table.argv(entry.pid) for part in wrappers):
        return None  # A fork of the kernel without exec: it ends with the kernel.
    marks = table.marks(entry.pid)
    if marks is None:
        return _not_to_be_cleaned(entry, table, "its environment may not be read", kernel.path)
    if FIXTURE_MARKER in marks:
        return _not_to_be_cleaned(entry, table, "it belongs to a test suite", kernel.path)
    parent = _named_parent(marks.get(PARENT_VARIABLE, ""))
    if parent is not None and _started_before(parent, entry, table):
        return None
    if not _adopts(adopter, entry, parent, table):
        return None
    proofs = [
        kernel.because,
        f"nothing above it lives but the adopter of orphans (process {adopter})",
    ]
    if parent is not None:
        proofs.append(f"the process that it was started for ({parent}) is gone")
    else:
        proofs.append("nothing tells who asked for it: not ended by default")
    together = (entry, *wrappers, *_core(entry, table))
    kept = _left_its_session(entry, together, table)
    if kept:
        proofs.append(f"left its session, and is kept: {pids(kept)}")
    return of_process(
        "stray_kernel",
        _deepest(together, kernel.path, table),
        table,
        proofs,
        with_it=together,
        by_default=parent is not None,
        path=kernel.path,
    )


def _line_to_adopter(
    entry: Stat, table: Snapshot, path: str
) -> tuple[int, tuple[Stat, ...]] | None:
    """The process that has adopted the kernel, or its wrappers; None when somebody lives above.

    A wrapper names the connection file too (``conda run``, ``sh -c``), and whatever stands
    between it and the kernel belongs to it.
    """
    above = list(table.ancestors(entry.pid))
    naming = table.mentioned_by(path)
    wrappers = max((place + 1 for place, pid in enumerate(above) if pid in naming), default=0)
    parts = [table.processes[pid] for pid in above[:wrappers] if pid in table.processes]
    if len(parts) < wrappers or len(above) <= wrappers:
        return None
    if any(not table.is_own(part.pid) or part.pid in table.own_line for part in parts):
        return None
    if any(not part.alive for part in parts):
        return None
    return above[wrappers], tuple(parts)


def _named_parent(text: str) -> int | None:
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 31 else None


def _started_before(parent: int, entry: Stat, table: Snapshot) -> bool:
    """Whether the named parent can be the one that started the kernel. In doubt it can."""
    if parent in table.hidden:
        return True
    other = table.processes.get(parent)
    if other is None:
        return bool(table.incomplete) and table.reader.exists(parent) is not False
    return other.alive and other.start_ticks <= entry.start_ticks


def _adopts(adopter: int, entry: Stat, parent: int | None, table: Snapshot) -> bool:
    """Whether that process takes in orphans, rather than having started this one.

    Pid 1 and ``systemd --user`` are known to. Of any other process it must be found out
    (which only works for those above the caller), and the kernel must have been started
    for another one that is gone, in an environment that the adopter does not share.
    """
    if _known_adopter(adopter, table):
        return True
    if parent is None or parent == adopter or adopter not in table.own_line:
        return False
    theirs = table.marks(adopter)
    if theirs is None or theirs.get(PARENT_VARIABLE) == str(parent):
        return False
    return table.reader.adopts(adopter)


def _known_adopter(pid: int, table: Snapshot) -> bool:
    argv = table.argv(pid)
    return pid == 1 or (bool(argv) and os.path.basename(argv[0]) == "systemd" and "--user" in argv)


def _core(entry: Stat, table: Snapshot) -> tuple[Stat, ...]:
    """What the kernel has started in its session, and forks of it without exec in any."""
    found: list[Stat] = []
    argv = table.argv(entry.pid)
    pending = [entry.pid]
    while pending:
        for pid in table.children.get(pending.pop(), ()):
            child = table.processes[pid]
            belongs = child.session == entry.session or table.argv(pid) == argv
            if belongs and pid in table.own and pid not in table.own_line:
                found.append(child)
                pending.append(pid)
    return tuple(found)


def _left_its_session(entry: Stat, together: tuple[Stat, ...], table: Snapshot) -> tuple[Stat, ...]:
    """What else is below the kernel: nobody will know where it came from, once that has ended."""
    others = table.below(entry.pid) - {one.pid for one in together}
    return tuple(table.processes[pid] for pid in sorted(others) if table.alive(pid))


def _deepest(together: tuple[Stat, ...], path: str, table: Snapshot) -> Stat:
    """The kernel process among them; a wrapper may be what a kernelspec names."""
    below = {part.pid: part for part in together}
    return kernel_process(below, path, lambda pid: Looks(None, table.argv(pid))) or together[0]


def _not_to_be_cleaned(entry: Stat, table: Snapshot, reason: str, path: str) -> Item:
    return of_process(
        "unknown", entry, table, [reason, "shown only, never ended"], acts=False, path=path
    )


def _helpers(owners: Owners, found: list[Item]) -> list[Item]:
    """Orphans that name a connection file and are no kernel that is known here."""
    table = owners.table
    shown = {entry.pid for item in found for entry in item.doomed}
    shown.update(item.finding.pid for item in found if item.finding.pid is not None)
    items = []
    for pid in sorted(table.own - shown - table.own_line - owners.recorded_pids):
        entry = table.processes[pid]
        if not _known_adopter(entry.ppid, table) or table.age(entry) < MIN_AGE:
            continue
        names = [
            element
            for element in table.argv(pid)
            if _CONNECTION_FILE.fullmatch(os.path.basename(element))
        ]
        if not names or _on_record(pid, owners) or launcher_file(table.argv(pid)) is not None:
            continue
        if table.is_own(pid):
            items.append(
                _not_to_be_cleaned(entry, table, "an orphan that names a connection file", names[0])
            )
    return items
