"""Whether files in a folder can only be of processes that this machine shows.

A connection file says nothing about where its kernel runs. Where another machine or
another container may write to the same folder, a file without a journal proves nothing:
its kernel may live where nobody here can see it.
"""

from __future__ import annotations

import os
import re

from ..runtime import procfs
from . import folder as journal_folder

INITIAL_NAMESPACE = 0xEFFFFFFC
"""That of the machine itself: PROC_PID_INIT_INO, the same on every Linux."""

_OWN_TO_A_CONTAINER = frozenset({"overlay", "aufs", "tmpfs", "ramfs", "rootfs"})
_LOCAL = _OWN_TO_A_CONTAINER | {
    "apfs",
    "bcachefs",
    "btrfs",
    "ecryptfs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hfsplus",
    "jfs",
    "nilfs2",
    "ntfs3",
    "reiserfs",
    "ufs",
    "vfat",
    "xfs",
    "zfs",
}
_ESCAPE = re.compile(r"\\([0-7]{3})")


def why_shared(folder: str, mountinfo: str = "/proc/self/mountinfo", namespace: int = -1) -> str:
    """Why others may write there, in words; empty when only this machine does.

    ``namespace`` is the pid namespace to judge from, the caller's by default.
    """
    place = os.path.realpath(folder)
    if journal_folder.is_network(place):
        return "the folder is on a network file system"
    kind = _kind_of(place, mountinfo)
    if kind not in _LOCAL:
        return f"other machines may share the folder's file system ({kind or 'unknown'})"
    if (procfs.pid_namespace() if namespace < 0 else namespace) == INITIAL_NAMESPACE:
        return ""
    if kind in _OWN_TO_A_CONTAINER or _on_root_device(place):
        return ""
    return "other containers may share the folder's volume"


def has_sure_locks(folder: str) -> bool:
    """Whether a free lock on a file there proves that nobody at all holds it.

    On a network file system, or one that a host shares with its virtual machines, locks may
    be seen by one machine only. Containers of one machine see each other's.
    """
    place = os.path.realpath(folder)
    kind = _kind_of(place, "/proc/self/mountinfo")
    return kind in _LOCAL and not journal_folder.is_network(place)


def _on_root_device(place: str) -> bool:
    try:
        return os.stat(place).st_dev == os.stat("/").st_dev
    except OSError:
        return False


def _kind_of(place: str, mountinfo: str) -> str:
    """The type of the file system that holds the folder; empty where it is not told."""
    best, kind = "", ""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as stream:
            for line in stream:
                left, _, right = line.partition(" - ")
                point = _ESCAPE.sub(lambda m: chr(int(m.group(1), 8)), left.split(" ")[4])
                inside = point == "/" or place == point or place.startswith(point + "/")
                # The last of several mounts over one folder is the one that is seen.
                if inside and len(point) >= len(best):
                    best, kind = point, right.split(" ", 1)[0]
    except (OSError, IndexError):
        return ""
    return kind
