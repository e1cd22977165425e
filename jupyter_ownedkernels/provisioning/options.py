"""The options of a launch: those of ``Popen``, as far as a spawner can do them, and our own."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec

    from ..settings import Settings

log = logging.getLogger(__name__)

# What Popen takes and a spawner can do as well. Anything else is launched as stock.
_UNDERSTOOD = frozenset({"stdin", "stdout", "stderr", "env", "cwd", "umask", "text"})
_IMPLIED: Mapping[str, object] = {"close_fds": True, "start_new_session": True, "bufsize": -1}


def obstacle(kwargs: Mapping[str, Any]) -> str | None:
    """Why these launch options need a stock launch; None when a spawner can do them."""
    for name, value in kwargs.items():
        if name in _UNDERSTOOD or value is None or value is False:
            continue
        if name in _IMPLIED and value == _IMPLIED[name]:
            continue
        return f"the launch option {name} cannot be passed to a spawner"
    return None


def folder(cwd: Any) -> str | None:
    """The working folder: this process's where none is given; None when that is gone.

    A relative one begins at this process's, which spawner and standby kernel are not in.
    """
    if cwd is not None:
        path = os.fsdecode(cwd)
        # An empty one is an error, as it is for Popen.
        return path if os.path.isabs(path) or not path else os.path.join(os.getcwd(), path)
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def umask(given: int | None) -> int | None:
    """What the kernel is to set; None where it keeps the owner's. Popen says that by -1."""
    return None if given is None or given < 0 else given


def expanded(cmd: list[str]) -> list[str]:
    """As Jupyter's own launcher does: ``~`` is allowed in the command and its arguments."""
    return [os.path.expanduser(part) for part in cmd]


def detached_policy(spec: KernelSpec, settings: Settings) -> Literal["keep", "kill"]:
    """What becomes of detached processes: what the kernelspec says, else what is configured."""
    own = (spec.metadata or {}).get("ownedkernels", {})
    policy = own.get("detached_processes") if isinstance(own, dict) else None
    if policy in ("keep", "kill"):
        return cast('Literal["keep", "kill"]', policy)
    if policy is not None:
        log.warning(
            "Kernelspec %s: detached_processes is keep or kill, not %r", spec.display_name, policy
        )
    return settings.detached_processes
