"""A real server in this process, with a script of wishes run in its event loop.

``python server_program.py SCRIPT ARGUMENT...``: SCRIPT is a function of this module. What
it returns is printed as JSON on the last line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Collection
from typing import Any

from jupyter_client.connect import LocalPortCache
from jupyter_server.serverapp import ServerApp
from tornado.web import HTTPError

from jupyter_ownedkernels import doctor, ownership
from jupyter_ownedkernels.kernel_manager import OwnedServerKernelManager
from jupyter_ownedkernels.restarter import OwnedKernelRestarter
from jupyter_ownedkernels.runtime import procfs


def start_app() -> ServerApp:
    app = ServerApp.instance()
    app.initialize(
        [
            "--ServerApp.allow_root=True",
            "--ServerApp.open_browser=False",
            "--ServerApp.port=0",
            "--ServerApp.log_level=WARN",
            f"--ServerApp.root_dir={os.environ['HOME']}",
            *os.environ.get("TEST_SERVER_OPTIONS", "").split(),
        ]
    )
    return app


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


async def settled() -> None:
    """Wait until what is made ready in the background is there: warm spawner, standby kernel."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pool = ownership.current().warm
        entries = pool.to_json()
        wanted = 0 if pool.standby.reason else pool.standby.count
        if all(entry["state"] != "starting" and entry["standby"] >= wanted for entry in entries):
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"warm spawners: {entries}, standby: {pool.standby.reason}")


def standing_by() -> set[int]:
    """Kernels that are kept ready for a next start, and their keepers."""
    kernels = ownership.current().warm.standby.pids()
    found = {pid: procfs.stat(pid) for pid in kernels}
    return {pid for one in found.values() if one is not None for pid in (one.pid, one.ppid)}


class Crossing:
    """Kernels that crash, and wishes about them that cross."""

    WISHES = (
        "restart",
        "delete",
        "restart, delete",
        "delete, restart",
        "all at once",
        "interrupt, delete",
        "shutdown_all",
        "in the restart callback",
    )

    def __init__(self, app: ServerApp, seed: int) -> None:
        self.kernels = app.kernel_manager
        self.random = random.Random(seed)
        self.wrong: list[str] = []

    async def ask(self, what: str, wish: Awaitable[Any]) -> None:
        """A wish may be answered with 404 when another ended the kernel; nothing else."""
        try:
            await wish
        except HTTPError as error:
            if error.status_code != 404:
                self.wrong.append(f"{what}: {error!r}")
        except Exception as error:
            self.wrong.append(f"{what}: {error!r}")

    @staticmethod
    def kill(pid: int) -> None:
        # Starts at once may lose a port to each other, and then the kernel has ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def round(self, wish: str) -> None:
        kernels = self.kernels
        kernel_id = await kernels.start_kernel()
        kernel = kernels.get_kernel(kernel_id)
        pid = kernel.provisioner.process.pid
        if wish == "in the restart callback":
            done = asyncio.get_running_loop().create_future()

            def callback() -> None:
                task = asyncio.ensure_future(self.ask(wish, kernels.shutdown_kernel(kernel_id)))
                task.add_done_callback(lambda _: done.done() or done.set_result(None))

            kernel.add_restart_callback(callback, "restart")
            self.kill(pid)
            await asyncio.wait_for(done, 30)
        else:
            if self.random.random() < 0.7:
                self.kill(pid)
            await asyncio.sleep(self.random.choice([0, 0.005, 0.02, 0.1, 0.4]))
            await self.cross(wish, kernel_id)
        if kernel_id in kernels:
            now = self.random.random() < 0.5
            await self.ask("the last delete", kernels.shutdown_kernel(kernel_id, now=now))
        if kernel_id in kernels:
            self.wrong.append(f"{wish}: still listed")

    async def cross(self, wish: str, kernel_id: str) -> None:
        kernels = self.kernels

        def wishes(*names: str) -> list[asyncio.Future[None]]:
            calls = {
                "restart": lambda: kernels.restart_kernel(kernel_id),
                "delete": lambda: kernels.shutdown_kernel(kernel_id),
                "delete now": lambda: kernels.shutdown_kernel(kernel_id, now=True),
                "interrupt": lambda: kernels.interrupt_kernel(kernel_id),
                "shutdown_all": kernels.shutdown_all,
            }
            return [asyncio.ensure_future(self.ask(f"{wish}/{n}", calls[n]())) for n in names]

        if wish == "all at once":
            pending = wishes("restart", "delete", "interrupt", "restart", "delete now")
        else:
            pending = []
            for name in wish.split(", "):
                pending += wishes(name)
                await asyncio.sleep(self.random.choice([0, 0.005, 0.05, 0.3]))
        await asyncio.gather(*pending)


