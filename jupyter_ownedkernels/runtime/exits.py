"""How a kernel ended, in numbers for programs and in one sentence for a person.

Made by the owner, or by the keeper when the owner is dead; both write the same record.
"""

from __future__ import annotations

import signal
from typing import Any

_SENTENCES = {
    "keeper-died": "ended because its keeper process died",
    "owner-died": "ended because the process that owned it died",
    "shutdown": "shut down",
    "restart": "ended for a restart",
    "culled": "shut down after it was idle for too long",
}


def humanise_bytes(count: int) -> str:
    """``11.8 GB``, ``93 MB``: the digits that a person takes in at a glance."""
    value = float(count)
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value /= 1000
        unit = larger
    precise = unit in ("GB", "TB") or (unit != "B" and value < 9.95)
    return f"{value:.1f} {unit}" if precise else f"{value:.0f} {unit}"


def signal_name(signum: int) -> str:
    """``SIGKILL`` for 9; real-time signals by number."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def describe(
    status: int | None,
    cause: str,
    at: float,
    core_dump: bool = False,
    max_rss_bytes: int | None = None,
    cpu_s: float | None = None,
    oom: bool | None = None,
) -> dict[str, Any]:
    """The fields of an Exit. ``status`` is negative for a signal, None when unknown."""
    code = status if status is not None and status >= 0 else None
    name = signal_name(-status) if status is not None and status < 0 else None
    return {
        "code": code,
        "signal": name,
        "core_dump": core_dump,
        "oom": oom,
        "cause": cause,
        "max_rss_bytes": max_rss_bytes,
        "cpu_s": cpu_s,
        "at": at,
        "summary": _SENTENCES.get(cause) or _accident(code, name, core_dump, max_rss_bytes, oom),
    }


def _accident(
    code: int | None, name: str | None, core_dump: bool, max_rss_bytes: int | None, oom: bool | None
) -> str:
    if oom:
        peak = f" (peak {humanise_bytes(max_rss_bytes)})" if max_rss_bytes else ""
        return f"killed by {name or 'the system'}: out of memory{peak}"
    if name is not None:
        return f"killed by {name}{', core dumped' if core_dump else ''}"
    if code is None:
        return "ended, the exit status is not known"
    return f"exited with code {code}"
