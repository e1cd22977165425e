"""The file of a journal, as its owner holds it.

It is complete, locked and on disk before it has its name, and it is only ever replaced by
another one of that kind. So nobody sees a journal without its first record, or the journal
of a living owner unlocked.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import JournalError
from ..runtime import files, lock, records
from ..runtime.lock import Lock
from . import read
from .fold import Fold
from .folder import HISTORY_NAME

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | lock.READ_FLAGS
_LEFTOVER = re.compile(
    r"\.owner-[0-9A-Za-z_-]{1,64}\.jsonl\.[0-9a-f]+\.tmp|"
    + re.escape(HISTORY_NAME)
    + r"\.[0-9]+\.tmp"
)
_LEFTOVER_AGE = 60.0


class NoLock(Exception):
    """The file system cannot lock."""


class JournalFile:
    """One file, open and locked. Not thread-safe but for :meth:`sync` and :meth:`close`."""

    def __init__(self, path: str, lines: Sequence[bytes], need_lock: bool) -> None:
        """Make it, under a name of its own yet. OSError, JournalError or NoLock."""
        folder, name = os.path.split(path)
        content = b"".join(lines)
        self.path = path
        self.records = len(lines)
        self.size = len(content)
        """Bytes that were written through this object. Others may have added some."""
        self._mixed = False
        # Held while the disk works, so that nobody closes the file meanwhile.
        self._disk = threading.Lock()
        self._temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
        self._fd = os.open(self._temporary, _FLAGS, 0o600)
        try:
            self.locked = self._fill(folder, content, need_lock)
        except BaseException:
            self.discard()
            raise

    def _fill(self, folder: str, content: bytes, need_lock: bool) -> bool:
        if hasattr(os, "fchmod"):
            os.fchmod(self._fd, 0o600)  # the umask may have taken even the owner's rights
            if os.fstat(self._fd).st_mode & 0o077:
                raise JournalError(f"{folder}: files cannot be kept from other users there")
        locked = lock.take(self._fd) is Lock.FREE
        if need_lock and not locked:
            raise NoLock
        if os.write(self._fd, content) != len(content):
            raise JournalError(f"{folder}: the disk is full")
        os.fsync(self._fd)
        return locked

    def settle(self) -> None:
        """Give it its name. What lay under it is replaced in one step."""
        os.replace(self._temporary, self.path)
        self._temporary = ""

    def sync_folder(self) -> None:
        """Have the name on disk, where the system knows how."""
        with contextlib.suppress(OSError):
            fd = os.open(os.path.dirname(self.path), os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    @property
    def sound(self) -> bool:
        """Whether its name still stands for it. 2 microseconds; a folder may be emptied."""
        return self._fd >= 0 and records.is_at(self._fd, self.path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record. OSError; ValueError or TypeError for what must not be written."""
        written = records.append(self._fd, record)
        size = os.fstat(self._fd).st_size
        self._mixed = self._mixed or size != self.size + written
        self.size = size
        self.records += 1

    def sync(self) -> None:
        """Have the content on disk; takes as long as the disk needs. Any thread may call it."""
        with self._disk:
            # When it was replaced meanwhile, the new one is complete and on disk.
            if self._fd >= 0:
                getattr(os, "fdatasync", os.fsync)(self._fd)

    def take_in(self, fold: Fold) -> int:
        """Tell the fold what others appended. Answers how far the file was read."""
        with contextlib.suppress(OSError):
            if not self._mixed and os.fstat(self._fd).st_size == self.size:
                return self.size
            data = read.read_bytes(self._fd)
            fold.absorb(read.fold_of(data)[0])
            # Of a record that is being written a part may be seen: read it again later.
            return data.rfind(b"\n") + 1
        return self.size

    def follow(self, old: JournalFile, offset: int, fold: Fold) -> int:
        """Bring over what came to the old file from an offset on; answers the next offset."""
        try:
            data = read.read_bytes(old._fd, offset)
        except OSError:
            return offset
        for record in records.parse(data)[0]:
            fold.apply(record)
            self.append(record)
        return offset + data.rfind(b"\n") + 1

    def remove_name(self) -> None:
        """The file is of no use any more."""
        with contextlib.suppress(OSError):
            if self.sound:
                os.unlink(self.path)

    def discard(self) -> None:
        """Give up a file that has no name yet."""
        self.close()
        if self._temporary:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)

    def close(self) -> None:
        """Let go of file and lock. May be called twice."""
        with self._disk:
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: the parent's threads, and what they hold, are not here."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def remove_leftovers(folder: str) -> None:
    """Remove half-made files of owners that died in here: of no use to anybody."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _LEFTOVER.fullmatch(entry.name):
                continue
            status = entry.stat(follow_symlinks=False)
            old = time.time() - status.st_mtime > _LEFTOVER_AGE
            free = lock.is_locked(entry.path) is not Lock.LOCKED
            if old and free and stat.S_ISREG(status.st_mode):
                files.remove(entry.path, files.FileIdentity.from_stat(status))
