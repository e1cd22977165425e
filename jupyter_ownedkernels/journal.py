"""The journal: one append-only file per owner, with everything that it launched.

The owner writes it and holds its lock. Keepers add one last record by path when the
owner has died; recovery and doctor finish it then and remove it. This module is the
owner's side, and the one door to the others: :func:`read`, :func:`find`,
:func:`is_locked`, :func:`claim`, :func:`history`.

The file is only ever replaced by a complete new one that is already locked (a rename),
so nobody sees a journal without its first record, or a living owner's journal unlocked.
What other processes append by path while that happens is not lost: they look after
writing whether the path still names the file they wrote to, and the owner reads what
came to the old file once more after the rename.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from . import __version__, identity, journal_folder, journal_read
from .errors import JournalError
from .journal_claim import Claim, claim
from .journal_file import NoLock, make, remove_leftovers, sync
from .journal_fold import Fold, StillThere
from .journal_folder import candidates, find, folders, owner_id_of
from .journal_history import bury, history
from .journal_lock import Lock, is_locked
from .journal_read import JournalView, owner_verdict, read, read_all, still_there
from .journal_writer import JournalWriter
from .models import OwnerRecord
from .runtime import procfs, records

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
    "is_locked",
    "owner_id_of",
    "owner_verdict",
    "read",
    "read_all",
    "still_there",
    "this_owner",
]

log = logging.getLogger(__name__)

COMPACT_BYTES = 256 << 10
"""About 200 launches. Writing the file anew takes some milliseconds."""

_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def this_owner(owner_id: str, url: str = "") -> OwnerRecord:
    """The calling process as an owner. Without /proc it has no identity."""
    try:
        me = identity.of_self()
    except OSError:
        me = None
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in the system's list
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    return OwnerRecord(
        owner_id, me, user, procfs.host(), _without_secrets(url), time.time(), __version__
    )


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
        history_limit: int = 500,
        clock: Callable[[], float] = time.time,
        still_there: StillThere = still_there,
    ) -> None:
        self._name = journal_folder.journal_name(owner.owner_id)
        self._folders = list(folders)
        self._compact_bytes = compact_bytes
        self._history_limit = history_limit
        self._clock = clock
        self._still_there = still_there
        self._fold = Fold()
        self._fold.owner = replace(owner, url=_without_secrets(owner.url))
        self._lock = threading.RLock()
        # Held while the disk works, so that other threads need not wait for it to write.
        self._disk = threading.Lock()
        self._pid = os.getpid()
        self._fd = -1
        self._path: str | None = None
        self._size = 0
        self._compact_at = compact_bytes
        self._mixed = False
        self._lost: set[str] = set()
        self._closed = False
        self._complained = False
        self.writable = False
        self.locked = False
        """False where the file system cannot lock."""
        self.records = 0
        self.write_errors = 0
        """How many records could not be written when they were due."""
        self.reason = ""
        """Why the journal cannot be written, or does not lie in the first folder."""

    @property
    def path(self) -> str | None:
        """Where the journal lies, for keepers; None while there is none."""
        return self._path

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
            owner = replace(self._fold.owner, url=_without_secrets(url))
            return self._put({"event": "owner", **owner.to_json()})

    def close(self) -> None:
        """The owner ends in good order. May be called twice.

        The file goes, and what has ended moves to the folder's history, unless something
        on record may still run: then the file stays, unlocked, for the doctor.
        """
        with self._lock:
            if self._inert():
                return
            if self._path is None and not self._fold.launches:
                self._closed = True
                return
            if not self._sound() and self._fold.launches:
                self._restore(None)
            self._closed = True
            if self._fd < 0:
                return
            try:
                self._finish()
            except (OSError, ValueError) as error:
                log.warning("The journal %s is left behind: %s", self._path, error)
            self._let_go()

    # -- writing ---------------------------------------------------------------------

    def _put(self, record: dict[str, Any], durable: bool = False) -> bool:
        launch_id = record.get("launch_id")
        with self._lock:
            if self._inert():
                return False
            self._fold.apply(record)
            if not self.writable and not durable:
                return self._lose(launch_id)
            if not self._sound():
                return self._restore(launch_id)
            try:
                self._append(record)
            except OSError as error:
                log.debug("Writing to %s failed: %s", self._path, error)
                return self._restore(launch_id)
            except (ValueError, TypeError) as error:
                log.error("A record was refused: %s", error)
                return self._lose(launch_id)
            if record["event"] in ("ended", "cleaned"):
                self._keep_short()
        return not durable or self._make_durable(launch_id)

    def _append(self, record: dict[str, Any]) -> None:
        written = records.append(self._fd, record)
        size = os.fstat(self._fd).st_size
        self._mixed = self._mixed or size != self._size + written
        self._size = size
        self.records += 1

    def _make_durable(self, launch_id: str | None) -> bool:
        try:
            with self._disk:
                # Another file than the one just written to is complete and durable already.
                if self._fd >= 0:
                    sync(self._fd)
        except OSError as error:
            log.debug("Writing %s to the disk failed: %s", self._path, error)
            with self._lock:
                return not self._inert() and self._restore(launch_id)
        return True

    def _keep_short(self) -> None:
        if len(self._fold.launches) > 2 * self._history_limit + 100:
            self._fold.forget(self._history_limit, self._still_there)
        if self._size <= self._compact_at or self._path is None:
            return
        try:
            self._write_anew(os.path.dirname(self._path), need_lock=self.locked)
        except (JournalError, OSError, ValueError) as error:
            # The old file is as good as it was.
            log.debug("The journal could not be shortened: %s", error)
            self._compact_at = 2 * self._size

    def _inert(self) -> bool:
        return self._closed or os.getpid() != self._pid

    def _sound(self) -> bool:
        # One look at the name: 2 microseconds. A runtime folder is sometimes emptied.
        return self.writable and self._path is not None and records.is_at(self._fd, self._path)

    def _lose(self, launch_id: str | None) -> bool:
        self.write_errors += 1
        if launch_id is not None:
            self._lost.add(launch_id)
        return False

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
            with contextlib.suppress(JournalError, OSError, ValueError):
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
            log.warning("The journal of kernels is %s, because of %s", self._path, reason)
        elif self._complained:
            log.info("Kernels are put on record again, in %s", self._path)
        self.reason = reason
        self._complained = False
        self.writable = True
        self._lost.clear()
        return True

    def _write_anew(self, folder: str, need_lock: bool) -> None:
        path = os.path.join(folder, self._name)
        consumed = self._take_in()
        self._fold.forget(self._history_limit, self._still_there)
        lines = _encoded(self._fold)
        if path != self._path or not self._sound():
            journal_folder.prepare(folder)
            remove_leftovers(folder)
        content = b"".join(lines)
        fd, locked = make(path, content, need_lock)
        with self._disk:
            old_fd, old_path = self._fd, self._path
            self._fd, self._path, self.locked = fd, path, locked
        self.records = len(lines)
        # What this object wrote, not what the file holds: others may append already.
        self._size = len(content)
        self._mixed = False
        if old_fd >= 0:
            self._take_over(old_fd, old_path, consumed)
        self._compact_at = max(self._compact_bytes, 2 * self._size)
        _remember(self)

    def _take_in(self) -> int:
        """Read what others appended; the answer is how far the old file was read."""
        if self._fd < 0:
            return 0
        with contextlib.suppress(OSError):
            if not self._mixed and os.fstat(self._fd).st_size == self._size:
                return self._size
            data = journal_read.read_bytes(self._fd)
            self._fold.absorb(journal_read.fold_of(data)[0])
            # Of a record that is being written a part may be seen: read it again later.
            return data.rfind(b"\n") + 1
        return self._size

    def _take_over(self, old_fd: int, old_path: str | None, consumed: int) -> None:
        """Bring over what came to the old file until the rename, and let it go."""
        try:
            for record in records.parse(journal_read.read_bytes(old_fd, consumed))[0]:
                self._fold.apply(record)
                self._append(record)
            if old_path not in (None, self._path) and records.is_at(old_fd, str(old_path)):
                os.unlink(str(old_path))
        except (OSError, ValueError) as error:
            log.debug("The old journal %s could not be emptied: %s", old_path, error)
        finally:
            os.close(old_fd)

    # -- the end ---------------------------------------------------------------------

    def _finish(self) -> None:
        assert self._path is not None
        folder = os.path.dirname(self._path)
        self._take_in()
        if journal_read.forgettable(self._fold, self._still_there):
            bury(folder, self._fold, self._history_limit)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        else:
            self._write_anew(folder, need_lock=self.locked)

    def _let_go(self) -> None:
        self.writable = False
        with self._disk:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


def _encoded(fold: Fold) -> list[bytes]:
    lines: list[bytes] = []
    for record in fold.dump():
        try:
            lines.append(records.encode(record))
        except (ValueError, TypeError) as error:
            log.error("A record was left out: %s", error)
    return lines


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


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
        journal._disk = threading.Lock()
        journal._closed = True
        journal._let_go()
