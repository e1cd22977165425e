"""Starting a process that is meant to outlive the kernel it is started from.

What ``nohup`` and ``setsid`` do together, plus a note in the journal of the kernel's
owner: so that it is listed as left on purpose, with the kernel that it came from.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..journal import journal
from ..journal.visit import Visit
from ..marks import LAUNCH_MARKER
from ..models import Survivor
from ..runtime import procfs

OUTPUT_NAME = "nohup.out"


@dataclass(frozen=True)
class Detached:
    """What was started."""

    pid: int
    kernel_id: str | None
    """The kernel that it is on record with; None when it was started from none."""
    output: str | None
    """File that gets the output instead of a terminal."""
    note: str
    """Why it is not on record, for a person; empty when it is."""


def detach(
    argv: Sequence[str],
    folders: Iterable[str],
    environ: Mapping[str, str] = os.environ,
) -> Detached:
    """Start ``argv`` in a session of its own, and put it on record if a kernel is above.

    Standard input is taken from nowhere and output goes to ``nohup.out`` where they are a
    terminal; all else is passed on as it is. SIGHUP is ignored, here too for a moment: to
    be called in the main thread. Raises OSError as ``subprocess.Popen`` when the command
    cannot be executed.
    """
    with contextlib.ExitStack() as opened:
        stdin, stdout, stderr, output = _streams(opened)
        opened.callback(signal.signal, signal.SIGHUP, signal.getsignal(signal.SIGHUP))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process = subprocess.Popen(
            list(argv), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    kernel_id, note = _record(process.pid, folders, environ)
    # It outlives this program on purpose; Popen would warn of that.
    process.returncode = 0
    return Detached(process.pid, kernel_id, output, note)


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _streams(opened: contextlib.ExitStack) -> tuple[int | None, int | None, int | None, str | None]:
    stdin = subprocess.DEVNULL if _is_terminal(0) else None
    if not (_is_terminal(1) or _is_terminal(2)):
        return stdin, None, None, None
    stdout = stderr = output = None
    if _is_terminal(1):
        output, stdout = _output_file(opened)
    if _is_terminal(2):
        stderr = stdout if stdout is not None else 1
    return stdin, stdout, stderr, output


def _output_file(opened: contextlib.ExitStack) -> tuple[str, int]:
    """As nohup: in the working folder, else at home; appended to, readable by the user only."""
    for folder in (os.getcwd(), os.path.expanduser("~")):
        path = os.path.join(folder, OUTPUT_NAME)
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, fd)
            return path, fd
    raise OSError(f"{OUTPUT_NAME} can be written neither here nor at home")


def _record(pid: int, folders: Iterable[str], environ: Mapping[str, str]) -> tuple[str | None, str]:
    launch_id = environ.get(LAUNCH_MARKER)
    if not launch_id:
        return None, "not started from a kernel: there is nothing to put on record"
    views, _ = journal.read_all(journal.find(folders))
    for view in views:
        launch = view.launches.get(launch_id)
        if launch is None:
            continue
        entry = procfs.stat(pid)
        if entry is None:
            return launch.kernel_id, ""
        survivor = Survivor(pid, entry.start_ticks, entry.session, "detached")
        visit = Visit(view.path)
        if not visit.detached(launch_id, survivor):
            return launch.kernel_id, f"not on record: {visit.error}"
        return launch.kernel_id, ""
    return None, "not on record: the journal of this kernel's owner is not found"
