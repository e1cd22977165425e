"""Which process is meant: names that stay true when numbers are used again.

A pid names a process only for a while, on one host, in one pid namespace, since one
boot. :class:`Identity` holds all of that, and :func:`compare` has three answers.
Only ``SAME`` allows a signal; only ``DIFFERENT`` or ``GONE`` proves a death; nothing
is ever done on ``UNKNOWN``.
"""

from __future__ import annotations

import enum
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .runtime import procfs

_LARGEST_PID = 0x7FFFFFFF


class Verdict(enum.Enum):
    """What a look at the process table says about a recorded identity."""

    SAME = "same"
    """That very process exists and is not a zombie."""
    GONE = "gone"
    """No process has the number, or the one that has it is a zombie."""
    DIFFERENT = "different"
    """Another process has the number now: the recorded one is dead."""
    FOREIGN = "foreign"
    """Recorded in another world (host, boot or pid namespace)."""
    UNKNOWN = "unknown"
    """It cannot be read, or the record lacks what a proof needs."""

    @property
    def proves_death(self) -> bool:
        """Whether the recorded process is certain not to run any more."""
        return self in (Verdict.GONE, Verdict.DIFFERENT)


@dataclass(frozen=True)
class World:
    """Where pids have a meaning: one host, one boot, one pid namespace."""

    host: str
    boot_id: str
    pid_ns: int
    over: bool = False
    """Proven to have ended: this machine itself, before it was last started."""

    @property
    def known(self) -> bool:
        """False where the system does not tell enough for a proof."""
        return bool(self.boot_id) and self.pid_ns != 0


@functools.lru_cache(maxsize=1)
def _world_of(pid: int) -> World:
    # Keyed by pid: a forked child may have been born into a new pid namespace.
    namespace = procfs.pid_namespace() if procfs.is_own_view() else 0
    return World(procfs.host(), procfs.boot_id(), namespace)


def this_world() -> World:
    """The world of the calling process."""
    return _world_of(os.getpid())


@dataclass(frozen=True)
class Identity:
    """One process, named so that no later one can be taken for it.

    ``start_ticks`` is compared exactly, as the kernel gives it (clock ticks since boot).
    """

    world: World
    pid: int
    start_ticks: int

    def to_json(self) -> dict[str, Any]:
        """A flat mapping for the journal."""
        world = self.world
        return {
            "host": world.host,
            "boot_id": world.boot_id,
            "pid_ns": world.pid_ns,
            "pid": self.pid,
            "start_ticks": self.start_ticks,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """Read what :meth:`to_json` wrote. ValueError when a field is missing or odd."""
        try:
            host, boot_id, pid_ns = data["host"], data["boot_id"], data["pid_ns"]
            pid, start_ticks = data["pid"], data["start_ticks"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an identity: {error}") from None
        if not (isinstance(host, str) and isinstance(boot_id, str)):
            raise ValueError("not an identity: host and boot id are texts")
        numbers = (pid_ns, pid, start_ticks)
        if any(type(number) is not int or number < 0 for number in numbers) or pid == 0:
            raise ValueError("not an identity: pid, ticks and namespace are numbers")
        if pid > _LARGEST_PID:
            raise ValueError("not an identity: no system gives such a pid")
        return cls(World(host, boot_id, pid_ns), pid, start_ticks)


def of_pid(pid: int) -> Identity | None:
    """The identity of a running process; None when it is gone or a zombie.

    Raises PermissionError when the process exists and cannot be read.
    """
    entry = procfs.stat(pid)
    if entry is None or not entry.alive:
        return None
    return Identity(this_world(), pid, entry.start_ticks)


def of_self() -> Identity:
    """The identity of the calling process."""
    found = of_pid(os.getpid())
    if found is None:
        raise OSError("/proc is not available: this process cannot name itself")
    return found


def compare(recorded: Identity) -> Verdict:
    """Look for the recorded process now. Never raises for what it cannot read."""
    here = this_world()
    if recorded.world.over:
        return Verdict.GONE
    if not recorded.world.known or not here.known:
        return Verdict.UNKNOWN
    if recorded.world != here:
        return Verdict.FOREIGN
    try:
        entry = procfs.stat(recorded.pid)
        if entry is None:
            # "Not found" means gone only where /proc is mounted and shows at least us,
            # and where it does not hide processes: the system itself must say so too.
            visible = procfs.stat(os.getpid()) is not None
            gone = visible and procfs.exists(recorded.pid) is False
            return Verdict.GONE if gone else Verdict.UNKNOWN
    except OSError:
        return Verdict.UNKNOWN
    if entry.start_ticks != recorded.start_ticks:
        return Verdict.DIFFERENT
    return Verdict.SAME if entry.alive else Verdict.GONE