async def crossing(app: ServerApp, seed: str, rounds: str, together: str) -> dict[str, Any]:
    """Rounds one by one, then some at once; what is left over afterwards."""
    scene = Crossing(app, int(seed))
    await scene.round("delete")
    await settled()
    before = open_fds()
    wishes = Crossing.WISHES
    for number in range(int(rounds)):
        await scene.round(wishes[number % len(wishes)])
    quiet = [wish for wish in wishes if wish != "shutdown_all"]
    await asyncio.gather(*(scene.round(quiet[n % len(quiet)]) for n in range(int(together))))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (len(asyncio.all_tasks()) > 1 or open_fds() > before):
        await asyncio.sleep(0.05)
    await settled()
    below = procfs.descendants(os.getpid())
    for pid in standing_by():
        del below[pid]
    return {
        "wrong": scene.wrong,
        "fds": [before, open_fds()],
        "tasks": len(asyncio.all_tasks()) - 1,
        "listed": scene.kernels.list_kernel_ids(),
        "pending": list(scene.kernels._pending_kernels),
        "processes": [entry.name for entry in below.values() if "spawner" not in entry.name],
        "states": sorted({k.state.value for k in ownership.current().kernels()}),
        "files": [n for n in os.listdir(app.runtime_dir) if n.startswith("kernel-")],
    }


def heard(app: ServerApp) -> list[str]:
    """The lines of the server's log from now on."""
    lines: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    app.log.addHandler(listener)
    return lines


