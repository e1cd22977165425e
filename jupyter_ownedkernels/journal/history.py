"""What is left of owners whose journals are gone: one bounded file per folder.

An ended journal could simply be kept. But every scan reads every journal, and a loop of
a thousand notebook runs would leave a thousand of them; a bound on their number would
then throw the long-lived server's history away for that of the runs' empty files. One
file with the newest ends costs one read, and removing a journal stays one unlink.

The lines are those of a journal (``launch``, ``recovered``, ``cleaned``), each with the
``owner_id``. Several processes append at once by the rules of :mod:`.runtime.records`;
who finds the file too long shortens it under its lock. A crash between the rename and
the copy of what came meanwhile can lose lines of history, nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from ..errors import JournalError
from ..models import HistoryEntry, LaunchRecord
from ..runtime import lock, records
from ..runtime.lock import Lock
from .fold import Fold, Record
from .folder import HISTORY_NAME, find
from .read import MAX_BYTES, read, read_bytes

log = logging.getLogger(__name__)

_BYTES_PER_ENTRY = 2000
"""Twice what one entry takes (800 bytes with a long path, and a survivor or two): the
file is shortened at this much per entry that is kept, so about every ``limit`` entries."""


def _longest(limit: int | None) -> int:
    """Bytes at which the file is shortened to half: long before its end would not be read."""
    most = MAX_BYTES // 2
    return most if limit is None else min(limit * _BYTES_PER_ENTRY, most)


def bury(folder: str, fold: Fold, limit: int | None) -> None:
    """Move what a journal knows of ended launches to the folder's history. OSError if not.

    ``limit``: None for who was not told any. It adds its own, and cuts off nothing of what
    another program, which was, wants to keep.
    """
    if fold.owner is None or (limit is not None and limit <= 0):
        return
    extra = {"owner_id": fold.owner.owner_id}
    lines: list[Record] = [
        {"event": "launch", **_shorter(launch).to_json(), **extra}
        for launch in fold.launches.values()
        if not launch.open and (launch.exit or launch.process)
    ]
    lines += [{**note, **extra} for note in fold.notes.values()]
    lines.sort(key=lambda line: line.get("ended_at") or line["at"])
    if not lines:
        return
    path = os.path.join(folder, HISTORY_NAME)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | lock.READ_FLAGS, 0o600))
    for line in lines if limit is None else lines[-limit:]:
        records.append(path, line)
    if os.stat(path).st_size > _longest(limit):
        _shorten(path, limit)


def _shorter(launch: LaunchRecord) -> LaunchRecord:
    return replace(launch, keeper=None, kernel=None, sessions=())


def _shorten(path: str, limit: int | None) -> None:
    fd = os.open(path, os.O_RDWR | lock.READ_FLAGS)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        if lock.take(fd) is Lock.LOCKED or not records.is_at(fd, path):
            return
        data = read_bytes(fd)
        kept: list[bytes] = []
        size = 0
        for record in reversed(records.parse(data)[0]):
            line = records.encode(record)
            size += len(line)
            if len(kept) == limit or size > _longest(limit) // 2:
                break
            kept.append(line)
        with open(
            temporary, "wb", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, 0o600)
        ) as stream:
            stream.write(b"".join(reversed(kept)))
        os.replace(temporary, path)
        for record in records.parse(read_bytes(fd, len(data)))[0]:
            records.append(path, record)
    finally:
        os.close(fd)
        if os.path.lexists(temporary):
            os.unlink(temporary)


def history(folders: Iterable[str], limit: int = 100) -> list[HistoryEntry]:
    """What happened to kernels of all owners of this user, newest first; never raises.

    Living owners' journals and the history files are read. Takes milliseconds: call it
    off the event loop.
    """
    where = list(folders)
    found: dict[object, HistoryEntry] = {}
    for folder in where:
        for entry in _from_file(os.path.join(folder, HISTORY_NAME)):
            found[_key(entry)] = entry
    for path in find(where):
        try:
            view = read(path)
        except JournalError as error:
            log.debug("Left out of the history: %s", error)
            continue
        for entry in view.history:
            found[_key(entry)] = entry
    return sorted(found.values(), key=lambda entry: entry.at, reverse=True)[: max(0, limit)]


def _key(entry: HistoryEntry) -> object:
    ended = entry.event == "ended"
    return (entry.owner_id, entry.event, entry.launch_id, None if ended else entry.at)


def _from_file(path: str) -> list[HistoryEntry]:
    try:
        fd = os.open(path, lock.READ_FLAGS)
    except OSError:
        return []
    try:
        if hasattr(os, "geteuid") and os.fstat(fd).st_uid not in (os.geteuid(), 0):
            return []
        data = read_bytes(fd)
    except OSError:
        return []
    finally:
        os.close(fd)
    by_owner: dict[str, Fold] = {}
    for record in records.parse(data)[0]:
        owner_id = record.get("owner_id")
        if isinstance(owner_id, str):
            by_owner.setdefault(owner_id, Fold()).apply(record)
    return [entry for one, fold in by_owner.items() for entry in fold.history(one)]
