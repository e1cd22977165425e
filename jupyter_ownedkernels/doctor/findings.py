"""How a finding is named and put into words."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from ..identity import World
from ..models import Finding, FindingKind, LaunchRecord
from ..owners import KnownOwner
from ..processes.snapshot import Snapshot
from ..redaction import redact
from ..runtime import procfs
from ..runtime.files import FileIdentity
from ..runtime.procfs import Stat
from ..runtime.retire import Target

# The doctor's table shows processes without the digest. So named, one that is no finding any
# more can still be told from another that has its number.
_ID = re.compile(r"p(?P<pid>\d+)-(?P<ticks>\d+)(?:-[0-9a-f]{12})?|[fo]-[0-9a-f]{12}")


@dataclass(frozen=True)
class Item:
    """A finding, and what a clean needs to act on it."""

    finding: Finding
    doomed: tuple[Stat, ...] = ()
    """The processes that end with it. The first is the one that the finding names."""
    owner: KnownOwner | None = None
    launch: LaunchRecord | None = None
    file: FileIdentity | None = field(default=None, repr=False)

    @property
    def target(self) -> Target | None:
        """The process that the finding names."""
        return Target(self.doomed[0].pid, self.doomed[0].start_ticks) if self.doomed else None


def _digest(*parts: object) -> str:
    text = "\0".join(str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def process_id(kind: FindingKind, entry: Stat, world: World, launch_id: str = "") -> str:
    """Names one process in one role. Of a later launch, or in another role, it is another."""
    digest = _digest(kind, world.host, world.boot_id, world.pid_ns, launch_id)
    return f"p{entry.pid}-{entry.start_ticks}-{digest}"


def file_id(path: str, file: FileIdentity) -> str:
    """Names one file with one content."""
    return f"f-{_digest(path, *file)}"


def other_id(*parts: object) -> str:
    """Names what can only be shown."""
    return f"o-{_digest(*parts)}"


def target_in(finding_id: str) -> Target | None:
    """The process that an id names; None for a file, or what no scan has given."""
    match = _ID.fullmatch(finding_id)
    if match is None or match["pid"] is None:
        return None
    return Target(int(match["pid"]), int(match["ticks"]))


def is_id(text: str) -> bool:
    """Whether the text can be an id that a scan gave."""
    return _ID.fullmatch(text) is not None


def of_process(
    kind: FindingKind,
    entry: Stat,
    table: Snapshot,
    proofs: list[str],
    *,
    owner: KnownOwner | None = None,
    launch: LaunchRecord | None = None,
    with_it: tuple[Stat, ...] = (),
    by_default: bool = False,
    acts: bool = True,
    path: str | None = None,
) -> Item:
    """A finding about a process, and about ``with_it``: what would end together with it."""
    age = table.age(entry)
    together = (entry, *(other for other in with_it if other.pid != entry.pid))
    if len(together) > 1:
        proofs = [*proofs, f"with it: {pids(together[1:])}"]
    finding = Finding(
        id=process_id(kind, entry, table.world, launch.launch_id if launch else ""),
        kind=kind,
        proofs=tuple(proofs),
        action="terminate" if acts else None,
        by_default=by_default and acts,
        pid=entry.pid,
        kernel_id=(launch.kernel_id or None) if launch else None,
        kernel_name=(launch.kernel_name or None) if launch else None,
        owner=owner.summary() if owner else None,
        started_at=table.now - age,
        age_s=age,
        rss_bytes=sum(one.rss_pages for one in together) * procfs.PAGE_SIZE,
        cmdline=tuple(redact(table.argv(entry.pid))) or (f"[{entry.name}]",),
        path=path or ((launch.connection_file or None) if launch else None),
    )
    return Item(finding, together if acts else (), owner, launch)


def pids(entries: tuple[Stat, ...]) -> str:
    most = 10
    shown = ", ".join(str(entry.pid) for entry in entries[:most])
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return f"process{'es' if len(entries) > 1 else ''} {shown}{more}"


def shown_only(
    kind: FindingKind,
    proofs: list[str],
    *,
    owner: KnownOwner | None = None,
    launch: LaunchRecord | None = None,
    path: str | None = None,
    **more: Any,
) -> Item:
    """A finding that nothing is ever done about."""
    place = path or (launch.connection_file if launch else "")
    launch_id = launch.launch_id if launch else ""
    finding = Finding(
        id=other_id(kind, place, launch_id, owner.view.path if owner else ""),
        kind=kind,
        proofs=tuple(proofs),
        kernel_id=(launch.kernel_id or None) if launch else None,
        kernel_name=(launch.kernel_name or None) if launch else None,
        owner=owner.summary() if owner else None,
        started_at=(launch.at or None) if launch else None,
        path=place or None,
        **more,
    )
    return Item(finding, (), owner, launch)
