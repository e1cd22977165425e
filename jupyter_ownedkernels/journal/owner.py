"""The calling process as an owner: the first record of its journal."""

from __future__ import annotations

import getpass
import os
import time
from urllib.parse import urlsplit, urlunsplit

from .. import __version__, identity
from ..models import OwnerRecord
from ..runtime import procfs
from .machine import this_machine

_made_here: set[str] = set()


def this_owner(owner_id: str, url: str = "") -> OwnerRecord:
    """The calling process as an owner. Without /proc it has no identity."""
    _made_here.add(owner_id)
    try:
        me = identity.of_self()
    except OSError:
        me = None
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in the system's list
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    return OwnerRecord(
        owner_id,
        me,
        user,
        procfs.host(),
        without_secrets(url),
        time.time(),
        __version__,
        this_machine(),
    )


def is_former_self(owner: OwnerRecord) -> bool:
    """Whether the recorded process is this one, but ran another program then (exec).

    It has the pid and the start time that it had, and is nobody's owner any more.
    """
    recorded = owner.identity
    if recorded is None or recorded.pid != os.getpid() or owner.owner_id in _made_here:
        return False
    return identity.compare(recorded) is identity.Verdict.SAME


def without_secrets(url: str) -> str:
    """The address without user, password and query: a token may stand in each."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
