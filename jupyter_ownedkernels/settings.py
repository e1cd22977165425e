"""The configuration as plain values: what is left of traitlets below the Jupyter layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

USUAL_HISTORY = 500
"""Ended launches that stay on record in a server that was not told otherwise."""


@dataclass(frozen=True)
class Settings:
    """The part of the configuration that the service works with; times in seconds."""

    detached_processes: Literal["keep", "kill"] = "keep"
    terminate_grace: float = 1.0
    retire_timeout: float = 5.0
    launch_timeout: float = 10.0
    ready_timeout: float = 5.0
    runtime_dir: str | None = None
    """The Jupyter runtime folder; None: the user's default."""
    journal_dir: str | None = None
    history_limit: int | None = None
    """How many ended launches stay on record; None: as many as whoever was told wants."""
    oom_score_adj: int | None = None
    warm: bool = False
    warm_preload: tuple[str, ...] = ()
    standby: int = 0
