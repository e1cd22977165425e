"""Finds stray kernels, left processes and stale files; cleans with proof of identity only.

For programs: :func:`scan` reports and changes nothing, :func:`clean` ends and removes what a
scan has found, looking again first. Both block for as long as it takes.

They are loaded when they are first asked for: a server imports this package at its start and
scans later, if at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cleaning import clean
    from .examination import Scope, default_scope, scan

__all__ = ["Scope", "clean", "default_scope", "scan"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "cleaning" if name == "clean" else "examination"
    return getattr(importlib.import_module(f".{home}", __name__), name)
