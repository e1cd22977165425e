"""Removing one file, and no other, by name.

The name may come to mean another file at any moment: a restart writes a new connection
file under the old name. So the file is first taken out of the way by a rename, looked
at where nobody else will change it, and only then removed; the wrong one is put back.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import NamedTuple

_HAS_DIR_FD = os.unlink in os.supports_dir_fd and os.rename in os.supports_dir_fd
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)

_ASIDE = re.compile(r"\.ownedkernels-[0-9]+-[0-9a-f]{16}(?:-(.+))?", re.DOTALL)
_LONGEST = 255  # bytes in a name


class FileIdentity(NamedTuple):
    """One file with one content: a file rewritten in place, or swapped, is another."""

    device: int
    inode: int
    mtime_ns: int

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileIdentity:
        return cls(status.st_dev, status.st_ino, status.st_mtime_ns)


class Removal(NamedTuple):
    """What became of a wish to remove a file. ``outcome`` is a word of the doctor's."""

    outcome: str
    """removed, already-gone, identity-changed, not-permitted or refused"""
    reason: str

    @property
    def removed(self) -> bool:
        return self.outcome == "removed"


def identity_of(path: str) -> FileIdentity | None:
    """The identity of what the path names now, links not followed; None when it names nothing."""
    try:
        return FileIdentity.from_stat(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def remove(path: str, expected: FileIdentity | None = None, *, socket: bool = False) -> Removal:
    """Remove a regular file of this user, or a Unix ``socket`` instead; never raises.

    ``expected`` is what the caller looked at when it decided; a keeper gives none, it
    knows the connection file of its own launch by the exact path. Links are refused as
    files; the folder may be reached through a link, as on many clusters.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if not name:
        return Removal("refused", "not a file")
    if not _HAS_DIR_FD:
        return _remove_by_path(path, expected, socket)
    try:
        folder_fd = os.open(folder, _FOLDER_FLAGS)
    except OSError as error:
        return _failure(error)
    try:
        return _remove_at(folder_fd, name, expected, socket)
    except OSError as error:
        return _failure(error)
    finally:
        os.close(folder_fd)


def _remove_at(folder_fd: int, name: str, expected: FileIdentity | None, socket: bool) -> Removal:
    status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    objection = _objection(status, expected, socket)
    if objection is not None:
        return objection
    looked_at = FileIdentity.from_stat(status)
    aside = _aside(name)
    os.rename(name, aside, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    taken = os.stat(aside, dir_fd=folder_fd, follow_symlinks=False)
    if FileIdentity.from_stat(taken) == looked_at:
        os.unlink(aside, dir_fd=folder_fd)
        return Removal("removed", "")
    _put_back(folder_fd, aside, name)
    return Removal("identity-changed", "another file came under this name")


def _aside(name: str) -> str:
    bare = f".ownedkernels-{os.getpid()}-{os.urandom(8).hex()}"
    telling = f"{bare}-{name_before(name) or name}"
    return telling if len(os.fsencode(telling)) <= _LONGEST else bare


def name_before(name: str) -> str | None:
    """The name that a file had before a removal that was cut short.

    Empty when it was too long to be kept; None when that is not what the name says.
    """
    match = _ASIDE.fullmatch(name)
    return (match.group(1) or "") if match else None


def _put_back(folder_fd: int, aside: str, name: str) -> None:
    try:
        # Unlike a rename, a link never replaces what has come under the name since.
        os.link(aside, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError:  # a folder, or a file system without hard links
        os.rename(aside, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        return
    os.unlink(aside, dir_fd=folder_fd)


def _remove_by_path(path: str, expected: FileIdentity | None, socket: bool) -> Removal:
    try:
        objection = _objection(os.stat(path, follow_symlinks=False), expected, socket)
        if objection is not None:
            return objection
        os.unlink(path)
    except OSError as error:
        return _failure(error)
    return Removal("removed", "")


def _objection(
    status: os.stat_result, expected: FileIdentity | None, socket: bool
) -> Removal | None:
    if stat.S_ISLNK(status.st_mode):
        return Removal("refused", "a link, not a file")
    if socket and not stat.S_ISSOCK(status.st_mode):
        return Removal("refused", "not a socket")
    if not socket and not stat.S_ISREG(status.st_mode):
        return Removal("refused", "not a regular file")
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return Removal("not-permitted", "the file of another user")
    if expected is not None and FileIdentity.from_stat(status) != expected:
        return Removal("identity-changed", "the file was written again or replaced")
    return None


def _failure(error: OSError) -> Removal:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Removal("already-gone", "no such file")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Removal("not-permitted", os.strerror(error.errno))
    return Removal("refused", str(error.strerror or error))
