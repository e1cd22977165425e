"""``list``, ``history`` and ``detach``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ..doctor.examination import Scope, default_scope
from ..journal import journal
from ..processes.detach import detach
from ..processes.table import Table
from ..processes.usage import Group, Meter
from ..views import kernels as views
from . import servers
from .output import Column, complain, count, duration, memory, printable, say_json, table

_KNOWN_TO_OWNERS = ("display_name", "execution_state", "session")


def _scope(args: argparse.Namespace) -> Scope:
    return default_scope(runtime_dir=args.runtime_dir, journal_dir=args.journal_dir)


def _folders(args: argparse.Namespace) -> tuple[str, ...]:
    return _scope(args).journal_dirs


def _say_what_is_missing(folders: tuple[str, ...]) -> None:
    for problem in journal.search(folders)[1]:
        complain(f"not everything could be looked at: {problem}")


# -- list ----------------------------------------------------------------------------


def run_list(args: argparse.Namespace) -> int:
    """Body of ``list``: the kernels of every living owner of this user on this machine."""
    scope = _scope(args)
    _say_what_is_missing(scope.journal_dirs)
    kernels = kernels_of_user(scope)
    if args.json:
        say_json({"kernels": kernels})
        return 0
    if not kernels:
        print("No owned kernels are running.")
        return 0
    rows: list[tuple[str, ...]] = [
        (
            kernel["kernel_id"][:8],
            kernel["name"],
            kernel["state"],
            str(kernel["pid"] or "-"),
            duration(kernel["uptime_s"]),
            memory(kernel["rss_bytes"]),
            str(kernel["process_count"] if kernel["process_count"] is not None else "-"),
            _notebook(kernel),
            _owner(kernel["owner"]),
        )
        for kernel in kernels
    ]
    columns: list[Column] = [
        "Kernel",
        ("Name", "name"),
        "State",
        ("Pid", "right"),
        ("Age", "right"),
        ("Memory", "right"),
        ("Proc", "right"),
        ("Notebook", "below"),
        ("Owner", "below"),
    ]
    if not any(map(_notebook, kernels)):
        del columns[-2]
        rows = [(*row[:-2], row[-1]) for row in rows]
    table(columns, rows)
    owners = len({kernel["owner"]["owner_id"] for kernel in kernels})
    print(f"{count(len(kernels), 'kernel')} of {count(owners, 'owner')}.")
    return 0


def _owner(owner: dict[str, Any]) -> str:
    return f"{owner['pid']} {owner['url']}".strip()


def _notebook(kernel: dict[str, Any]) -> str:
    """Or whatever the session is of; empty where none is known."""
    session = kernel["session"] or {}
    return str(session.get("path") or session.get("name") or "")


def kernels_of_user(scope: Scope) -> list[dict[str, Any]]:
    """Entries as REST gives them: what only their owners know, as far as these tell it."""
    shown = views.of_other_owners(scope.journal_dirs, None)
    groups: list[Group] = [one.group for one in shown if one.group is not None]
    loads = Meter().read(Table.take(), groups) if groups else {}
    entries = [
        views.kernel_json(
            one,
            loads.get(one.key),
            display_name=one.record.kernel_name,
            execution_state=None,
            session=None,
        )
        for one in shown
    ]
    owners = {entry["owner"]["pid"]: entry["owner"] for entry in entries}
    told = servers.ask(owners.values(), scope.runtime_dirs)
    for entry in entries:
        of_owner = told.get((entry["owner"]["pid"], entry["kernel_id"]), {})
        entry.update({name: of_owner[name] for name in _KNOWN_TO_OWNERS if name in of_owner})
    return entries


# -- history -------------------------------------------------------------------------


def run_history(args: argparse.Namespace) -> int:
    """Body of ``history``: how kernels of this user ended, newest first."""
    folders = _folders(args)
    _say_what_is_missing(folders)
    entries = [entry.to_json() for entry in journal.history(folders, args.limit)]
    if args.json:
        say_json({"entries": entries})
        return 0
    if not entries:
        if args.limit:
            print("Nothing on record yet.")
        return 0
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"])),
            (entry["kernel_id"] or "-")[:8],
            entry["kernel_name"] or "-",
            _what_happened(entry),
        )
        for entry in entries
    ]
    table(("When", "Kernel", ("Name", "name"), ("What happened", "text")), rows)
    return 0


def _what_happened(entry: dict[str, Any]) -> str:
    if entry["event"] == "cleaned" and entry["count"]:
        return f"cleaned: {count(entry['count'], 'process', 'processes')} {entry['message'] or ''}"
    if entry["event"] != "ended":
        return f"{entry['event']}: {entry['message'] or ''}".rstrip(": ")
    told = entry["exit"]["summary"] if entry["exit"] else "ended, nobody knows how"
    left = len(entry["survivors"])
    return f"{told}; {count(left, 'process', 'processes')} left" if left else told


# -- detach --------------------------------------------------------------------------


def run_detach(args: argparse.Namespace) -> int:
    """Body of ``detach``: start a command that outlives the kernel, and print its pid."""
    started = detach(args.command, _folders(args))
    print(started.pid)
    if started.output is not None:
        print(f"output goes to {printable(started.output)}", file=sys.stderr)
    if started.note:
        complain(started.note)
    return 0
