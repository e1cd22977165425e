"""The journal: one append-only file per owner, with everything that it launched.

The owner writes it and holds its lock. Keepers add one last record by path when the
owner has died; recovery and doctor finish it then and remove it. This module is the
owner's side, and the one door to the others: :func:`read`, :func:`find`,
:func:`is_locked`, :func:`claim`, :func:`history`.

What other processes append by path while the file is replaced by a shorter one is not
lost: they look after writing whether the path still names the file they wrote to, and the
owner reads what came to the old file once more after the rename.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import JournalError
from ..models import OwnerRecord
from ..runtime import records
from ..runtime.lock import Lock, is_locked
from ..settings import USUAL_HISTORY
from .claim import Claim, claim
from .file import JournalFile, NoLock, remove_leftovers
from .fold import Fold, StillThere
from .folder import candidates, find, folders, journal_name, prepare, search
from .history import bury, history
from .owner import is_former_self, this_owner, without_secrets
from .read import JournalView, forgettable, owner_verdict, read, read_all, still_there
from .writer import JournalWriter

__all__ = [
    "Claim",
    "Journal",
    "JournalView",
    "Lock",
    "candidates",
    "claim",
    "find",
    "folders",
    "history",
    "is_former_self",
    "is_locked",
    "owner_verdict",
    "read",
    "read_all",
    "search",
    "still_there",
    "this_owner",
]

log = logging.getLogger(__name__)

COMPACT_BYTES = 256 << 10
"""About 200 launches. Writing the file anew takes some milliseconds, in a thread."""

_PATIENCE = 5.0
_FAILURES = (JournalError, NoLock, OSError, ValueError)

_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


class Journal(JournalWriter):
    """The calling process's own journal. Thread-safe, and inert in a forked child.

    No method raises for what happens to files. ``folders`` are tried in their order (see
    :func:`candidates`). The file is made by :meth:`open`, or else at the first launch.
    """

    def __init__(
        self,
        owner: OwnerRecord,
        folders: Sequence[str],
        *,
        compact_bytes: int = COMPACT_BYTES,
        history_limit: int | None = None,
        clock: Callable[[], float] = time.time,
        still_there: StillThere = still_there,
    ) -> None:
        self._name = journal_name(owner.owner_id)
        self._folders = list(folders)
        self._compact_bytes = compact_bytes
        self._history_limit = history_limit
        self._most_ended = USUAL_HISTORY if history_limit is None else history_limit
        self._clock = clock
        self._still_there = still_there
        self._fold = Fold()
        self._fold.owner = replace(owner, url=without_secrets(owner.url))
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._file: JournalFile | None = None
        self._making: JournalFile | None = None
        self._shortener: threading.Thread | None = None
        self._compact_at = compact_bytes
        self._lost: set[str] = set()
        self._closed = False
        self._complained = False
        self.path: str | None = None
        """Where the journal lies, for keepers; None while there is none."""
        self.writable = False
        self.write_errors = 0
        """How many records could not be written when they were due."""
        self.reason = ""
        """Why the journal cannot be written, or does not lie in the first folder."""

    @property
    def locked(self) -> bool:
        """False where the file system cannot lock."""
        file = self._file
        return file is not None and file.locked

    @property
    def records(self) -> int:
        """How many lines this object has in the file."""
        file = self._file
        return 0 if file is None else file.records

    def on_record(self, launch_id: str) -> bool:
        """Whether the file has all that was reported of this launch."""
        with self._lock:
            known = launch_id in self._fold.launches and launch_id not in self._lost
            return self.writable and known

    def open(self) -> bool:
        """Make and lock the file now. May be called again, at any time."""
        with self._lock:
            return not self._inert() and (self._sound() or self._restore(None))

    def set_url(self, url: str) -> bool:
        """The server's address is known. Query, user and password are left out."""
        with self._lock:
            assert self._fold.owner is not None
            owner = replace(self._fold.owner, url=without_secrets(url))
            return self._put({"event": "owner", **owner.to_json()})

    def close(self) -> None:
        """The owner ends in good order. May be called twice.

        The file goes, and what has ended moves to the folder's history, unless something
        on record may still run: then the file stays, unlocked, for the doctor.
        """
        thread = self._shortener
        if thread is not None:
            thread.join(_PATIENCE)
        with self._lock:
            if self._inert():
                return
            if not self._sound() and self._fold.launches:
                self._restore(None)
            self._closed = True
            self.writable = False
            try:
                self._finish()
            except _FAILURES as error:
                log.warning("The journal %s is left behind: %s", self.path, error)
            if self._file is not None:
                self._file.close()

    # -- writing ---------------------------------------------------------------------

    def _put(self, record: dict[str, Any], durable: bool = False) -> bool:
        launch_id = record.get("launch_id")
        with self._lock:
            if self._inert():
                return False
            self._fold.apply(record)
            file = self._file
            if not self.writable and not durable:
                return self._lose(launch_id)
            if file is None or not self._sound():
                return self._restore(launch_id)
            try:
                file.append(record)
            except OSError as error:
                log.debug("Writing to %s failed: %s", self.path, error)
                return self._restore(launch_id)
            except (ValueError, TypeError) as error:
                log.error("A record was refused: %s", error)
                return self._lose(launch_id)
            if record["event"] in ("ended", "cleaned"):
                self._keep_short(file)
        return not durable or self._make_durable(file, launch_id)

    def _make_durable(self, file: JournalFile, launch_id: str | None) -> bool:
        try:
            file.sync()  # without the lock: others need not wait for the disk
        except OSError as error:
            log.debug("Writing %s to the disk failed: %s", self.path, error)
            with self._lock:
                return not self._inert() and self._restore(launch_id)
        return True

    def _inert(self) -> bool:
        return self._closed or os.getpid() != self._pid

    def _sound(self) -> bool:
        return self.writable and self._file is not None and self._file.sound

    def _lose(self, launch_id: str | None) -> bool:
        self.write_errors += 1
        if launch_id is not None:
            self._lost.add(launch_id)
        return False

    # -- staying short ---------------------------------------------------------------

    def _keep_short(self, file: JournalFile) -> None:
        if len(self._fold.launches) > 2 * self._most_ended + 100:
            self._fold.forget(self._most_ended, self._still_there)
        busy = self._shortener is not None and self._shortener.is_alive()
        if file.size <= self._compact_at or busy:
            return
        self._shortener = threading.Thread(target=self._shorten, name="journal", daemon=True)
        # RuntimeError: the interpreter is about to end.
        with contextlib.suppress(RuntimeError):
            self._shortener.start()

    def _shorten(self) -> None:
        """Replace the file by a shorter one. Writers wait only while the names change."""
        try:
            with self._lock:
                old = self._file
                if self._inert() or old is None or not self._sound():
                    return
                offset = old.take_in(self._fold)
                self._fold.forget(self._most_ended, self._still_there)
                known = self._fold.copy()
            fresh = self._making = JournalFile(old.path, _encoded(known), old.locked)
            with self._lock:
                if self._inert() or self._file is not old or not self._sound():
                    fresh.discard()
                    return
                self._adopt(fresh, offset)
            old.close()
            fresh.sync()
        except _FAILURES as error:
            # The old file is as good as it was.
            log.debug("The journal could not be shortened: %s", error)
            with self._lock:
                self._compact_at *= 2
        finally:
            self._making = None

    def _adopt(self, fresh: JournalFile, offset: int) -> None:
        """Let a new file take the place of the old one, whose records from there on it lacks.

        The caller closes the old one: that may have to wait for the disk.
        """
        old = self._file
        try:
            if old is not None:
                offset = fresh.follow(old, offset, self._fold)
            fresh.settle()
        except BaseException:
            fresh.discard()
            raise
        self._file, self.path = fresh, fresh.path
        if old is not None:
            with contextlib.suppress(*_FAILURES):
                fresh.follow(old, offset, self._fold)
            if old.path != fresh.path:
                old.remove_name()
        self._compact_at = max(self._compact_bytes, 2 * fresh.size)
        _remember(self)

    # -- making the file -------------------------------------------------------------

    def _restore(self, launch_id: str | None) -> bool:
        """Write all that matters to a new file, in the first folder that takes it."""
        problems: list[str] = []
        without_lock: list[str] = []
        for folder in self._folders:
            try:
                self._write_anew(folder, need_lock=True)
            except NoLock:
                without_lock.append(folder)
                problems.append(f"{folder}: files cannot be locked there")
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
            except (JournalError, ValueError) as error:
                problems.append(str(error))
            else:
                return self._restored(problems)
        for folder in without_lock:
            with contextlib.suppress(*_FAILURES):
                self._write_anew(folder, need_lock=False)
                return self._restored(problems)
        self.writable = False
        self.reason = "; ".join(problems) or "no folder to write to"
        if not self._complained:
            self._complained = True
            log.warning(
                "Kernels are started and watched, but cannot be put on record: %s", self.reason
            )
        return self._lose(launch_id)

    def _restored(self, problems: list[str]) -> bool:
        reason = "; ".join(problems)
        if reason and reason != self.reason:
            log.warning("The journal of kernels is %s, because of %s", self.path, reason)
        elif self._complained:
            log.info("Kernels are put on record again, in %s", self.path)
        self.reason = reason
        self._complained = False
        self.writable = True
        self._lost.clear()
        return True

    def _write_anew(self, folder: str, need_lock: bool) -> None:
        path, old = os.path.join(folder, self._name), self._file
        offset = 0 if old is None else old.take_in(self._fold)
        self._fold.forget(self._most_ended, self._still_there)
        prepare(folder)
        remove_leftovers(folder)
        fresh = JournalFile(path, _encoded(self._fold), need_lock)
        self._adopt(fresh, offset)
        if old is not None:
            old.close()
        fresh.sync_folder()

    # -- the end ---------------------------------------------------------------------

    def _finish(self) -> None:
        file = self._file
        if file is None:
            return
        folder = os.path.dirname(file.path)
        file.take_in(self._fold)
        if forgettable(self._fold, self._still_there):
            bury(folder, self._fold, self._history_limit)
            file.remove_name()
        elif file.sound:
            self._write_anew(folder, need_lock=file.locked)


def _encoded(fold: Fold) -> list[bytes]:
    lines: list[bytes] = []
    for record in fold.dump():
        try:
            lines.append(records.encode(record))
        except (ValueError, TypeError) as error:
            log.error("A record was left out: %s", error)
    return lines


_watching_forks = False


def _remember(journal: Journal) -> None:
    global _watching_forks
    _open_journals.add(journal)
    if not _watching_forks and hasattr(os, "register_at_fork"):
        _watching_forks = True
        os.register_at_fork(after_in_child=_forget_in_child)


def _forget_in_child() -> None:
    # A lock lives as long as the last copy of the descriptor: a child that was forked
    # without exec (multiprocessing) would make a dead owner look alive.
    for journal in list(_open_journals):
        journal._lock = threading.RLock()
        journal._closed = True
        journal.writable = False
        for file in (journal._file, journal._making):
            if file is not None:
                file.abandon()
