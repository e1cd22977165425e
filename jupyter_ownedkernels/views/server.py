"""What one server shows of its kernels. All that reads /proc or files is done in threads."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from jupyter_server.services.sessions.sessionmanager import SessionManager

from ..doctor.scanning import Run
from ..errors import UnknownKernel
from ..journal import journal
from ..models import HistoryEntry, OwnerRecord, State
from ..ownership import Ownership
from ..processes.table import Table
from ..processes.usage import Group, Load, Meter
from ..sharing import Shared
from . import kernels as views
from .kernels import Shown

log = logging.getLogger(__name__)

Scope = Literal["owner", "user"]

# Within this time all requests share one look at the processes and at the journals.
_SHARE = 1.0
_NAMES_KEPT = 60.0
# Kernels that nobody asks for any more need not be looked at.
_ASKED_KEPT = 60.0


class _Look(NamedTuple):
    """One look at the processes, and what it showed of which kernels."""

    table: Table
    groups: Mapping[str, Group]
    loads: Mapping[str, Load]


_SESSION_FIELDS = ("path", "name", "type")


class ServerViews:
    """Made once per server; used on its event loop.

    ``ownership`` is None where nothing is owned (mode inactive): then what the server's
    manager knows is shown, with ``why``. ``secrets`` gives texts that must not be shown.
    """

    def __init__(
        self,
        *,
        ownership: Ownership | None,
        kernel_manager: Any,
        session_manager: Any,
        spec_manager: Any,
        folders: Collection[str],
        run: Run,
        secrets: Callable[[], Iterable[str]],
        why: str = "",
    ) -> None:
        self._ownership = ownership
        self._manager = kernel_manager
        self._sessions_of = session_manager
        self._specs = spec_manager
        self._folders = list(folders)
        self._run = run
        self._secrets = secrets
        self._why = why
        self._owner: OwnerRecord | None = ownership.owner if ownership else None
        self.url = ""
        """The server's address once it is known, without secrets."""
        self._meter = Meter()
        self._looks: Shared[_Look] = Shared(self._look, _SHARE)
        self._asked: dict[str, tuple[float, Group]] = {}
        self._others: Shared[list[Shown]] = Shared(self._read_others, _SHARE)
        self._names: dict[str, tuple[float, str]] = {}

    # -- kernels ---------------------------------------------------------------------

    async def kernels(self, scope: Scope) -> list[dict[str, Any]]:
        """Every kernel of this server, or of all living owners of this user here."""
        shown = await self._own()
        if scope == "user":
            shown += await self._others.get()
        sessions = await self._sessions()
        look = await self._loads(shown)
        names = await self._display_names({one.record.kernel_name for one in shown})
        return [self._json(one, look.loads, sessions, names) for one in shown]

    async def kernel(self, kernel_id: str) -> dict[str, Any]:
        """One kernel of this server with its processes. Raises UnknownKernel."""
        shown = await self._one(kernel_id)
        sessions = await self._sessions()
        look = await self._loads([shown])
        names = await self._display_names({shown.record.kernel_name})
        answer = self._json(shown, look.loads, sessions, names)
        answer["processes"] = []
        group = shown.group
        if group is not None:
            found, pss = await self._run(functools.partial(views.processes_in, look.table, group))
            secrets = list(self._secrets())
            answer["processes"] = [views.process_json(one, secrets) for one in found]
            answer["pss_bytes"] = pss
        return answer

    async def _one(self, kernel_id: str) -> Shown:
        if self._ownership is not None:
            try:
                return views.one_of_this_owner(self._ownership, kernel_id)
            except UnknownKernel:
                pass
        for shown in await self._own():
            if shown.record.kernel_id == kernel_id:
                return shown
        raise UnknownKernel("this server has no such kernel")

    async def _own(self) -> list[Shown]:
        shown: list[Shown] = []
        if self._ownership is not None:
            shown = views.of_this_owner(self._ownership, lambda one: one in self._manager)
        known = {one.record.kernel_id for one in shown}
        rest = [one for one in self._manager.list_kernel_ids() if one not in known]
        if rest:
            if self._owner is None:
                self._owner = await self._run(lambda: journal.this_owner(""))
            shown += [self._of_manager(one, self._owner) for one in rest]
        return shown

    def _of_manager(self, kernel_id: str, owner: OwnerRecord) -> Shown:
        kernel = self._manager.get_kernel(kernel_id)
        pid = getattr(getattr(kernel, "provisioner", None), "pid", None)
        return views.of_manager_only(
            kernel_id,
            str(getattr(kernel, "kernel_name", "") or ""),
            pid if isinstance(pid, int) and pid > 0 else None,
            str(getattr(kernel, "connection_file", "") or ""),
            owner,
            self._why,
        )

    def _json(
        self,
        shown: Shown,
        loads: Mapping[str, Load],
        sessions: dict[str, dict[str, Any]],
        names: dict[str, str],
    ) -> dict[str, Any]:
        record = shown.record
        own = shown.owner is self._owner
        return views.kernel_json(
            shown,
            loads.get(shown.key) if shown.group is not None else None,
            display_name=names[record.kernel_name],
            execution_state=self._execution_state(record.kernel_id) if own else None,
            session=sessions.get(record.kernel_id) if own else None,
            url=self.url if own else "",
        )

    def _execution_state(self, kernel_id: str) -> str | None:
        if kernel_id not in self._manager:
            return None
        state = getattr(self._manager.get_kernel(kernel_id), "execution_state", None)
        return state if isinstance(state, str) else None

    # -- processes -------------------------------------------------------------------

    async def _loads(self, shown: Iterable[Shown]) -> _Look:
        """A look that has all of these, as far as they have processes to be seen."""
        groups = [group for one in shown if (group := one.group) is not None]
        self._ask_for(groups)
        look = await self._looks.get()
        if not all(group.key in look.groups for group in groups):
            # Started since that look, or of another owner.
            look = await self._looks.get(fresh=True)
        return look

    def _ask_for(self, groups: Iterable[Group]) -> None:
        now = time.monotonic()
        self._asked.update((group.key, (now, group)) for group in groups)

    async def _look(self) -> _Look:
        now = time.monotonic()
        self._asked = {
            key: (at, group) for key, (at, group) in self._asked.items() if now - at < _ASKED_KEPT
        }
        groups = {key: group for key, (_, group) in self._asked.items()}
        last = self._looks.newest
        before = last.table if last is not None else None

        def read() -> _Look:
            table = Table.take((group.key_of_top for group in groups.values()), before)
            return _Look(table, groups, self._meter.read(table, groups.values()))

        look: _Look = await self._run(read)
        return look

    def process_total(self, soon: Callable[[Callable[[], Any]], None]) -> int | None:
        """Processes of this server's kernels in the last look. When that is old, ``soon``
        is called with what takes the next one."""
        if self._ownership is None:
            return None
        kernels = self._ownership.kernels()
        keys = [kernel.record.launch_id for kernel in kernels if kernel.record.open]
        age = self._looks.age
        if age is None or age > _SHARE:
            soon(self._look_at_own)
        look = self._looks.newest
        if look is None:
            return None
        return sum(look.loads[key].process_count for key in keys if key in look.loads)

    async def _look_at_own(self) -> None:
        await self._loads(await self._own())

    def state_totals(self) -> dict[str, int]:
        """State to number of this owner's kernels, those that have ended left out."""
        totals = {state.value: 0 for state in State if state is not State.ENDED}
        if self._ownership is not None:
            for kernel in self._ownership.kernels():
                if kernel.state is not State.ENDED:
                    totals[views.state_of(self._ownership, kernel).value] += 1
        return totals

    # -- what others know ------------------------------------------------------------

    async def history(self, limit: int) -> list[HistoryEntry]:
        """What has ended, newest first, of all owners of this user."""
        found: list[HistoryEntry] = await self._run(lambda: journal.history(self._folders, limit))
        return found

    async def _read_others(self) -> list[Shown]:
        own_id = self._owner.owner_id if self._owner else None
        found: list[Shown] = await self._run(lambda: views.of_other_owners(self._folders, own_id))
        return found

    async def _sessions(self) -> dict[str, dict[str, Any]]:
        """Kernel id to the session that shows it."""
        try:
            if isinstance(self._sessions_of, SessionManager):
                return _rows(self._sessions_of)
            models = await self._sessions_of.list_sessions() if self._sessions_of else []
        except Exception:
            # Another extension's session manager: kernels are shown without sessions.
            log.debug("The sessions cannot be listed", exc_info=True)
            return {}
        return {
            model["kernel"]["id"]: {name: model.get(name) for name in _SESSION_FIELDS}
            for model in models
            if model and model.get("kernel")
        }

    async def _display_names(self, names: set[str]) -> dict[str, str]:
        now = time.monotonic()
        for name in names:
            at, _ = self._names.get(name, (-_NAMES_KEPT, ""))
            if now - at >= _NAMES_KEPT:
                self._names[name] = (now, await self._run(functools.partial(self._look_up, name)))
        return {name: self._names[name][1] for name in names}

    def _look_up(self, name: str) -> str:
        try:
            spec = self._specs.get_kernel_spec(name)
        except Exception:
            return name  # Not installed (any more).
        if inspect.iscoroutine(spec):
            spec.close()  # A Gateway's: not worth a request.
            return name
        return str(spec.display_name)


def _rows(sessions: SessionManager) -> dict[str, dict[str, Any]]:
    # list_sessions makes a model of each kernel (8 ms for 200), and forgets sessions whose
    # kernel is gone. Here three columns will do: 0.3 ms.
    rows = sessions.connection.cursor().execute(
        f"SELECT kernel_id, {', '.join(_SESSION_FIELDS)} FROM session"
    )
    return {row[0]: dict(zip(_SESSION_FIELDS, row[1:], strict=True)) for row in rows.fetchall()}
