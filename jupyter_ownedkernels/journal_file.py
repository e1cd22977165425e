"""Making the file of a journal: complete, locked and on disk before it has its name."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time

from . import journal_lock
from .errors import JournalError
from .journal_lock import Lock
from .runtime import files

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | journal_lock.READ_FLAGS
_LEFTOVER = re.compile(r"\.owner-[0-9A-Za-z_-]{1,64}\.jsonl\.tmp")
_LEFTOVER_AGE = 60.0


class NoLock(Exception):
    """The file system cannot lock."""


def make(path: str, content: bytes, need_lock: bool) -> tuple[int, bool]:
    """Put a new file under the path; the open file, and whether it is locked.

    What lay under the path is replaced in one step. OSError, JournalError or NoLock, and
    nothing changed, when it cannot be done.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    fd = os.open(temporary, _FLAGS, 0o600)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(fd, 0o600)  # the umask may have taken even the owner's rights
            if os.fstat(fd).st_mode & 0o077:
                raise JournalError(f"{folder}: files cannot be kept from other users there")
        locked = journal_lock.take(fd) is Lock.FREE
        if need_lock and not locked:
            raise NoLock
        if os.write(fd, content) != len(content):
            raise JournalError(f"{folder}: the disk is full")
        os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):
        _sync_folder(folder)
    return fd, locked


def sync(fd: int) -> None:
    """Have the content on disk; takes as long as the disk needs."""
    getattr(os, "fdatasync", os.fsync)(fd)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_leftovers(folder: str) -> None:
    """Remove half-made files of owners that died in here: of no use to anybody."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _LEFTOVER.fullmatch(entry.name):
                continue
            status = entry.stat(follow_symlinks=False)
            old = time.time() - status.st_mtime > _LEFTOVER_AGE
            free = journal_lock.is_locked(entry.path) is not Lock.LOCKED
            if old and free and stat.S_ISREG(status.st_mode):
                files.remove(entry.path, files.FileIdentity.from_stat(status))
