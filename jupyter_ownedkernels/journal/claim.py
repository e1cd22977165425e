"""The journal of another owner, which has died: finishing its records and removing it.

One claim at a time: it is the lock that the owner held. A claim proves nothing about
the owner, whose identity must be proven dead besides. Keepers that outlived the owner
may still append their last record; they hold no lock and lose none.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from ..errors import JournalError
from ..identity import Verdict
from ..models import CleanResult
from ..runtime import lock, records
from ..runtime.lock import Lock
from . import read
from .fold import Fold, StillThere
from .history import bury
from .read import JournalView
from .writer import JournalWriter

log = logging.getLogger(__name__)


class Claim(JournalWriter):
    """Use as a context manager; get one from :func:`claim`."""

    def __init__(self, fd: int, path: str, locked: bool) -> None:
        self._fd = fd
        self.path = path
        self.locked = locked
        """False where the file system cannot lock: another doctor may be at work too."""

    def view(self) -> JournalView:
        """What the journal says now. JournalError when it cannot be read."""
        return read.view_of(self._fd, self.path)

    def _put(self, record: dict[str, Any], durable: bool = False) -> bool:
        try:
            records.append(self._fd, record)
        except (OSError, ValueError, TypeError) as error:
            log.warning("The journal %s of a dead owner cannot be written: %s", self.path, error)
            return False
        return True

    def remove(
        self,
        history_limit: int | None,
        *,
        despite_damage: bool = False,
        still_there: StillThere = read.still_there,
    ) -> CleanResult:
        """Remove the file once nothing on record may run; its history is kept.

        Refused while the owner is not proven dead, a launch is open, a survivor may run,
        or something in it was not understood. ``despite_damage``: the caller has looked
        for the owner's processes by other marks too, so damaged lines hide nothing.
        """
        try:
            view = self.view()
        except JournalError as error:
            return self._result("refused", str(error))
        if not records.is_at(self._fd, self.path):
            return self._result("already-gone", "the journal was removed or replaced")
        verdict = read.owner_verdict(view)
        if not verdict.proves_death:
            return self._result("refused", f"its owner is not proven dead: {verdict.value}")
        if not view.complete and not (view.damaged and despite_damage):
            return self._result("refused", view.reason)
        data = read.read_bytes(self._fd)
        fold = read.fold_of(data)[0]
        if view.over:
            fold.world_is_over()
        if not read.forgettable(fold, still_there):
            return self._result("kept", "something on record may still run")
        return self._unlink(fold, history_limit)

    def _unlink(self, fold: Fold, history_limit: int | None) -> CleanResult:
        try:
            bury(os.path.dirname(self.path), fold, history_limit)
            os.unlink(self.path)
        except (OSError, ValueError) as error:
            return self._result("not-permitted", str(error))
        return self._result("removed", "")

    def forget(self, history_limit: int | None) -> CleanResult:
        """Remove another world's journal that is :func:`.retention.outdated`; nothing but it.

        Refused where its owner may hold it: only a lock that was taken proves the contrary.
        """
        try:
            view = self.view()
        except JournalError as error:
            return self._result("refused", str(error))
        if not self.locked or not records.is_at(self._fd, self.path):
            return self._result("kept", "somebody may hold it")
        verdict = read.owner_verdict(view)
        if verdict is not Verdict.FOREIGN:
            return self._result("refused", f"it is no other world's: {verdict.value}")
        fold = read.fold_of(read.read_bytes(self._fd))[0]
        return self._unlink(fold, history_limit)

    def _result(self, outcome: Any, reason: str) -> CleanResult:
        return CleanResult(self.path, "stale_file", outcome, reason)

    def close(self) -> None:
        """Let go of the lock. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claim(path: str) -> Claim | None:
    """Take a dead owner's journal over; None when somebody has it, or it is gone.

    Read :meth:`Claim.view` after it, not before: another recovery may just have ended.
    JournalError when the file may not be opened for writing.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | lock.READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    answer = lock.take(fd)
    if answer is Lock.LOCKED or not records.is_at(fd, path):
        os.close(fd)
        return None
    return Claim(fd, path, answer is Lock.FREE)
