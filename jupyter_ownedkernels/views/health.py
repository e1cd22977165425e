"""What REST says of the server itself: how far it owns its kernels, and by what means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import __version__
from ..launching import layers
from .kernels import owner_json

if TYPE_CHECKING:
    from ..ownership import Ownership
    from ..takeover.manager_class import Mode


def health_json(mode: Mode, ownership: Ownership | None, url: str = "") -> dict[str, Any]:
    """Tries each layer once more: call it off the event loop. Takes less than 1 ms."""
    return {
        "mode": mode.name,
        "reason": mode.reason,
        "owner": _owner(ownership, url),
        "layers": _layers(ownership),
        "spawners": _spawners(ownership),
        "journal": _journal(ownership),
        "version": __version__,
    }


def _owner(ownership: Ownership | None, url: str) -> dict[str, Any] | None:
    if ownership is None:
        return None
    owner = ownership.owner
    return {**owner_json(owner, url), "started_at": owner.started_at}


def _layers(ownership: Ownership | None) -> dict[str, dict[str, Any]]:
    found = {layer.name: {"active": layer.active, "why": layer.why} for layer in layers.survey()}
    found["warm"] = _warm(ownership)
    return found


def _warm(ownership: Ownership | None) -> dict[str, Any]:
    if ownership is None:
        return {"active": False, "why": "no kernels are owned here"}
    pool = ownership.warm
    if not pool.enabled:
        return {"active": False, "why": 'switched off by OwnedKernels.warm = "off"'}
    off = [slot for slot in pool.to_json() if slot["state"] in ("failed", "off")]
    if off:
        why = f"off for {off[0]['interpreter']}: {off[0]['reason']}"
        return {"active": len(off) < len(pool.to_json()), "why": why}
    return {"active": True, "why": "kernels are forked from an interpreter that is ready"}


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
