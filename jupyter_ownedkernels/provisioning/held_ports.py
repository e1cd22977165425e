"""The ports of a kernel, from their choice until it has bound them."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any, cast

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ..launching.ports import Hold, give_back
from ..runtime import PORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Commands of kernels that are built on libzmq, which sets SO_REUSEADDR before it binds.
# Another kernel may do without, and could not bind a port that is held.
_ON_LIBZMQ = re.compile(r"-m ?ipykernel|\bIRkernel::|\bIJulia\b")
_LOCALHOST = "127.0.0.1"


class HoldsPorts(LocalProvisioner):
    """A ``LocalProvisioner`` that nobody takes the ports from which it has chosen.

    It holds them from their choice, or from the end of a kernel that is restarted, until the
    new one has bound them. For a kernel that could not bind them then, it does so until it is
    launched. Ports that were configured are left alone.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._hold = Hold()
        self._can_bind_held = False
        self._goes_on = False
        self._promise: weakref.finalize[Any, Any] | None = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """As the class above it; what it holds already is released when that fails."""
        try:
            return await super().pre_launch(**kwargs)
        except BaseException:
            self._hold.release()
            raise
        finally:
            self._note_promise()

    def _note_promise(self) -> None:
        # Nobody cleans up after a start that has failed: five ports would be promised for as
        # long as this process lives, and jupyter_client seeks for ever when all of them are.
        # They end with this object, since the start might be tried again with the same ports.
        if self.ports_cached and self._promise is None:
            taken = {name: getattr(self.parent, name) for name in PORT_NAMES}
            self._promise = weakref.finalize(self, give_back, taken)
            self._promise.atexit = False

    def hold_until_restart(self) -> None:
        """The kernel has ended, and a restart or a :meth:`cleanup` is certain to come.

        Both may take a while: what the kernel had started ends first, and a kernel that dies
        again and again gets a pause.
        """
        self._goes_on = True
        self._hold_again()

    async def cleanup(self, restart: bool = False) -> None:
        """The kernel has ended. Its ports go to the next one if it is restarted."""
        self._goes_on = False
        if not restart:
            self._hold.release()
            if self._promise is not None:
                self._promise.detach()
                self._promise = None
        await super().cleanup(restart)
        if restart:
            self._hold_again()

    def _choose_ports(self) -> bool:
        """Give the manager five ports and hold them; False where that is not our choice.

        Those that it has are of a kernel before: LocalProvisioner would replace them as well.
        """
        manager: Any = self.parent
        if manager.transport != "tcp" or not manager.cache_ports:
            return False
        try:
            taken = self._hold.take(manager.ip or _LOCALHOST)
        except OSError:
            return False  # LocalProvisioner will look for some itself, and say what it finds.
        for name, port in taken.items():
            setattr(manager, name, port)
        return True

    def _hold_ports(self, cmd: Sequence[str]) -> None:
        """The kernel with this command is about to be launched; the one before it is gone."""
        self._goes_on = False
        self._can_bind_held = _ON_LIBZMQ.search(" ".join(cmd)) is not None
        if self._can_bind_held:
            self._hold_again()
        else:
            self._hold.release()

    def _hold_again(self) -> None:
        info = cast("Mapping[str, Any]", self.connection_info)
        if not self._can_bind_held or info.get("transport") != "tcp":
            return
        # Of a manager that keeps no note of ports, those that it has found itself.
        found = getattr(self.parent, "_random_port_names", None) or ()
        names = PORT_NAMES if self.ports_cached else found
        self._hold.keep(str(info.get("ip")), [int(info[name]) for name in names])

    def _release_ports(self, has_ended: bool) -> None:
        """Those that the kernel has bound by now; all when it has ended for good."""
        if not has_ended:
            self._hold.release_bound()
        elif not self._goes_on:
            self._hold.release()
