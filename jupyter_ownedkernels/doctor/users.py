"""The doctor for every user of a machine, run by root.

Each user's part is done by a forked child that has become that user for good. So no
signal can reach, and no file be removed, that the user could not reach and remove
himself: whatever links, journals or names he has put there, root is not fooled by them.

Forks the calling process: for single-threaded programs only, such as the command line.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pwd
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..errors import OwnedKernelsError
from ..journal.folder import folders
from ..processes import look as processes_look
from ..processes.snapshot import Snapshot
from ..runtime import lineage, procfs, retire
from .examination import Scope

PATIENCE = 120.0
"""Seconds for one user. To find and remove 100,000 stale files takes 18 here."""
_LONGEST_ANSWER = 64 << 20
_PATH = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM_KERNELS = ("/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels")


@dataclass(frozen=True)
class User:
    """A user of this machine as the system's list has him."""

    name: str
    uid: int
    gid: int
    home: str


class NotRoot(OwnedKernelsError):
    """Only root may look after everybody's processes."""

    code = "not_root"


def users(table: Snapshot) -> Iterator[User]:
    """Everybody in the system's list, and whoever runs something, once each."""
    seen: set[int] = set()
    entries = [*pwd.getpwall(), *_by_number(set(table.uids.values()))]
    for entry in entries:
        if entry.pw_uid not in seen:
            seen.add(entry.pw_uid)
            yield User(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


def _by_number(uids: Iterable[int]) -> Iterator[pwd.struct_passwd]:
    for uid in sorted(uids):
        with contextlib.suppress(KeyError):
            yield pwd.getpwuid(uid)


def scope_of(user: User, look: Callable[[], Snapshot], stale_file_age: float) -> Scope:
    """The user's default folders. To be called in his name: it looks at the environment."""
    runtime = os.path.join(user.home, ".local", "share", "jupyter", "runtime")
    kernels = (
        os.path.join(user.home, ".local", "share", "jupyter", "kernels"),
        os.path.join(sys.prefix, "share", "jupyter", "kernels"),
        *_SYSTEM_KERNELS,
    )
    return Scope(
        runtime_dirs=(runtime,),
        journal_dirs=tuple(folders(runtime)),
        kernel_dirs=kernels,
        stale_file_age=stale_file_age,
        look=look,
    )


def for_everybody(
    work: Callable[[Scope], Any],
    *,
    stale_file_age: float,
    fresh: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> list[tuple[User, Any]]:
    """Run ``work`` in the name of each user that may have something; its answers as JSON.

    ``fresh``: each user's part looks at the processes anew, as a clean must; otherwise
    one look serves all. Who has no runtime folder, no journal and no process that names
    a connection file is left out; what went wrong for one user stands in his answer as
    ``error``. NotRoot unless root calls; OSError without /proc.
    """
    if os.geteuid() != 0:
        raise NotRoot("--all-users is for root: run it with sudo")
    _load_codecs()
    table = processes_look.take()
    found = []
    everybody = list(users(table))
    for place, user in enumerate(everybody, 1):
        progress(f"user {place} of {len(everybody)}: {user.name}")
        own = replace(table, uid=user.uid)
        busy = any(".json" in part for pid in own.own for part in own.argv(pid))

        def part(user: User = user, own: Snapshot = own, busy: bool = busy) -> Any:
            scope = scope_of(user, processes_look.take if fresh else lambda: own, stale_file_age)
            here = [*scope.runtime_dirs, *scope.journal_dirs]
            if not busy and not any(os.path.isdir(folder) for folder in here):
                return None
            return work(scope)

        try:
            answer = as_user(user, part)
        except OwnedKernelsError as error:
            answer = {"error": str(error)}
        if answer is not None:
            found.append((user, answer))
    return found


def _load_codecs() -> None:
    """Before any identity is given up: root's Python may be one that users cannot read."""
    for name in ("ascii", "latin-1", "utf-8", "unicode_escape", "idna"):
        codecs.lookup(name)


def as_user(user: User, work: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Call ``work`` in a child that has become the user; its answer by way of JSON.

    OwnedKernelsError with what went wrong there. A user may stop whatever runs in his name,
    and his folders may lie on a disk that he answers for: after ``patience`` seconds the
    child is killed, and the next user has his turn.
    """
    reading, writing = os.pipe()
    caller = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            _become(user, caller)
            told = {"answer": work()}
            status = 0
        except BaseException as error:
            told = {"error": str(error) or repr(error)}
        try:
            with os.fdopen(writing, "w", encoding="utf-8") as stream:
                json.dump(told, stream)
        finally:
            os._exit(status)
    os.close(writing)
    try:
        text, problem = _hear(reading, time.monotonic() + patience)
    finally:
        os.close(reading)
        # Not reaped yet, so the number is its own; of one that has ended nothing is left to kill.
        entry = procfs.stat(pid)
        if entry is not None:
            retire.send(retire.Target(pid, entry.start_ticks), signal.SIGKILL)
        os.waitpid(pid, 0)
    if problem:
        raise OwnedKernelsError(f"{user.name}: {problem}")
    try:
        told = json.loads(text)
    except ValueError:
        raise OwnedKernelsError(f"{user.name}: no answer") from None
    if "error" in told:
        raise OwnedKernelsError(f"{user.name}: {told['error']}")
    return told["answer"]


def _hear(reading: int, deadline: float) -> tuple[bytes, str]:
    """All that the child says, and what was wrong with it."""
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    heard = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return b"", "no answer in time; something of this user's holds it up"
        part = os.read(reading, 1 << 20)
        if not part:
            return bytes(heard), ""
        heard += part
        if len(heard) > _LONGEST_ANSWER:
            return b"", "more was found than can be told; the user's own doctor can"


def _become(user: User, caller: int) -> None:
    """For good: real, effective and saved ids, groups, environment, working folder."""
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name, PATH=_PATH)
    os.chdir("/")
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise PermissionError("the user's identity could not be taken on")
    # After the change of identity, which undoes it.
    lineage.die_with_parent()
    if os.getppid() != caller:
        os._exit(1)
