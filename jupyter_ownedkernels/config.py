"""What a user can set: one Configurable, ``c.OwnedKernels.*``."""

from __future__ import annotations

from collections.abc import Iterator

from traitlets import Bool, CaselessStrEnum, Float, Integer, List, Unicode, default
from traitlets.config import Configurable

from .settings import USUAL_HISTORY, Settings


class OwnedKernels(Configurable):
    """Ownership of kernels: how they are watched, ended, recorded and recovered."""

    enabled = Bool(
        True,
        config=True,
        help="""Whether kernels are watched and journaled. False leaves everything to
        Jupyter's own classes; the REST API then answers with the mode "inactive".""",
    )

    detached_processes = CaselessStrEnum(
        ["keep", "kill"],
        default_value="keep",
        config=True,
        help="""What happens, when a kernel ends, to processes that have left its session
        on purpose (nohup with setsid, start_new_session=True, daemons). "keep" lets them
        live and lists them as detached; "kill" ends them too. A kernelspec can override
        it with {"metadata": {"ownedkernels": {"detached_processes": "kill"}}}.""",
    )

    terminate_grace = Float(
        1.0,
        min=0.0,
        max=60.0,
        config=True,
        help="""Seconds between SIGTERM and SIGKILL when a kernel is ended. Nothing waits
        when everything has ended earlier.""",
    )

    retire_timeout = Float(
        5.0,
        min=0.1,
        max=300.0,
        config=True,
        help="""Seconds after which processes that cannot be ended (in an uninterruptible
        state, or not ours to signal) are reported instead of waited for. A longer
        terminate_grace, and a second after it, is waited for all the same.""",
    )

    launch_timeout = Float(
        10.0,
        min=0.1,
        max=300.0,
        config=True,
        help="""Seconds within which a spawner must have started the kernel's process.
        After that the launch is given up, and the kernel is started the stock way.""",
    )

    ready_timeout = Float(
        5.0,
        min=0.0,
        max=300.0,
        config=True,
        help="""Seconds that a start waits for the kernel to accept connections, so that
        front ends do not lose time by reconnecting. A kernel that takes longer, or never
        does, is started all the same. 0 does not wait.""",
    )

    warm = CaselessStrEnum(
        ["auto", "off"],
        default_value="auto",
        config=True,
        help="""Warm starts: "auto" forks IPython kernels from a process that has imported
        all that a started kernel has, wherever that is possible; "off" executes every
        kernel afresh.""",
    )

    warm_preload = List(
        Unicode(),
        config=True,
        help="""Modules that are imported once, before kernels are forked, for example
        ["numpy", "pandas", "matplotlib.pyplot"], or "numpy,pandas". A module that
        starts threads or opens devices when it is imported switches preloading off.""",
    )

    standby = Integer(
        1,
        min=0,
        max=8,
        config=True,
        help="""How many booted kernels are kept ready for the next starts, once a first
        kernel was started. They count as memory of the server, about 20 MB each. Without
        a server, in a notebook runner or a console, the default is 0.""",
    )

    @default("standby")
    def _default_standby(self) -> int:
        """A program that is no server mostly starts one kernel, and none after it."""
        return int(self._is_in_server())

    websocket_nodelay = Bool(
        True,
        config=True,
        help="""Whether the WebSockets of kernels send each message at once. Without it
        (Nagle's algorithm) each small cell's reply is held back for about 40 ms. They also
        open sooner: a forked kernel is not asked twice whether it is there.""",
    )

    journal_dir = Unicode(
        "",
        config=True,
        help="""Folder for the journal. The default is a folder "ownedkernels" in the
        Jupyter runtime folder.""",
    )

    recover = CaselessStrEnum(
        ["clean", "report"],
        default_value="clean",
        config=True,
        help="""What a start of the server does with kernels of servers that are proven
        dead: "clean" ends them and removes their files, "report" only lists
        them.""",
    )

    stale_file_age = Float(
        3600.0,
        min=0.0,
        config=True,
        help="""Seconds before a connection file that no journal knows, and that nothing
        uses, is called stale.""",
    )

    scan_max_age = Float(
        30.0,
        min=0.0,
        config=True,
        help="""Seconds for which the result of a scan for strays is given out again.""",
    )

    history_limit = Integer(
        500,
        allow_none=True,
        min=0,
        max=100_000,
        config=True,
        help="""How many ended launches are kept on record. Of more than about 20,000 the
        newest that 16 MB hold. Without a server, in a notebook runner or a console, the default
        is None: what servers of the same user keep is not cut short.""",
    )

    @default("history_limit")
    def _default_history_limit(self) -> int | None:
        """Of two programs that share a record, the one that was configured decides."""
        return USUAL_HISTORY if self._is_in_server() else None

    oom_score_adj = Integer(
        None,
        allow_none=True,
        min=0,
        max=1000,
        config=True,
        help="""Added to the kernels' badness when memory runs out (0 to 1000), so that
        the system ends a kernel before the server. Off by default.""",
    )

    def settings(self) -> Settings:
        """The plain values that the service layer works with."""
        return Settings(
            runtime_dir=self._runtime_dir(),
            detached_processes=self.detached_processes,
            terminate_grace=self.terminate_grace,
            retire_timeout=self.retire_timeout,
            launch_timeout=self.launch_timeout,
            ready_timeout=self.ready_timeout,
            journal_dir=self.journal_dir or None,
            history_limit=self.history_limit,
            oom_score_adj=self.oom_score_adj,
            warm=self.warm == "auto",
            warm_preload=tuple(self._names(self.warm_preload)),
            standby=self.standby,
        )

    @staticmethod
    def _names(entries: list[str]) -> list[str]:
        """On a command line a list is more easily written with commas."""
        names = [name.strip() for entry in entries for name in entry.split(",")]
        return [name for name in names if name]

    def _runtime_dir(self) -> str | None:
        """That of the application this belongs to: it may be configured there."""
        for above in self._above():
            found = getattr(above, "runtime_dir", None)
            if isinstance(found, str) and found:
                return found
        return None

    def _is_in_server(self) -> bool:
        return any("ServerApp" in map(_name, type(one).__mro__) for one in self._above())

    def _above(self) -> Iterator[object]:
        above = self.parent
        while above is not None:
            yield above
            above = getattr(above, "parent", None)


def _name(kind: type) -> str:
    return kind.__name__
