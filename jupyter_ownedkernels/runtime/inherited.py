"""What a child gets from its parent by fork alone: taken from the owner, put on in the kernel.

Jupyter's own launch forks the kernel from the thread that asks for it, so what that thread
and its process have at that moment is passed on. Here the parent is a spawner that was
started before. :func:`of_this_thread` costs the owner 0.05 ms a launch, :func:`put_on`
changes only what differs.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

if sys.platform != "win32":
    import resource

    _LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))

# Python ignores these itself; a program that it starts gets the default (subprocess.Popen).
_PYTHONS_OWN = frozenset(
    int(getattr(signal, name)) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name)
)
_OOM = "/proc/self/oom_score_adj"


def of_this_thread() -> dict[str, Any] | None:
    """What a child forked now would have, as JSON; None where the system does not tell."""
    try:
        with open("/proc/thread-self/status", "rb") as stream:
            rows = dict(row.split(b":", 1) for row in stream.read().splitlines())
        with open(_OOM, "rb") as stream:
            badness = int(stream.read())
        policy = os.sched_getscheduler(0)
        return {
            "umask": int(rows[b"Umask"], 8),
            "ignored": _signals(rows[b"SigIgn"]),
            "blocked": _signals(rows[b"SigBlk"]),
            "limits": {name: list(resource.getrlimit(getattr(resource, name))) for name in _LIMITS},
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "processors": sorted(os.sched_getaffinity(0)),
            "policy": [policy, os.sched_getparam(0).sched_priority],
            "oom_score_adj": badness,
        }
    except (OSError, KeyError, ValueError, AttributeError):
        return None


def _signals(mask: bytes) -> list[int]:
    bits = int(mask, 16)
    # 32 and 33 are the C library's own: no program can set them.
    return [n for n in range(1, 65) if bits >> (n - 1) & 1 and n not in (32, 33)]


def put_on(wanted: dict[str, Any]) -> None:
    """In the forked child. What may not be changed (a limit that was lowered, say) stays."""
    os.umask(wanted["umask"])
    signal.pthread_sigmask(signal.SIG_SETMASK, wanted["blocked"])
    now = of_this_thread() or {}
    if now.get("ignored") != wanted["ignored"]:
        _ignore(frozenset(wanted["ignored"]))
    for name, put in _PUT.items():
        if now.get(name) != wanted[name]:
            try:
                put(wanted[name])
            except (OSError, ValueError):
                continue
    # Last: what is still to be done may need more than the kernel is to have.
    for name, (soft, hard) in wanted["limits"].items():
        if now.get("limits", {}).get(name) != [soft, hard]:
            try:
                resource.setrlimit(getattr(resource, name), (soft, hard))
            except (OSError, ValueError, AttributeError):
                continue


def _ignore(ignored: frozenset[int]) -> None:
    for number in signal.valid_signals():
        signum = int(number)
        if signum in _PYTHONS_OWN or signum in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            continue
        is_ignored = signal.getsignal(signum) is signal.SIG_IGN
        if signum in ignored and not is_ignored:
            signal.signal(signum, signal.SIG_IGN)
        elif signum not in ignored and is_ignored:
            # A Python that finds it at its default has this handler; exec makes it the default.
            plain = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
            signal.signal(signum, plain)


def _put_oom_score_adj(value: int) -> None:
    with open(_OOM, "w", encoding="ascii") as stream:
        stream.write(str(value))


_PUT = {
    "nice": lambda value: os.setpriority(os.PRIO_PROCESS, 0, value),
    "processors": lambda value: os.sched_setaffinity(0, value),
    "policy": lambda value: os.sched_setscheduler(0, value[0], os.sched_param(value[1])),
    "oom_score_adj": _put_oom_score_adj,
}
