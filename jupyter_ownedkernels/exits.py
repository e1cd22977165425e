"""How a kernel ended, in numbers for programs and in one sentence for a person."""

from __future__ import annotations

import signal

from .launcher import Exited
from .models import Cause, Exit


def humanise_bytes(count: int) -> str:
    """``11.8 GB``, ``93 MB``: two or three digits that a person takes in at a glance."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            return f"{value:.1f} {unit}" if value < 9.95 and unit != "B" else f"{value:.0f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def signal_name(signum: int) -> str:
    """``SIGKILL`` for 9; real-time signals by number."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def describe(exited: Exited, cause: Cause, at: float, oom: bool | None = None) -> Exit:
    """Make the record of an exit. ``at`` is the time of day in seconds."""
    status = exited.status
    code = status if status is not None and status >= 0 else None
    name = signal_name(-status) if status is not None and status < 0 else None
    return Exit(
        code=code,
        signal=name,
        core_dump=exited.core_dump,
        oom=oom,
        cause=cause,
        max_rss_bytes=exited.max_rss_bytes,
        cpu_s=exited.cpu_s,
        at=at,
        summary=_sentence(code, name, exited, cause, oom),
    )


def _sentence(
    code: int | None, name: str | None, exited: Exited, cause: Cause, oom: bool | None
) -> str:
    if cause == "keeper-died":
        return "ended because its keeper process died"
    if cause == "owner-died":
        return "ended because the process that owned it died"
    if cause in ("shutdown", "restart", "culled"):
        return {
            "shutdown": "shut down",
            "restart": "ended for a restart",
            "culled": "shut down after it was idle for too long",
        }[cause]
    peak = f" (peak {humanise_bytes(exited.max_rss_bytes)})" if exited.max_rss_bytes else ""
    if oom:
        return f"killed by {name or 'the system'}: out of memory{peak}"
    if name is not None:
        core = ", core dumped" if exited.core_dump else ""
        return f"killed by {name}{core}"
    if code is None:
        return "ended, the exit status is not known"
    return f"exited with code {code}"
