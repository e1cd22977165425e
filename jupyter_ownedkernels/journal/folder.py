"""Where journals lie, and what to do when they cannot lie there.

The first choice is ``ownedkernels`` in the Jupyter runtime folder. When that cannot be
used (read-only, full, permissions that the file system does not honour) a private
folder of the user on a local disk takes its place; so it does for a network home, where
locks may not work and one slow server would hold up every launch, while only this host
can act on the journal anyway. Recovery and doctor look in all of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator

from ..errors import JournalError

NAME = "ownedkernels"
HISTORY_NAME = "history.jsonl"

_JOURNAL = re.compile(r"owner-([0-9A-Za-z_-]{1,64})\.jsonl")
_NETWORK = re.compile(
    r"(nfs\d*|cifs|smb\d*|smbfs|afs|ceph|lustre|gpfs|beegfs|glusterfs|orangefs|pvfs2|ocfs2|gfs2"
    r"|ncpfs|9p|fuse\.(sshfs|glusterfs|ceph-fuse|s3fs|rclone|gcsfuse|juicefs|lustre|cephfs))"
)


def journal_name(owner_id: str) -> str:
    """The file name of an owner's journal. ValueError for an id unfit for a file name."""
    name = f"owner-{owner_id}.jsonl"
    if not _JOURNAL.fullmatch(name):
        raise ValueError("an owner id has 1 to 64 letters, digits, '_' or '-'")
    return name


def folders(runtime_dir: str, journal_dir: str | None = None) -> list[str]:
    """Every folder where journals of this user may lie, existing or not.

    ``journal_dir`` is the configured folder. The default place is looked at all the
    same: other owners of this user may not have that configuration.
    """
    chosen = [journal_dir] if journal_dir else []
    return list(dict.fromkeys([*chosen, os.path.join(runtime_dir, NAME), *private_folders()]))


def candidates(runtime_dir: str, journal_dir: str | None = None) -> list[str]:
    """Where an owner tries to open its journal, best first. A configured folder is obeyed."""
    first = journal_dir or os.path.join(runtime_dir, NAME)
    if not journal_dir and is_network(first):
        return [*private_folders(), first]
    return [first, *private_folders()]


def private_folders() -> list[str]:
    """Folders of the user on a local disk."""
    if not hasattr(os, "geteuid"):
        return [os.path.join(tempfile.gettempdir(), NAME)]
    user = os.geteuid()
    # The login manager's folder is there for processes that never heard of it, too.
    session = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    temporary = os.path.join(tempfile.gettempdir(), f"{NAME}-{user}")
    return [os.path.join(session, NAME), temporary]


def prepare(folder: str) -> None:
    """Make the folder and see that it is private. JournalError with the reason if not."""
    parent = os.path.dirname(folder)
    private = folder in private_folders()
    try:
        if private:
            _check_parent(parent)
        else:
            os.makedirs(parent, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        _make_private(folder, follow=not private)
    except OSError as error:
        raise JournalError(f"{folder}: {error.strerror or error}") from error


def _check_parent(parent: str) -> None:
    status = os.stat(parent)
    if not hasattr(os, "geteuid"):
        return
    own = status.st_uid == os.geteuid() and not status.st_mode & 0o077
    shared = status.st_uid in (0, os.geteuid()) and (
        status.st_mode & stat.S_ISVTX or not status.st_mode & 0o022
    )
    # In a folder where others may rename and remove, no name stands for what was checked.
    if not (own or shared):
        raise PermissionError(errno.EACCES, "others may change what lies beside it")


def _make_private(folder: str, follow: bool) -> None:
    for attempt in ("look", "change", "look again"):
        status = os.stat(folder, follow_symlinks=follow)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        if not hasattr(os, "geteuid"):
            return
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the folder of another user")
        if stat.S_IMODE(status.st_mode) & 0o777 == 0o700:
            return
        if attempt == "look":
            os.chmod(folder, 0o700)
    raise PermissionError(errno.EPERM, "its permissions cannot be set to 0700")


def is_network(path: str) -> bool:
    """Whether the path, or the nearest folder above that exists, is on a network disk.

    False where the system does not tell. Files of several hosts may lie there, so the
    doctor must not take a file without a journal for one of this host.
    """
    place = os.path.abspath(path)
    while True:
        try:
            device = os.stat(place).st_dev
            break
        except OSError:
            above = os.path.dirname(place)
            if above == place:
                return False
            place = above
    return bool(_NETWORK.fullmatch(_mounts().get(device, "")))


def _mounts() -> dict[int, str]:
    """Device number to file system type of everything that is mounted."""
    found: dict[int, str] = {}
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                left, _, right = line.partition(" - ")
                major, _, minor = left.split(" ", 3)[2].partition(":")
                found[os.makedev(int(major), int(minor))] = right.split(" ", 1)[0]
    except (OSError, ValueError, IndexError):
        return found
    return found


def find(where: Iterable[str]) -> list[str]:
    """Paths of the journals in these folders, in the order of their names.

    Only regular files of this user, never links. Folders that are not there or may not be
    read hold none: who concludes something from that asks :func:`search`.
    """
    return search(where)[0]


def search(where: Iterable[str]) -> tuple[list[str], list[str]]:
    """The same paths, and why there may be more: folders of this user that cannot be read.

    In one of another user, or that can only be reached through such a one, no owner of this
    user has put a journal. ``su`` leaves XDG_RUNTIME_DIR as it was, for one.
    """
    found: list[str] = []
    problems: list[str] = []
    for folder in where:
        try:
            found += [entry.path for entry in _entries(folder)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if _may_be_ours(folder):
                problems.append(f"{folder}: {error.strerror or error}")
    return found, problems


def _may_be_ours(folder: str) -> bool:
    try:
        return not hasattr(os, "geteuid") or os.stat(folder).st_uid == os.geteuid()
    except OSError as error:
        return not isinstance(error, PermissionError)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    user = os.geteuid() if hasattr(os, "geteuid") else None
    with os.scandir(folder) as entries:
        names = sorted(entries, key=lambda entry: entry.name)
    for entry in names:
        if not _JOURNAL.fullmatch(entry.name):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode) and user in (None, status.st_uid):
            yield entry
