"""Reading journals, of this owner and of others, living or dead."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from .. import identity
from ..errors import JournalError
from ..identity import Identity, Verdict
from ..models import HistoryEntry, LaunchRecord, OwnerRecord, Survivor
from ..runtime import records
from ..runtime.files import FileIdentity
from ..runtime.lock import READ_FLAGS
from .fold import Fold, StillThere
from .machine import is_of_an_earlier_boot
from .owner import is_former_self

MAX_BYTES = 64 << 20
"""A journal that is longer (it is compacted at a fraction of that) is not read on."""


@dataclass(frozen=True)
class JournalView:
    """One journal at one moment."""

    path: str
    owner: OwnerRecord | None
    launches: dict[str, LaunchRecord]
    damaged: int
    """Lines that could not be read, a torn last line left out."""
    torn: bool
    """The last line is not whole: a crash while writing, which hides no launch."""
    complete: bool
    """Everything was read and understood. When False, what is missing may run: a
    conclusion from the absence of a launch is not allowed."""
    reason: str
    """Why it is not complete; empty when it is."""
    file: FileIdentity | None
    history: tuple[HistoryEntry, ...] = field(repr=False, default=())

    @property
    def over(self) -> bool:
        """Whether it was written before this machine was last started: all in it is gone."""
        return (
            self.owner is not None
            and self.owner.identity is not None
            and self.owner.identity.world.over
        )

    @property
    def open(self) -> list[LaunchRecord]:
        """Launches whose end is not on record."""
        return [launch for launch in self.launches.values() if launch.open]

    def survivors(self) -> list[tuple[LaunchRecord, Survivor, Identity]]:
        """What ended launches left behind, under its full name. Look before you believe."""
        if self.owner is None or self.owner.identity is None:
            return []
        world = self.owner.identity.world
        return [
            (launch, survivor, survivor.identity(world))
            for launch in self.launches.values()
            if not launch.open
            for survivor in launch.survivors
        ]


def still_there(recorded: Identity) -> bool:
    """Whether a recorded process may still run. In doubt, and in another world, it may."""
    return not identity.compare(recorded).proves_death


def owner_verdict(view: JournalView) -> Verdict:
    """What the process table says about the journal's owner. UNKNOWN without a name."""
    if view.owner is None or view.owner.identity is None:
        return Verdict.UNKNOWN
    if is_former_self(view.owner):
        return Verdict.DIFFERENT
    return identity.compare(view.owner.identity)


def read(path: str) -> JournalView:
    """Read a journal. JournalError when there is nothing readable under the path.

    Works while the owner writes: a line of which only a part is there yet is torn.
    """
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    try:
        return view_of(fd, path)
    finally:
        os.close(fd)


def view_of(fd: int, path: str) -> JournalView:
    """Read a journal that the caller has open. JournalError when it cannot be read."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise JournalError(f"{path}: not a regular file")
        data = read_bytes(fd)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    fold, damaged, torn = fold_of(data)
    if is_of_an_earlier_boot(fold.owner, os.path.dirname(path)):
        fold.world_is_over()
    reason = ""
    if len(data) > MAX_BYTES:
        reason = "it is too long to be read"
    elif damaged:
        reason = f"{damaged} of its lines are damaged"
    elif fold.owner is None:
        reason = "it does not name its owner"
    elif fold.strange:
        reason = "another version of this package wrote to it"
    return JournalView(
        path=path,
        owner=fold.owner,
        launches=dict(fold.launches),
        damaged=damaged,
        torn=torn,
        complete=not reason,
        reason=reason,
        file=FileIdentity.from_stat(status),
        history=tuple(fold.history(fold.owner.owner_id)) if fold.owner else (),
    )


def fold_of(data: bytes) -> tuple[Fold, int, bool]:
    """What the bytes of a journal mean; the damaged lines; whether the end is torn."""
    found, damaged = records.parse(data[:MAX_BYTES])
    torn = len(data) <= MAX_BYTES and records.is_torn(data)
    fold = Fold()
    for record in found:
        fold.apply(record)
    return fold, damaged - torn, torn


def read_bytes(fd: int, offset: int = 0) -> bytes:
    """All bytes from an offset on, up to one more than the bound; moves the position."""
    os.lseek(fd, offset, os.SEEK_SET)
    chunks: list[bytes] = []
    left = MAX_BYTES + 1 - offset
    while left > 0:
        chunk = os.read(fd, min(left, 1 << 20))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def read_all(paths: Iterable[str]) -> tuple[list[JournalView], list[str]]:
    """The journals that can be read, and why others cannot. Those just removed are neither."""
    views: list[JournalView] = []
    problems: list[str] = []
    for path in paths:
        try:
            views.append(read(path))
        except JournalError as error:
            if os.path.lexists(path):
                problems.append(str(error))
    return views, problems


def forgettable(fold: Fold, check: StillThere = still_there) -> bool:
    """Whether nothing on record may run any more, and everything was understood."""
    return not fold.strange and not any(
        fold.matters(launch, check) for launch in fold.launches.values()
    )
