"""From fork to exec: the few steps between a keeper and its kernel.

How the child becomes the kernel is the caller's choice: :func:`execute` replaces the
program; a warm spawner's goes on as the interpreter it was forked from.
"""

from __future__ import annotations

import json
import os
import select
import signal
from typing import Any, Callable

from . import inherited, lineage, waiting

# As subprocess.Popen does: Python itself ignores these, a program expects the default.
_RESTORED = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


# Takes the request and the writing end of the report; returns only by an error.
Become = Callable[["dict[str, Any]", int], None]


class Unwind(BaseException):
    """In a forked child: leave every frame of spawner and keeper, then be the kernel."""


def start(
    request: dict[str, Any],
    stdio: list[int],
    dispositions: dict[int, Any],
    become: Become,
    unwanted: select.poll,
) -> tuple[int, dict[str, Any] | None]:
    """Fork, and let the child become the kernel. Returns the pid, and what failed.

    ``dispositions`` are the signal handlings that the spawner was started with; the
    kernel gets those, so that ``nohup jupyter lab`` still means what it says. The
    caller reaps the child, also after a failure. The report's end of file means that
    nothing failed: exec closes it. When ``unwanted`` has something to tell first, the
    child is on its way still: a folder or a program may lie on a disk that hangs.
    """
    keeper = os.getpid()
    report, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _prepare(keeper, request, stdio, dispositions)
            become(request, tell)
        except Unwind:
            raise
        except OSError as error:
            _give_up(tell, error.errno, error.strerror, error.filename)
        except BaseException as error:
            _give_up(tell, None, repr(error), None)
        os._exit(255)
    os.close(tell)
    try:
        told = waiting.read_all(report, unwanted)
    finally:
        os.close(report)
    if not told:
        return pid, None
    failure = json.loads(told)
    folder = request["cwd"]
    is_folder = folder is not None and failure["filename"] == folder
    failure["stage"] = "chdir" if is_folder else "exec"
    return pid, failure


def _give_up(tell: int, errno: int | None, text: str | None, filename: object) -> None:
    try:
        failure = {"errno": errno, "text": text, "filename": filename}
        os.write(tell, json.dumps(failure).encode("ascii"))
    finally:
        os._exit(255)


def _prepare(
    keeper: int,
    request: dict[str, Any],
    stdio: list[int],
    dispositions: dict[int, Any],
) -> None:
    os.setsid()
    lineage.die_with_parent()
    if os.getppid() != keeper:
        os._exit(255)
    for signum, handling in dispositions.items():
        signal.signal(signum, handling)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request.get("inherited") is not None:
        inherited.put_on(request["inherited"])
    else:
        signal.pthread_sigmask(signal.SIG_SETMASK, request["sigmask"])
    # Above 2 first: a descriptor that is 0 to 2 itself must not be overwritten unread.
    high = [os.dup(fd) if fd < 3 else fd for fd in stdio[:3]]
    for target, fd in enumerate(high):
        os.dup2(fd, target)
    if request["umask"] is not None:
        os.umask(request["umask"])
    if request["oom_score_adj"] is not None:
        _offer_to_oom_killer(request["oom_score_adj"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    # The poller of ipykernel ignores any value but its real parent's.
    request["env"] = dict(request["env"], JPY_PARENT_PID=str(keeper))


def _offer_to_oom_killer(adjustment: int) -> None:
    """When memory runs out the kernel is to go before its owner; children inherit it."""
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as stream:
            if int(stream.read()) < adjustment:
                stream.seek(0)
                stream.write(str(adjustment))
    except (OSError, ValueError):
        pass  # A wish, not a condition: the kernel starts all the same.


def execute(request: dict[str, Any], tell: int) -> None:
    """Replace this program by the kernel's."""
    for name in _RESTORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    _execute(request["argv"], request["env"])


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """exec, with the error that subprocess.Popen would raise for the same program."""
    if os.path.dirname(argv[0]):
        candidates = [argv[0]]
    else:
        candidates = [os.path.join(p, argv[0]) for p in os.get_exec_path(environment)]
    saved: OSError | None = None
    last: OSError | None = None
    for path in candidates:
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError) as error:
            last = error
        except OSError as error:
            saved = saved or error
    failed = saved or last or FileNotFoundError(2, os.strerror(2))
    raise OSError(failed.errno, failed.strerror, argv[0])
