"""The typed records of a journal: what is written, by whom, and when."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..identity import Identity
from ..models import EndedBy, Exit, LaunchMode, LaunchRecord, Survivor
from .fold import portions

_INTENT = (
    "launch_id",
    "kernel_id",
    "generation",
    "kernel_name",
    "connection_file",
    "launch_mode",
    "detached_policy",
    "at",
)


class JournalWriter(ABC):
    """One method per kind of record. Each answers whether the record is in the file.

    None raises: a kernel whose launch cannot be put on record runs all the same.
    """

    _clock: Callable[[], float] = staticmethod(time.time)

    @abstractmethod
    def _put(self, record: dict[str, Any], durable: bool = False) -> bool:
        """Write one record; ``durable``: it must survive a crash of the machine."""

    def launching(self, launch: LaunchRecord) -> bool:
        """The intent to launch: called before anything is started, and on disk before.

        Takes as long as the disk needs. Also the moment at which a journal that could not
        be written is tried again.
        """
        fields = launch.to_json()
        record = {"event": "launching", **{name: fields[name] for name in _INTENT}}
        return self._put(record, durable=True)

    def running(
        self,
        launch_id: str,
        *,
        keeper: Identity | None,
        process: Identity | None,
        sessions: Iterable[int],
        launch_mode: LaunchMode | None = None,
        provisioner: Mapping[str, Any] | None = None,
        at: float | None = None,
    ) -> bool:
        """A process of the launch exists. ``launch_mode`` when it is not as announced;
        ``provisioner`` is what a foreign provisioner says of it, without secrets."""
        record = {
            "event": "running",
            "launch_id": launch_id,
            "keeper": keeper.to_json() if keeper else None,
            "process": process.to_json() if process else None,
            "sessions": list(sessions),
            "at": self._now(at),
        }
        if launch_mode:
            record["launch_mode"] = launch_mode
        if provisioner:
            record["provisioner"] = dict(provisioner)
        return self._put(record)

    def kernel(
        self, launch_id: str, kernel: Identity, sessions: Iterable[int], at: float | None = None
    ) -> bool:
        """The process that serves the connection file is known; it sits below a wrapper."""
        record = {"kernel": kernel.to_json(), "sessions": list(sessions), "at": self._now(at)}
        return self._put({"event": "kernel", "launch_id": launch_id, **record})

    def retiring(self, launch_id: str, at: float | None = None) -> bool:
        """The launch is being ended."""
        return self._put({"event": "retiring", "launch_id": launch_id, "at": self._now(at)})

    def ended(
        self,
        launch_id: str,
        exit: Exit | None,
        survivors: Iterable[Survivor] = (),
        by: EndedBy = "owner",
        at: float | None = None,
    ) -> bool:
        """No core process of the launch is left but the survivors. ``exit`` is None when
        it never ran, or nobody knows how it ended."""
        when = self._now(at)
        written = [
            self._put(
                {
                    "event": "ended",
                    "launch_id": launch_id,
                    "exit": exit.to_json() if exit else None,
                    "survivors": [survivor.to_json() for survivor in part],
                    "by": by,
                    "at": when,
                }
            )
            for part in portions(tuple(survivors))
        ]
        return all(written)

    def detached(self, launch_id: str, survivor: Survivor, at: float | None = None) -> bool:
        """A process of the launch is meant to outlive it."""
        record = {"survivor": survivor.to_json(), "at": self._now(at)}
        return self._put({"event": "detached", "launch_id": launch_id, **record})

    def cleaned(
        self, launch_id: str, survivor: Survivor, outcome: str, at: float | None = None
    ) -> bool:
        """A survivor was ended by a person's wish, or was found to have ended."""
        record = {
            "event": "cleaned",
            "launch_id": launch_id,
            "pid": survivor.pid,
            "start_ticks": survivor.start_ticks,
            "message": outcome,
            "count": 1,
            "at": self._now(at),
        }
        return self._put(record)

    def recovered(
        self,
        count: int,
        message: str,
        at: float | None = None,
        launch_id: str | None = None,
    ) -> bool:
        """A recovery ended ``count`` processes of this owner, which had died.

        ``launch_id`` when all was about one launch.
        """
        record = {"count": count, "message": message, "at": self._now(at)}
        about = {} if launch_id is None else {"launch_id": launch_id}
        return self._put({"event": "recovered", **record, **about})

    def _now(self, at: float | None) -> float:
        return self._clock() if at is None else at
