"""The kernel provisioner: launches by a spawner what ``LocalProvisioner`` would launch.

It plugs into everything that starts kernels through jupyter_client: a Jupyter server,
nbclient, papermill, ``jupyter console``. Where no spawner can be had the launch is the
stock one, and the kernel is listed as unwatched with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from . import identity
from .errors import LaunchError, LaunchTimeout, SpawnerUnavailable, Superseded, WarmLost
from .launching.launch import Exited, LaunchRequest, LeaseLost, settled
from .launching.readiness import StartUp, is_ready, ports_of
from .launching.spawners import unsupported_reason
from .launching.stdio import Stdio
from .marks import LAUNCH_MARKER
from .provisioning import options, standby
from .provisioning.forked import mends_loop
from .provisioning.on_record import OnRecord
from .provisioning.owned_process import LoadedProcess, OwnedProcess, StockProcess
from .provisioning.submission import Submission
from .runtime import inherited, retire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_client.connect import KernelConnectionInfo

    from .owned_kernel import OwnedKernel

# Beyond the bound of retiring itself: the way of the report from the keeper to here.
_REPORT_MARGIN = 2.0
_SIGNAL_ANSWER_TIMEOUT = 2.0


Handle: TypeAlias = OwnedProcess | StockProcess | LoadedProcess


class OwnedProvisioner(OnRecord):
    """A ``LocalProvisioner`` whose kernels cannot outlive the process that asked for them.

    Entry point ``owned-provisioner``. The object lives as long as its kernel manager and
    serves one launch after the other; :attr:`process` is that of the present launch.
    """

    # Popen's shape, but not its class.
    process: Handle | subprocess.Popen[Any] | None = None  # type: ignore[assignment]
    _asked: Mapping[str, Any] | None = None
    """The options of the launch as they came, without what ``pre_launch`` makes of them."""
    _start_up = StartUp()
    _ready_told = False

    @property
    def welcomes(self) -> bool:
        """Whether the kernel tells each new subscriber so. False where that is not known."""
        return isinstance(self.process, OwnedProcess) and self.process.launch.welcomes

    # -- launch ----------------------------------------------------------------------

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Decides the ports; those of a standby kernel if one fits."""
        self._asked = dict(kwargs)
        unsupported = unsupported_reason() is not None
        if self.parent is not None and not self.ports_cached and not unsupported:
            reserved = standby.reserve(self.ownership, self.parent, kwargs)
            self.ports_cached = reserved or self._choose_ports()
        return await super().pre_launch(**kwargs)

    @mends_loop
    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel, and wait (bounded) until it accepts connections.

        Called by the kernel manager between ``pre_launch`` and ``post_launch``. Raises
        what ``Popen`` would raise when the command cannot be executed, and Superseded when
        a shutdown was asked for meanwhile.
        """
        unsupported = unsupported_reason()
        if unsupported is not None:
            return await self._launch_unsupported(cmd, kwargs, unsupported)
        scrubbed = self._scrub_kwargs(kwargs)
        independent = bool(scrubbed.pop("independent", False))
        reason = (
            "started as independent of its owner" if independent else options.obstacle(scrubbed)
        )
        if isinstance(self.process, OwnedProcess) and self.process.is_ending:
            # Whoever restarts a kernel waits five seconds for its end. A longer grace may go on,
            # and what it is given to has the ports.
            await self.wait()
        self._hold_ports(cmd)
        self._start_up, self._ready_told = StartUp(), False
        again = 1
        try:
            while reason is None:
                try:
                    await self._launch_owned(cmd, scrubbed)
                    break
                except LaunchError as error:
                    if isinstance(error, LeaseLost) and again:
                        # Its helpers were killed just then: no reason to go unwatched.
                        again -= 1
                    elif not isinstance(error, WarmLost):
                        reason = str(error)
                    if not isinstance(error, SpawnerUnavailable):
                        cmd, scrubbed = await self._start_afresh(kwargs)
            if reason is not None:
                kernel = await self._begun()
                self._launch_stock(kernel, cmd, dict(scrubbed, independent=independent), reason)
        except BaseException:
            self._release_ports(has_ended=True)
            raise
        process = cast(Handle, self.process)
        self.pid = process.pid
        # Not used here, but part of the info that a LocalProvisioner gives.
        with contextlib.suppress(OSError):
            self.pgid = os.getpgid(process.pid)
        self.cwd = kwargs.get("cwd", pathlib.Path.cwd())
        try:
            await self._wait_until_ready(process)
        except BaseException:
            # Given up by the caller, who was never told of this kernel.
            self._release_ports(has_ended=True)
            self._wish("shutdown")
            process.kill()
            self._let_keeper_go()
            raise
        return self.connection_info

    async def _launch_owned(self, cmd: list[str], kwargs: dict[str, Any]) -> None:
        settings = self.ownership.settings
        env = dict(kwargs["env"] if kwargs.get("env") is not None else os.environ)
        # All that may change until it is asked for: as of now, as for Popen.
        argv, cwd = options.expanded(cmd), options.folder(kwargs.get("cwd"))
        ports = ports_of(cast("Mapping[str, Any]", self.connection_info))
        passed_on = inherited.of_this_thread()

        def request_for(kernel: OwnedKernel) -> LaunchRequest:
            self._refuse_unwanted()
            record = kernel.record
            env[LAUNCH_MARKER] = record.launch_id
            return LaunchRequest(
                launch_id=record.launch_id,
                argv=argv,
                env=env,
                cwd=cwd,
                connection_file=record.connection_file,
                ports=ports,
                detached=record.detached_policy,
                grace=settings.terminate_grace,
                retire_timeout=settings.retire_timeout,
                journal=self.ownership.journal.path,
                remove_connection_file=bool(record.connection_file) and kernel.removes_file,
                umask=options.umask(kwargs.get("umask")),
                oom_score_adj=settings.oom_score_adj,
                inherited=passed_on,
            )

        stdio = Stdio(
            kwargs.get("stdin"),
            kwargs.get("stdout"),
            kwargs.get("stderr"),
            text=bool(kwargs.get("text")),
        )
        submission = Submission(self.ownership, self._begin, request_for, stdio)
        try:
            launch = await submission.made()
            started = await settled(launch.started, settings.launch_timeout)
        except BaseException as error:
            stdio.close_own_ends()
            timed_out = isinstance(error, asyncio.TimeoutError)
            submission.give_up(made_again=timed_out or isinstance(error, LaunchError))
            if timed_out:
                raise LaunchTimeout(
                    f"no kernel process within {settings.launch_timeout:g} s (launch_timeout)"
                ) from None
            raise
        self.process = OwnedProcess(launch, started, stdio)
        self._keeper_waits_for_us(launch)

    def _launch_stock(
        self, kernel: OwnedKernel, cmd: list[str], kwargs: dict[str, Any], reason: str
    ) -> None:
        try:
            self._refuse_unwanted()
            self.process = StockProcess.start(cmd, kwargs, self.ownership.settings.retire_timeout)
        except BaseException:
            self.ownership.ended(kernel, Exited(None), ())
            raise
        self.ownership.unwatched(kernel, self.process.pid, reason, wanted=kwargs["independent"])
        if not kwargs["independent"]:
            self.log.warning(
                "Kernel %s is not watched, it may outlive this process: %s", self.kernel_id, reason
            )

    async def _launch_unsupported(
        self, cmd: list[str], kwargs: dict[str, Any], reason: str
    ) -> KernelConnectionInfo:
        """Where nothing can be watched: what LocalProvisioner does, and a line on record."""
        info = await super().launch_kernel(cmd, **kwargs)
        kernel = await asyncio.to_thread(self._begin)
        assert self.pid is not None
        self.ownership.unwatched(kernel, self.pid, reason)
        return info

    async def _start_afresh(self, kwargs: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """A new connection file and new ports: the launch that was given up may come late."""
        manager = self.parent
        if manager is not None:
            manager.cleanup_connection_file()
            manager.cleanup_random_ports()
        await self.cleanup(restart=False)
        self.ports_cached = False
        # What pre_launch has used up (extra arguments) or filled in (the environment) begins anew.
        again = await self.pre_launch(**(kwargs if self._asked is None else self._asked))
        cmd = again.pop("cmd")
        self._hold_ports(cmd)
        return cmd, self._scrub_kwargs(again)

    async def _wait_until_ready(self, process: Handle) -> None:
        if isinstance(process, OwnedProcess) and process.launch.booted:
            process.ready()
            self._ready_told = True
            return
        timeout = self.ownership.settings.ready_timeout
        info = cast("Mapping[str, Any]", self.connection_info)

        def is_pointless() -> bool:
            return self._is_unwanted() or process.poll() is not None

        self._tell_when_ready(await self._start_up.wait(info, is_pointless, timeout))
        self._release_ports(has_ended=process.poll() is not None)

    def _is_unwanted(self) -> bool:
        return bool(getattr(self.parent, "end_is_wished", False))

    def _refuse_unwanted(self) -> None:
        if self._is_unwanted():
            raise Superseded("the kernel is being shut down")

    def _tell_when_ready(self, ready: bool = False) -> None:
        """Have the keeper look for the kernel process, once there is certain to be one.

        A wrapper may take longer than any wait until it has made the kernel, and must not
        be taken for it.
        """
        info = cast("Mapping[str, Any]", self.connection_info)
        if not self._ready_told and (ready or is_ready(info) is not False):
            process = self.process
            if isinstance(process, OwnedProcess):
                process.ready()
            self._ready_told = True

    # -- life ------------------------------------------------------------------------

    async def poll(self) -> int | None:
        """None while the kernel runs, else its exit status; 0 when there is none."""
        if self.process is None:
            return 0
        status = self.process.poll()
        if status is None and not self._start_up.waiting:
            self._tell_when_ready()
        self._release_ports(has_ended=status is not None)
        return status

    async def wait(self) -> int | None:
        """Wait until the kernel and its core are gone, so that its ports are free.

        Without a bound while nobody has asked for its end. From then on bounded by
        ``retire_timeout``, or by the grace where that is longer: what cannot be ended is on
        record, not waited for.
        """
        process, kernel = self.process, self._kernel
        if process is None:
            return 0
        if isinstance(process, subprocess.Popen):
            status = await super().wait()
            if kernel is not None:
                self.ownership.ended(kernel, Exited(status), ())
            return status
        await process.ending()
        settings = self.ownership.settings
        longest = retire.bound(settings.terminate_grace, settings.retire_timeout)
        status = await process.wait_async(longest + _REPORT_MARGIN)
        process.close_streams()
        if isinstance(process, StockProcess) and kernel is not None:
            self.ownership.ended(kernel, Exited(status), ())
        if self.process is process:  # it may have been started again meanwhile
            self.process = None
        return status

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel process and what runs in its process group below it.

        Not the whole group, and not a wrapper above the kernel: ``conda run`` and ``uv run``
        die of an interrupt. Raises PermissionError when nothing could be signalled, and
        OSError, as stock does, for a signal that does not exist.
        A kernel that is still starting gets no interrupt: it has no cell to stop, and its
        interpreter would end.
        """
        in_a_hurry = bool(getattr(self.parent, "shutting_down", False))
        if in_a_hurry and self._kernel is not None and self._kernel.wish is None:
            # A shutdown begins with an interrupt; a kernel that dies of it did as it was told.
            self._wish("shutdown")
        if signum == signal.SIGINT and not await self._start_up.takes_interrupt(in_a_hurry):
            return
        if self.process is None:
            return
        if isinstance(self.process, subprocess.Popen):
            # Its number, and so the group's, is its own until it has been reaped.
            if self.process.poll() is None:
                await super().send_signal(signum)
            return
        try:
            await self.process.signal_async(signum, _SIGNAL_ANSWER_TIMEOUT)
        except PermissionError:
            # A shutdown begins with an interrupt, and must not fail for want of it.
            if not in_a_hurry:
                raise

    async def shutdown_requested(self, restart: bool = False) -> None:
        """The kernel was asked to leave by message; its exit is no accident."""
        self._wish("restart" if restart else "shutdown")

    async def terminate(self, restart: bool = False) -> None:
        """SIGTERM to the core of the launch, SIGKILL after ``terminate_grace``."""
        if self.process is None:
            return
        self._wish("restart" if restart else "shutdown")
        if isinstance(self.process, subprocess.Popen):
            await super().terminate(restart)
        else:
            self.process.retire(self.ownership.settings.terminate_grace)

    async def kill(self, restart: bool = False) -> None:
        """As :meth:`terminate`; SIGKILL at once when that was called before.

        The grace stays on the first call: exit handlers of a kernel that honours
        SIGTERM get their chance, and one that does leaves at once.
        """
        process = self.process
        if process is not None and process.poll() is None:
            if self._kernel is not None and self._kernel.wish is None:
                self._wish("restart" if restart else "shutdown")
            if isinstance(process, subprocess.Popen):
                await super().kill(restart)
                return
            process.kill_gracefully(self.ownership.settings.terminate_grace)

    # -- persistence -----------------------------------------------------------------

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Take over what another process stored. Its kernel can be polled and signalled.

        Each time by proof of identity: a number that is somebody else's now is left alone.
        """
        await super().load_provisioner_info(provisioner_info)
        stored = provisioner_info.get("identity")
        if stored:
            self.process = LoadedProcess(identity.Identity.from_json(stored))
