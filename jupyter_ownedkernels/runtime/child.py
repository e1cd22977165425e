"""From fork to exec: the few steps between a keeper and its kernel."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from . import lineage

# As subprocess.Popen does: Python itself ignores these, a program expects the default.
_RESTORED = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


def start(
    request: dict[str, Any], stdio: list[int], dispositions: dict[int, Any]
) -> tuple[int, dict[str, Any] | None]:
    """Fork and exec ``argv``. Returns the pid, and what failed when exec did.

    ``dispositions`` are the signal handlings that the spawner was started with; the
    kernel gets those, so that ``nohup jupyter lab`` still means what it says. The
    caller reaps the child, also after a failure.
    """
    keeper = os.getpid()
    report, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become_kernel(keeper, request, stdio, dispositions, tell)
        except OSError as error:
            failure = {"errno": error.errno, "text": error.strerror, "filename": error.filename}
            os.write(tell, json.dumps(failure).encode("ascii"))
        except BaseException as error:
            failure = {"errno": None, "text": repr(error), "filename": None}
            os.write(tell, json.dumps(failure).encode("ascii"))
        finally:
            os._exit(255)
    os.close(tell)
    with open(report, "rb") as stream:
        told = stream.read()
    if not told:
        return pid, None
    failure = json.loads(told)
    failure["stage"] = "chdir" if failure["filename"] == request["cwd"] else "exec"
    return pid, failure


def _become_kernel(
    keeper: int,
    request: dict[str, Any],
    stdio: list[int],
    dispositions: dict[int, Any],
    tell: int,
) -> None:
    os.setsid()
    lineage.die_with_parent()
    if os.getppid() != keeper:
        os._exit(255)
    for signum, handling in dispositions.items():
        signal.signal(signum, handling)
    for name in _RESTORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["sigmask"])
    # Above 2 first: a descriptor that is 0 to 2 itself must not be overwritten unread.
    high = [os.dup(fd) if fd < 3 else fd for fd in stdio]
    for target, fd in enumerate(high):
        os.dup2(fd, target)
    if request["umask"] is not None:
        os.umask(request["umask"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    environment = dict(request["env"])
    environment["JPY_PARENT_PID"] = str(keeper)
    argv = request["argv"]
    _execute(argv, environment)


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
