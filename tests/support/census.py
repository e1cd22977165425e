"""Which processes there are, read from /proc without any help of the package under test.

A process is named by pid and start time, so that a number that is used again is not
taken for the process that a test has seen before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Proc(NamedTuple):
    pid: int
    start: int


class Line(NamedTuple):
    """The columns of /proc/PID/stat that tests look at."""

    proc: Proc
    name: str
    state: str
    ppid: int
    pgrp: int
    session: int
    threads: int

    @property
    def runs(self) -> bool:
        return self.state not in "ZX" or self.threads > 1


def line(pid: int) -> Line | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            raw = stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name = raw[raw.index(b"(") + 1 : raw.rindex(b")")].decode("utf-8", "replace")
    rest = raw[raw.rindex(b")") + 2 :].split()
    return Line(
        proc=Proc(pid, int(rest[19])),
        name=name,
        state=rest[0].decode(),
        ppid=int(rest[1]),
        pgrp=int(rest[2]),
        session=int(rest[3]),
        threads=int(rest[17]),
    )


def find(pid: int) -> Proc:
    """The process that has this number now. LookupError when there is none."""
    seen = line(pid)
    if seen is None:
        raise LookupError(f"no process {pid}")
    return seen.proc


def runs(proc: Proc) -> bool:
    """Whether that very process runs; a zombie does not."""
    seen = line(proc.pid)
    return seen is not None and seen.proc == proc and seen.runs


def everything() -> dict[int, Line]:
    found = (line(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {seen.proc.pid: seen for seen in found if seen is not None}


def below(pid: int) -> set[Proc]:
    """All running descendants."""
    table = everything()
    found: set[Proc] = set()
    pending = {pid}
    while pending:
        layer = {one.proc.pid for one in table.values() if one.ppid in pending}
        found |= {table[number].proc for number in layer if table[number].runs}
        pending = layer
    return found


def children(pid: int, name: str | None = None) -> list[Proc]:
    """Running children, those with a given name (at most 15 bytes are kept by Linux)."""
    return [
        one.proc
        for one in everything().values()
        if one.ppid == pid and one.runs and name in (None, one.name)
    ]


def _raw(pid: int, what: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as stream:
            return stream.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def command(pid: int) -> list[str]:
    return [os.fsdecode(part) for part in _raw(pid, "cmdline").split(b"\0")[:-1]]


def marked(text: str) -> set[Proc]:
    """Running processes whose environment, as executed, contains the text."""
    wanted = os.fsencode(text)
    return {
        one.proc
        for one in everything().values()
        if one.runs and one.proc.pid != os.getpid() and wanted in _raw(one.proc.pid, "environ")
    }


def describe(procs: Iterable[Proc]) -> list[str]:
    """For messages of failed tests."""
    lines = []
    for proc in sorted(procs):
        seen = line(proc.pid)
        state = f"{seen.state} below {seen.ppid}" if seen else "gone"
        lines.append(f"{proc.pid} {state}: {' '.join(command(proc.pid))[:160]}")
    return lines


def wait_until(condition: Callable[[], T], timeout: float, what: str) -> T:
    """Poll until the condition holds; its value. AssertionError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.005)


def left_after(procs: Iterable[Proc], timeout: float) -> set[Proc]:
    """Those that still run after at most ``timeout`` seconds; returns as soon as none does."""
    left = set(procs)
    deadline = time.monotonic() + timeout
    while True:
        left = {proc for proc in left if runs(proc)}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


def end(procs: Iterable[Proc]) -> None:
    """SIGKILL, for processes that a test has made itself.

    All are stopped before the first one dies: a shell in a loop would start another child.
    """
    with contextlib.ExitStack() as stack:
        fds = []
        for proc in procs:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(proc.pid)
                stack.callback(os.close, fd)
                if runs(proc):
                    fds.append(fd)
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for fd in fds:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signum)


def descriptors(pid: int) -> dict[int, str]:
    """Open descriptors of a process and what they point to."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found