def held(ports: Collection[int]) -> int:
    """At how many of these ports a socket of this process is bound."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family == socket.AF_INET:
                    found.add(one.getsockname()[1])
    return len(found.intersection(ports))


async def crashes(app: ServerApp, *cells: str) -> list[dict[str, Any]]:
    """Run each cell, which ends its kernel; what is known of the end, and how soon."""
    answers = []
    lines = heard(app)
    for cell in cells:
        name = os.environ.get("TEST_KERNEL", "python3")
        kernel_id = await app.kernel_manager.start_kernel(kernel_name=name)
        kernel = app.kernel_manager.get_kernel(kernel_id)
        client = kernel.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        launch = ownership.current().kernel(kernel_id).launch
        assert launch is not None
        ended_at: list[float] = []
        launch.exited.add_done_callback(lambda _, at=ended_at: at.append(time.monotonic()))
        client.execute(cell)
        await asyncio.wait_for(asyncio.wrap_future(launch.exited), 60)
        while ownership.current().kernel(kernel_id).launch is launch:
            await asyncio.sleep(0.002)
        acted = time.monotonic() - ended_at[0]
        async with kernel.turn:
            pass
        client.stop_channels()
        owned = ownership.current().kernel(kernel_id)
        answers.append(
            {
                "exit": owned.last_exit.to_json() if owned.last_exit else None,
                "reason": app.kernel_manager.kernel_model(kernel_id).get("reason"),
                "restarts": owned.restarts,
                "generation": owned.record.generation,
                "restarted_after": acted,
            }
        )
        await app.kernel_manager.shutdown_kernel(kernel_id)
        answers[-1]["log"] = [line for line in lines if line.startswith(f"Kernel {kernel_id} (")]
        answers[-1]["last"] = ownership.current().kernel(kernel_id).last_exit.to_json()  # type: ignore[union-attr]
    return answers


async def gives_up(app: ServerApp) -> dict[str, Any]:
    """A kernel that dies at each start, beyond the restart limit; then a good one."""
    kernels = app.kernel_manager
    await kernels.shutdown_kernel(await kernels.start_kernel())
    await settled()
    before = open_fds()
    pauses: list[list[float]] = []
    lines = heard(app)

    class Watched(OwnedKernelRestarter):
        def _pause(self) -> float:
            pauses.append([super()._pause()])
            return pauses[-1][0]

        async def _act_on(self, future: Any) -> None:
            pauses[-1].append(held(self.kernel_manager.ports))
            await super()._act_on(future)

    OwnedServerKernelManager.restarter_class.default_value = Watched
    kernel_id = await kernels.start_kernel(kernel_name="dies")
    ports = kernels.get_kernel(kernel_id).ports
    deadline = time.monotonic() + 60
    while kernel_id in kernels and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    owned = ownership.current().kernel(kernel_id)
    while open_fds() > before and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    after = open_fds()
    held_after = held(ports)
    again = await kernels.start_kernel(kernel_id=kernel_id)
    later = ownership.current().kernel(kernel_id)
    answer = {
        "listed": again in kernels,
        "fds": [before, after],
        "exit": owned.last_exit.to_json() if owned.last_exit else None,
        "state": owned.state.value,
        "generation": owned.record.generation,
        "pauses": pauses,
        "held": held_after,
        "log": [line for line in lines if line.startswith(f"Kernel {kernel_id} (")],
        "later": [later.state.value, later.record.generation],
        "later_exit": later.last_exit.to_json() if later.last_exit else None,
    }
    await kernels.shutdown_kernel(again)
    return answer


async def shut_down(app: ServerApp, name: str) -> dict[str, Any]:
    """A kernel that dies of the interrupt with which a shutdown begins; how it ended."""
    kernels = app.kernel_manager
    kernel_id = await kernels.start_kernel(kernel_name=name)
    kernel = kernels.get_kernel(kernel_id)
    launch = ownership.current().kernel(kernel_id).launch
    assert launch is not None
    assert await kernel.provisioner._start_up.takes_interrupt(False)
    # The first steps of KernelManager.shutdown_kernel, and time for the kernel before the next.
    kernel.shutting_down = True
    kernel.stop_restarter()
    await kernel.interrupt_kernel()
    await asyncio.wait_for(asyncio.wrap_future(launch.exited), 30)
    await kernels.shutdown_kernel(kernel_id)
    exit_ = ownership.current().kernel(kernel_id).last_exit
    return exit_.to_json() if exit_ else {}


async def culled(app: ServerApp) -> dict[str, Any]:
    """A kernel that is idle for longer than it may be."""
    kernels = app.kernel_manager
    kernel_id = await kernels.start_kernel()
    kernel = kernels.get_kernel(kernel_id)
    kernel.execution_state = "idle"
    kernels.cull_idle_timeout = 1
    kernel.last_activity = kernel.last_activity.replace(year=2000)
    await kernels.cull_kernels()
    exit_ = ownership.current().kernel(kernel_id).last_exit
    return {"listed": kernel_id in kernels, "cause": exit_.cause if exit_ else None}


async def failing(app: ServerApp, *names: str) -> list[list[int]]:
    """Starts that fail; the ports that are still promised after each, and the managers kept."""
    promised = LocalPortCache.instance().currently_used_ports
    left = []
    for name in names:
        try:
            await app.kernel_manager.start_kernel(kernel_name=name)
        except OSError:
            pass
        else:
            raise AssertionError(f"{name} has started")
        managers = await managers_left()
        left.append([len(promised), managers])
    return left


async def managers_left() -> int:
    """Of kernels that are not listed any more."""
    # What is done in a next turn of the loop may hold an error, or a manager.
    await asyncio.sleep(0.1)
    gc.collect()
    return sum(type(one) is OwnedServerKernelManager for one in gc.get_objects())


async def ended(app: ServerApp) -> list[Any]:
    """Kernels that end, restarted before, crashed or as they are; the managers left of them."""
    kernels = app.kernel_manager
    left: list[Any] = []
    for way in ("shutdown", "restart", "crash"):
        kernel_id = await kernels.start_kernel()
        if way == "restart":
            await kernels.restart_kernel(kernel_id)
        elif way == "crash":
            os.kill(kernels.get_kernel(kernel_id).provisioner.process.pid, signal.SIGKILL)
            while ownership.current().kernel(kernel_id).record.generation == 1:
                await asyncio.sleep(0.02)
        await kernels.shutdown_kernel(kernel_id)
        left.append([ownership.current().kernel(kernel_id).state.value, await managers_left()])
    return left


async def adjustment(app: ServerApp) -> list[int]:
    """How the system is told to choose, of the server and of a kernel."""
    kernel_id = await app.kernel_manager.start_kernel()
    pid = app.kernel_manager.get_kernel(kernel_id).provisioner.process.pid
    scores = []
    for number in (os.getpid(), pid):
        with open(f"/proc/{number}/oom_score_adj") as stream:
            scores.append(int(stream.read()))
    await app.kernel_manager.shutdown_kernel(kernel_id)
    return scores


async def clock_jumps(app: ServerApp, page: str, *jumps: str) -> dict[str, Any]:
    """Kernels of a server whose wall clock is set while it runs; see tests/server/test_clock.py."""
    kernels = app.kernel_manager
    pool = ownership.current().warm

    async def started() -> str:
        kernel_id: str = await kernels.start_kernel()
        client = kernels.get_kernel(kernel_id).client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        client.stop_channels()
        return kernel_id

    def record(kernel_id: str) -> Any:
        return ownership.current().kernel(kernel_id).record

    oldest = await started()
    await settled()
    found = []
    for jump in jumps:
        with open(page, "r+b") as stream:
            stream.write(int(jump).to_bytes(8, sys.byteorder, signed=True))
        standing = standing_by()
        one, other = await started(), await started()
        modes = [record(kernel_id).launch_mode for kernel_id in (one, other)]
        claimed = record(one).process.pid in standing
        await kernels.restart_kernel(one)
        generation = record(other).generation
        os.kill(record(other).process.pid, signal.SIGKILL)
        while record(other).generation == generation or record(other).running_at is None:
            await asyncio.sleep(0.02)
        cause = ownership.current().kernel(other).last_exit
        for kernel_id in (one, other):
            await kernels.shutdown_kernel(kernel_id)
        await settled()
        report = doctor.scan()
        found.append(
            {
                "modes": modes,
                "claimed": claimed,
                "cause": cause.cause if cause else None,
                "at": record(oldest).at - time.time(),
                "alive": await kernels.get_kernel(oldest).is_alive(),
                "findings": [finding.kind.value for finding in report.findings],
                "spawners": [(entry["state"], entry["failures"]) for entry in pool.to_json()],
            }
        )
    return {"jumps": found}


def main() -> None:
    app = start_app()
    script = globals()[sys.argv[1]]
    answer = app.io_loop.run_sync(lambda: script(app, *sys.argv[2:]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
