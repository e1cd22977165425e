"""Whether a process that got SIGKILL was ended by the system for want of memory.

Two witnesses. The kernel log names the pid, but may not be readable and knows only pids
of the initial namespace. The memory cgroup counts its victims without naming them: a
count that did not move proves that it was not one; a count that did move says so only
together with the process having been large.
"""

from __future__ import annotations

import os
import re

from . import procfs

# The inode of the first pid namespace is fixed in the kernel's sources.
_INITIAL_PID_NS = 0xEFFFFFFC
_LOG = "/dev/kmsg"
# 1 MB is the usual size of the whole log; a larger one is not worth the wait.
_LOG_LIMIT = 4 << 20
_VICTIM = re.compile(rb"^\d+,\d+,(\d+),[^;]*;.*Killed process (\d+) ")
# The killer takes the largest process of the cgroup. One that never held a quarter of
# the limit was hardly it.
_LARGE_SHARE = 4
_UNLIMITED = 1 << 60


class Memory:
    """The memory cgroup of a process at one moment, to be asked again after its end."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._kills = self._count()

    def _count(self) -> int | None:
        if self._folder is None:
            return None
        for name in ("memory.events", "memory.oom_control"):
            for line in _text(os.path.join(self._folder, name)).splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.strip().isdigit():
                    return int(value)
        return None

    def has_killed(self) -> bool | None:
        """Whether the cgroup has had victims since. None: it does not tell."""
        now = self._count()
        if now is None or self._kills is None:
            return None
        return now > self._kills

    def limit(self) -> int | None:
        """Bytes that the cgroup may use; None without a limit."""
        if self._folder is None:
            return None
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _text(os.path.join(self._folder, name)).strip()
            if limit.isdigit() and int(limit) < _UNLIMITED:
                return int(limit)
        return None

    def room(self) -> tuple[int, int] | None:
        """The limit, and what is left of it: files that are only cached do not count.

        None without a limit.
        """
        limit = self.limit()
        if limit is None or self._folder is None:
            return None
        for name in ("memory.current", "memory.usage_in_bytes"):
            used = _text(os.path.join(self._folder, name)).strip()
            if used.isdigit():
                return limit, limit - int(used) + self._cached()
        return None

    def _cached(self) -> int:
        assert self._folder is not None
        lines = _text(os.path.join(self._folder, "memory.stat")).splitlines()
        found = dict(line.split(" ", 1) for line in lines if " " in line)
        for name in ("total_inactive_file", "inactive_file"):
            if found.get(name, "").isdigit():
                return int(found[name])
        return 0


def memory_of(pid: int) -> Memory:
    """The memory cgroup of a running process."""
    return Memory(_folder_of(pid))


def was_victim(pid: int, start_ticks: int, max_rss: int | None, memory: Memory) -> bool | None:
    """Whether the killed process was a victim. None: nothing here can tell."""
    logged = _in_log(pid, start_ticks)
    if logged:
        return True
    counted = memory.has_killed()
    if counted is False or (counted is None and logged is False):
        return False
    if counted is None:
        return None
    limit = memory.limit()
    if limit is not None and max_rss is not None and max_rss * _LARGE_SHARE >= limit:
        return True
    return None if logged is None else False


def _folder_of(pid: int) -> str | None:
    paths: dict[str, str] = {}
    for line in _text(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            paths["cgroup2"] = path
        elif "memory" in controllers.split(","):
            paths["cgroup"] = path
    # The memory controller belongs to one of the two; where it is in use, version 1 has it.
    for kind in sorted(paths):
        folder = _mounted(kind, paths[kind])
        if folder is not None:
            return folder
    return None


def _mounted(kind: str, path: str) -> str | None:
    """Where the cgroup's folder is to be found, through the mount that shows it."""
    for line in _text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(rest) < 3 or rest[0] != kind:
            continue
        if kind == "cgroup" and "memory" not in rest[2].split(","):
            continue
        root, point = fields[3], fields[4]
        inside = path[len(root) :] if root != "/" and path.startswith(root) else path
        folder = os.path.normpath(point + "/" + inside)
        if os.path.exists(os.path.join(folder, "memory.events")) or os.path.exists(
            os.path.join(folder, "memory.oom_control")
        ):
            return folder
    return None


def _in_log(pid: int, start_ticks: int) -> bool | None:
    """Whether the kernel log names the pid as a victim since the process was started."""
    if procfs.pid_namespace() != _INITIAL_PID_NS:
        return None
    try:
        fd = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    since = start_ticks * 1_000_000 // procfs.CLOCK_TICKS - 1_000_000
    read = 0
    try:
        while read < _LOG_LIMIT:
            try:
                record = os.read(fd, 8192)  # one record a read
            except BrokenPipeError:  # overwritten while reading: the next read goes on
                continue
            read += len(record)
            found = _VICTIM.match(record)
            if found and int(found.group(2)) == pid and int(found.group(1)) >= since:
                return True
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _text(path: str) -> str:
    """What the file holds; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
