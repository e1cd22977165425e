"""Which of the means to watch a kernel act on this machine, each found out by trying."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from ..runtime import lineage, procfs


@dataclass(frozen=True)
class Layer:
    """One means. ``why`` says what is missing, or what it does."""

    name: str
    active: bool
    why: str


def _pidfd() -> Layer:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except AttributeError:
        return Layer("pidfd", False, "this Python was built without it")
    except OSError as error:
        return Layer("pidfd", False, f"refused by the system: {error.strerror}")
    return Layer("pidfd", True, "keepers see the owner's end at once; signals cannot miss")


def _subreaper() -> Layer:
    if not lineage.knows_subreapers():
        return Layer("subreaper", False, f"not offered by {sys.platform}")
    return Layer("subreaper", True, "orphans of a kernel stay with its keeper")


def _pdeathsig() -> Layer:
    if not lineage.knows_parent_death_signals():
        return Layer("pdeathsig", False, f"not offered by {sys.platform}")
    return Layer("pdeathsig", True, "a kernel whose keeper dies is ended by the system")


def _proc() -> Layer:
    if procfs.stat(os.getpid()) is None:
        return Layer("proc", False, "/proc is not mounted")
    return Layer("proc", True, "the processes of a kernel can be listed")


def survey() -> list[Layer]:
    """All layers, in the order in which they act."""
    return [_pidfd(), _subreaper(), _pdeathsig(), _proc()]
