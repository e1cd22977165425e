"""Kernels that another provisioner runs: on record and in the list, never touched.

A kernelspec may name a provisioner of its own (of a cluster, a container engine, ssh).
Where its kernel runs, how it is watched and ended is that provisioner's business. Nothing
on record of it names a process, so neither recovery nor doctor can ever signal one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import UnknownKernel
from .launching.launch import Exited
from .models import Cause, Exit, State

if TYPE_CHECKING:
    from jupyter_events import EventLogger

    from .owned_kernel import OwnedKernel
    from .ownership import Ownership

log = logging.getLogger(__name__)

ACTIONS_SCHEMA = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"

_SECRET = re.compile(
    r"key|token|passw|passphrase|secret|credential|cookie|auth|env|signature|certificate"
    r"|connection_info|private",
    re.IGNORECASE,
)
_MOST_ITEMS = 200
_LONGEST_TEXT = 256
_DEEPEST = 4
_DROP = object()


def without_secrets(info: Mapping[str, Any], secrets: Iterable[str] = ()) -> dict[str, Any]:
    """A provisioner's info with what can be put on record: bounded, plain, nothing secret.

    Left out are fields whose names sound secret, the connection info (it has the key),
    and every text in which one of ``secrets`` stands, whatever its field is called.
    """
    cleaned = _Cleaner([one for one in secrets if one]).clean(dict(info), 0)
    return cleaned if isinstance(cleaned, dict) else {}


class _Cleaner:
    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = secrets
        self._left = _MOST_ITEMS

    def clean(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if abs(value) < 1 << 63 else _DROP
        if isinstance(value, float):
            return value if math.isfinite(value) else _DROP
        if isinstance(value, str):
            secret = any(one in value for one in self._secrets)
            return _DROP if secret else value[:_LONGEST_TEXT]
        if depth < _DEEPEST and isinstance(value, Mapping):
            return self._mapping(value, depth + 1)
        if depth < _DEEPEST and isinstance(value, (list, tuple)):
            return self._list(value, depth + 1)
        return _DROP

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        kept = {}
        for name, item in value.items():
            if self._left <= 0:
                break
            if isinstance(name, str) and len(name) <= _LONGEST_TEXT and not _SECRET.search(name):
                cleaned = self.clean(item, depth)
                if cleaned is not _DROP:
                    kept[name] = cleaned
        return kept

    def _list(self, value: Sequence[Any], depth: int) -> list[Any]:
        kept = []
        for item in value:
            if self._left <= 0:
                break
            cleaned = self.clean(item, depth)
            if cleaned is not _DROP:
                kept.append(cleaned)
        return kept


class OtherKernels:
    """Follows the server's kernels, and notes those whose provisioner is not ours.

    It hears of them by the events that every kernel manager of jupyter_server emits, so
    that it works with a manager class that the user chose, too.
    """

    def __init__(
        self,
        ownership: Ownership,
        kernel_manager: Any,
        owned: type,
        secrets: Callable[[], list[str]],
    ) -> None:
        self._ownership = ownership
        self._manager = kernel_manager
        self._owned = owned
        self._secrets = secrets
        self._order = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, event_logger: EventLogger) -> None:
        event_logger.add_listener(schema_id=ACTIONS_SCHEMA, listener=self._heard)

    async def _heard(self, logger: EventLogger, schema_id: str, data: dict[str, Any]) -> None:
        kernel_id, action = data.get("kernel_id"), data.get("action")
        if data.get("status") != "success" or not isinstance(kernel_id, str):
            return
        async with self._order:
            try:
                if action in ("start", "restart"):
                    await self._started(kernel_id, anew=action == "restart")
                elif action == "shutdown":
                    await self._ended(kernel_id, "shutdown")
            except Exception:
                # A foreign provisioner may do anything; its kernel is not affected.
                log.exception("Kernel %s of another provisioner is not on record", kernel_id)

    async def _started(self, kernel_id: str, anew: bool) -> None:
        manager = await self._kernel_manager(kernel_id)
        provisioner = getattr(manager, "provisioner", None)
        if provisioner is None or isinstance(provisioner, self._owned):
            return
        known = self._known(kernel_id)
        if known is not None and not anew:
            return
        if known is not None:
            await self._end(known, "restart")
        info = without_secrets(await provisioner.get_provisioner_info(), self._secrets())
        info["provisioner_name"] = _name_of(manager, provisioner)
        kernel = await asyncio.to_thread(
            self._ownership.begin,
            kernel_id,
            str(manager.kernel_name or ""),
            str(getattr(manager, "connection_file", "") or ""),
            "keep",
            "other",
        )
        self._ownership.transition(kernel, State.RUNNING, running_at=time.time(), provisioner=info)
        self._ownership.journal.running(
            kernel.record.launch_id,
            keeper=None,
            process=None,
            sessions=(),
            launch_mode="other",
            provisioner=info,
        )
        if known is None:
            self._manager.add_restart_callback(kernel_id, lambda: self._died(kernel_id), "dead")

    def _died(self, kernel_id: str) -> None:
        """Called by the restarter when it has given up."""
        task = asyncio.ensure_future(self._ended_by_itself(kernel_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ended_by_itself(self, kernel_id: str) -> None:
        async with self._order:
            await self._ended(kernel_id, "exited")

    async def _ended(self, kernel_id: str, cause: Cause) -> None:
        known = self._known(kernel_id)
        if known is not None:
            await self._end(known, cause)

    async def _end(self, kernel: OwnedKernel, cause: Cause) -> None:
        exit_ = Exit(
            code=None,
            signal=None,
            core_dump=False,
            oom=None,
            cause=cause,
            max_rss_bytes=None,
            cpu_s=None,
            at=time.time(),
            summary=_SUMMARIES.get(cause, "ended; its provisioner does not say how"),
        )
        self._ownership.transition(kernel, State.RETIRING, exit=exit_)
        await asyncio.to_thread(self._ownership.ended, kernel, Exited(None), ())

    def _known(self, kernel_id: str) -> OwnedKernel | None:
        try:
            kernel = self._ownership.kernel(kernel_id)
        except UnknownKernel:
            return None
        return kernel if kernel.record.launch_mode == "other" and kernel.record.open else None

    async def _kernel_manager(self, kernel_id: str) -> Any:
        # The event comes out of the start itself, a moment before the kernel is listed.
        pending = getattr(self._manager, "_pending_kernels", {}).get(kernel_id)
        if pending is not None:
            await asyncio.wait([pending])
        return self._manager.get_kernel(kernel_id) if kernel_id in self._manager else None


_SUMMARIES = {"shutdown": "shut down by its provisioner", "restart": "restarted by its provisioner"}


def _name_of(manager: Any, provisioner: Any) -> str:
    spec = getattr(manager, "kernel_spec", None)
    stated = (getattr(spec, "metadata", None) or {}).get("kernel_provisioner", {})
    name = stated.get("provisioner_name") if isinstance(stated, dict) else None
    return str(name or type(provisioner).__name__)[:_LONGEST_TEXT]
