"""What REST says of the server itself: how far it owns its kernels, and by what means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import __version__
from ..launching import layers
from ..runtime import procfs
from .kernels import owner_json

if TYPE_CHECKING:
    from ..ownership import Ownership
    from ..takeover.manager_class import Mode


def health_json(mode: Mode, ownership: Ownership | None, url: str = "") -> dict[str, Any]:
    """Tries each layer once more: call it off the event loop. Takes less than 1 ms."""
    return {
        "mode": mode.name,
        "reason": _reason(mode, ownership),
        "owner": _owner(ownership, url),
        "layers": _layers(ownership),
        "spawners": _spawners(ownership),
        "standby": _standby(ownership),
        "journal": _journal(ownership),
        "version": __version__,
    }


def _reason(mode: Mode, ownership: Ownership | None) -> str:
    """What was settled when the server started may not be what became of the launches."""
    if ownership is None or ownership.unwatched_because is None:
        return mode.reason
    return f"the newest kernel is not watched: {ownership.unwatched_because}"


def _owner(ownership: Ownership | None, url: str) -> dict[str, Any] | None:
    if ownership is None:
        return None
    owner = ownership.owner
    return {**owner_json(owner, url), "started_at": owner.started_at}


def _layers(ownership: Ownership | None) -> dict[str, dict[str, Any]]:
    found = {layer.name: {"active": layer.active, "why": layer.why} for layer in layers.survey()}
    found["spawner"] = _spawner(ownership)
    found["warm"] = _warm(ownership)
    return found


def _spawner(ownership: Ownership | None) -> dict[str, Any]:
    if ownership is None:
        return {"active": False, "why": "no kernels are owned here"}
    if ownership.unwatched_because is not None:
        return {"active": False, "why": ownership.unwatched_because}
    return {"active": True, "why": "each kernel is started below a keeper of its own"}


def _warm(ownership: Ownership | None) -> dict[str, Any]:
    if ownership is None:
        return {"active": False, "why": "no kernels are owned here"}
    pool = ownership.warm
    if not pool.enabled:
        return {"active": False, "why": 'switched off by OwnedKernels.warm = "off"'}
    slots = pool.to_json()
    off = [slot for slot in slots if slot["state"] in ("failed", "off")]
    if off:
        why = f"off for {off[0]['interpreter']}: {off[0]['reason']}"
        return {"active": len(off) < len(slots), "why": why}
    if not slots:
        return {"active": True, "why": "no kernel that could be forked was started yet"}
    if not any(slot["state"] == "ready" for slot in slots):
        return {"active": True, "why": "an interpreter is being made ready"}
    return {"active": True, "why": "kernels are forked from an interpreter that is ready"}


def _standby(ownership: Ownership | None) -> dict[str, Any] | None:
    if ownership is None or not ownership.warm.enabled:
        return None
    standby = ownership.warm.standby
    pids = standby.pids()
    looks = [one for one in map(procfs.stat, pids) if one is not None]
    return {
        "wanted": standby.count,
        "pids": pids,
        "rss_bytes": sum(one.rss_pages for one in looks) * procfs.PAGE_SIZE,
        "reason": standby.reason,
    }


def _spawners(ownership: Ownership | None) -> list[dict[str, Any]]:
    if ownership is None:
        return []
    found: list[dict[str, Any]] = []
    plain = ownership.launcher.spawner
    if plain is not None:
        found.append(
            {
                "kind": plain.kind,
                "pid": plain.pid,
                "interpreter": plain.interpreter,
                "launches": plain.launches,
                "failures": 0,
                "state": "ready" if plain.alive else "ended",
                "reason": None,
                "preload": [],
                "standby": 0,
            }
        )
    return found + ownership.warm.to_json()


def _journal(ownership: Ownership | None) -> dict[str, Any] | None:
    if ownership is None:
        return None
    journal = ownership.journal
    return {
        "path": journal.path,
        "writable": journal.writable,
        "records": journal.records,
        "locked": journal.locked,
        "write_errors": journal.write_errors,
        "reason": journal.reason or None,
    }
