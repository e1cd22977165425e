"""The launch of a provisioner on record, from its intent until the owner has done its part."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from .. import ownership
from ..config import OwnedKernels
from ..launching.launch import Exited
from . import options
from .held_ports import HoldsPorts

if TYPE_CHECKING:
    from ..launching.launch import Launch
    from ..models import Cause
    from ..owned_kernel import OwnedKernel
    from ..ownership import Ownership


class OnRecord(HoldsPorts):
    """A ``LocalProvisioner`` that puts its launches on record.

    After a kernel's end its keeper waits for what is the owner's part, and does it should
    the owner die before: the connection file is removed unless the kernel is started again.
    """

    _kernel: OwnedKernel | None = None
    _keeper_waits: weakref.finalize[Any, Any] | None = None

    @property
    def ownership(self) -> Ownership:
        """The ownership of this process, made with this provisioner's configuration."""
        return ownership.current(lambda: OwnedKernels(parent=self).settings())

    async def _begun(self) -> OwnedKernel:
        """The launch, put on record in a thread; that of a caller who is cancelled is ended."""
        given_up = threading.Event()

        def begin() -> OwnedKernel:
            if given_up.is_set():
                raise asyncio.CancelledError
            return self._begin()

        making = asyncio.ensure_future(asyncio.to_thread(begin))
        try:
            return await asyncio.shield(making)
        except BaseException:
            # Where no thread could be had (a limit on processes) it waits for the next one.
            given_up.set()
            making.add_done_callback(self._end_begun)
            raise

    def _end_begun(self, making: asyncio.Future[OwnedKernel]) -> None:
        if not making.cancelled() and making.exception() is None:
            self.ownership.ended(making.result(), Exited(None), ())

    def _begin(self) -> OwnedKernel:
        """Takes as long as the disk; to be called in a thread."""
        self._kernel = self.ownership.begin(
            kernel_id=self.kernel_id,
            kernel_name=getattr(self.parent, "kernel_name", "") or "",
            connection_file=self._connection_file(),
            detached=options.detached_policy(self.kernel_spec, self.ownership.settings),
            removes_file=bool(getattr(self.parent, "_connection_file_written", True)),
        )
        # The connection file is that of this launch from here on.
        self._let_keeper_go()
        return self._kernel

    def _connection_file(self) -> str:
        path = getattr(self.parent, "connection_file", "") or ""
        return os.path.realpath(path) if path else ""

    def _wish(self, cause: Cause) -> None:
        self.ownership.wish(self.kernel_id, cause)

    def _keeper_waits_for_us(self, launch: Launch) -> None:
        # Where nobody cleans up, the keeper goes with this object at the latest.
        self._keeper_waits = weakref.finalize(self, launch.finish)
        self._keeper_waits.atexit = False

    def _let_keeper_go(self) -> None:
        """The one of the launch before need not do the owner's part any more."""
        if self._keeper_waits is not None:
            self._keeper_waits()
            self._keeper_waits = None

    async def cleanup(self, restart: bool = False) -> None:
        """As the class above it. Called by the manager when it has removed the file."""
        await super().cleanup(restart)
        if not restart:
            self._let_keeper_go()

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Adds the identity of the launched process, so that it can be proven later.

        Holds the connection info with its key (the base class puts it there): to be
        stored in a private place only.
        """
        info: dict[str, Any] = await super().get_provisioner_info()
        if self._kernel is not None:
            record = self._kernel.record
            info["launch_id"] = record.launch_id
            info["identity"] = record.process.to_json() if record.process else None
        return info
