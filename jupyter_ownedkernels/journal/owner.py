"""The calling process as an owner: the first record of its journal."""

from __future__ import annotations

import getpass
import os
import time
from urllib.parse import urlsplit, urlunsplit

from .. import __version__, identity
from ..models import OwnerRecord
from ..runtime import procfs


def this_owner(owner_id: str, url: str = "") -> OwnerRecord:
    """The calling process as an owner. Without /proc it has no identity."""
    try:
        me = identity.of_self()
    except OSError:
        me = None
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in the system's list
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    return OwnerRecord(
        owner_id, me, user, procfs.host(), without_secrets(url), time.time(), __version__
    )


def without_secrets(url: str) -> str:
    """The address without user, password and query: a token may stand in each."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
