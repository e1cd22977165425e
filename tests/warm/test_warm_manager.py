"""Warm starts as a kernel manager sees them: ports, restarts, records, fallbacks."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from support import census
from traitlets.config import Config
from warm_kernels import until

from jupyter_ownedkernels import ownership
from jupyter_ownedkernels.config import OwnedKernels
from jupyter_ownedkernels.doctor.examination import default_scope, scan
from jupyter_ownedkernels.models import State
from jupyter_ownedkernels.ownership import Ownership
from jupyter_ownedkernels.runtime import procfs, wire
from jupyter_ownedkernels.settings import Settings
from jupyter_ownedkernels.takeover.manager_class import Mode
from jupyter_ownedkernels.views.health import health_json

PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ownership]:
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "owned-provisioner")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    ownership.close_current()
    settings = Settings(runtime_dir=str(tmp_path / "runtime"), warm=True, standby=1)
    made = ownership.current(lambda: settings)
    yield made
    ownership.close_current()


@asynccontextmanager
async def kernel(**kwargs: Any) -> AsyncIterator[AsyncKernelManager]:
    manager = AsyncKernelManager()
    await manager.start_kernel(stdout=-3, stderr=-3, **kwargs)
    try:
        yield manager
    finally:
        await manager.shutdown_kernel(now=True)


async def answer(manager: AsyncKernelManager, code: str) -> str:
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        printed: list[str] = []
        reply = await client.execute_interactive(
            code, timeout=60, output_hook=lambda m: printed.append(m["content"].get("text", ""))
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(printed)
    finally:
        client.stop_channels()


def mode(owner: Ownership, manager: AsyncKernelManager) -> str:
    return str(owner.kernel(manager.kernel_id).record.launch_mode)


async def eventually(condition: Callable[[], Any], what: str) -> Any:
    return await asyncio.to_thread(until, condition, what)


async def warmed(owner: Ownership) -> None:
    """A first kernel by exec; then the template is ready, and one kernel stands by."""
    async with kernel() as manager:
        assert mode(owner, manager) == "exec"
    await eventually(lambda: owner.warm.to_json()[0]["standby"], "a standby kernel")


def play(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scene())  # type: ignore[arg-type]


def test_one_stands_by_in_a_server_and_none_in_a_program_that_starts_one_kernel() -> None:
    assert OwnedKernels().settings().standby == 0
    kernel_manager = AsyncKernelManager()
    assert OwnedKernels(parent=kernel_manager).settings().standby == 0
    server = ServerApp()
    assert OwnedKernels(parent=server).settings().standby == 1
    below = AsyncKernelManager(parent=AsyncMappingKernelManager(parent=server))
    assert OwnedKernels(parent=below).settings().standby == 1
    given = Config({"OwnedKernels": {"standby": 3}})
    assert OwnedKernels(config=given).settings().standby == 3


@pytest.mark.parametrize("folder", [".", sys.prefix], ids=["here", "around the interpreter"])
def test_a_start_claims_the_kernel_that_stands_by(
    owner: Ownership, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    async def scene() -> None:
        await warmed(owner)
        (standby,) = owner.warm.standby.pids()
        listed = {k.record.process.pid for k in owner.kernels() if k.record.process is not None}
        assert standby not in listed
        async with kernel() as manager:
            assert manager.provisioner is not None
            assert manager.provisioner.pid == standby
            assert mode(owner, manager) == "fork"
            assert await answer(manager, "print(1 + 1)") == "2\n"
            found = owner.kernel(manager.kernel_id)
            await eventually(lambda: found.record.kernel, "the keeper's word on the kernel")
            assert found.record.kernel == found.record.process

    play(scene)


def test_the_one_that_stands_by_is_in_the_health_and_no_stray(owner: Ownership) -> None:
    mode = Mode("full", "every kernel is watched and on record")

    def standby() -> dict[str, Any]:
        return dict(health_json(mode, owner)["standby"])

    assert standby() == {"wanted": 1, "pids": [], "rss_bytes": 0, "reason": None}
    asyncio.run(warmed(owner))
    (pid,) = owner.warm.standby.pids()
    assert standby()["pids"] == [pid]
    assert standby()["rss_bytes"] > 10 << 20
    folder = owner.settings.runtime_dir
    assert folder is not None
    report = scan(default_scope(runtime_dir=folder, journal_dir=None, stale_file_age=0))
    entry = procfs.stat(pid)
    assert entry is not None
    assert not {pid, entry.ppid} & {finding.pid for finding in report.findings}
    # The system ends it before any kernel of the user, and before the server.
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"


def test_warm_starts_that_are_not_there_yet_are_not_said_to_be(owner: Ownership) -> None:
    mode = Mode("full", "")

    def why() -> str:
        return str(health_json(mode, owner)["layers"]["warm"]["why"])

    assert "no kernel" in why()
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "x"]
    owner.warm.prepare(argv, os.environ, "x")
    assert "being made ready" in why()
    until(lambda: owner.warm.to_json()[0]["state"] == "ready", "a template")
    assert "forked from an interpreter that is ready" in why()


def test_a_restart_keeps_the_ports_and_is_forked(owner: Ownership) -> None:
    async def scene() -> None:
        await warmed(owner)
        async with kernel() as manager:
            before = [getattr(manager, name) for name in PORTS]
            await answer(manager, "x = 1")
            await manager.restart_kernel(now=True)
            assert [getattr(manager, name) for name in PORTS] == before
            assert mode(owner, manager) == "fork"
            assert await answer(manager, "print('x' in globals())") == "False\n"
            assert owner.kernel(manager.kernel_id).record.generation == 2

    play(scene)


def test_a_crash_of_a_claimed_kernel_has_its_reason(owner: Ownership) -> None:
    async def scene() -> None:
        await warmed(owner)
        async with kernel() as manager:
            await answer(manager, "1")
            assert manager.provisioner is not None
            os.kill(manager.provisioner.pid, signal.SIGKILL)
            found = owner.kernel(manager.kernel_id)
            await eventually(lambda: found.record.exit, "an exit on record")
            assert found.record.exit is not None
            assert found.record.exit.signal == "SIGKILL"
            assert not await manager.is_alive()

    play(scene)


def test_one_that_fails_at_the_claim_is_replaced_by_another_start(
    owner: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        await warmed(owner)
        (standby,) = owner.warm.standby.pids()
        ports = {one.ports["shell_port"] for one in owner.warm.standby._ready}
        reserve = owner.warm.reserve

        def reserve_and_stop(*args: Any) -> dict[str, int] | None:
            found = reserve(*args)
            os.kill(standby, signal.SIGSTOP)
            return found

        monkeypatch.setattr(owner.warm, "reserve", reserve_and_stop)
        async with kernel() as manager:
            assert manager.shell_port not in ports
            assert mode(owner, manager) in ("fork", "exec")
            assert owner.kernel(manager.kernel_id).unwatched_reason is None
            assert await answer(manager, "print(1 + 1)") == "2\n"
        await eventually(lambda: not os.path.exists(f"/proc/{standby}"), "its end")

    play(scene)


def test_given_ports_and_another_address_are_respected(owner: Ownership) -> None:
    async def scene() -> None:
        await warmed(owner)
        manager = AsyncKernelManager(ip="0.0.0.0")
        await manager.start_kernel(stdout=-3, stderr=-3)
        try:
            assert mode(owner, manager) == "fork"
            assert await answer(manager, "print(1 + 1)") == "2\n"
        finally:
            await manager.shutdown_kernel(now=True)
        assert owner.warm.standby.pids()

    play(scene)


def test_the_kernels_environment_can_be_given(owner: Ownership) -> None:
    async def scene() -> None:
        await warmed(owner)
        async with kernel(env={**os.environ, "MINE": "1"}, cwd="/") as manager:
            code = "import os; print(os.environ['MINE'], os.getcwd())"
            assert await answer(manager, code) == "1 /\n"
            assert mode(owner, manager) == "fork"

    play(scene)


def test_a_dozen_at_once(owner: Ownership) -> None:
    async def scene() -> None:
        await warmed(owner)

        async def one(number: int) -> str:
            async with kernel() as manager:
                return await answer(manager, f"print({number})")

        found = await asyncio.gather(*(one(number) for number in range(12)))
        assert found == [f"{number}\n" for number in range(12)]

    play(scene)


@asynccontextmanager
async def waiting(
    owner: Ownership, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[int, list[asyncio.Task[None]]]]:
    """Many starts that wait for a warm spawner which has been stopped; its number, and they."""
    monkeypatch.setattr(owner.warm, "reserve", lambda *_: None)
    monkeypatch.setattr(owner.warm.standby, "count", 0)
    async with kernel() as first:
        assert mode(owner, first) == "exec"
    await eventually(lambda: owner.warm.to_json()[0]["state"] == "ready", "a template")
    template = owner.warm.to_json()[0]["pid"]
    os.kill(template, signal.SIGSTOP)
    try:
        starts = [asyncio.ensure_future(AsyncKernelManager().start_kernel()) for _ in range(10)]
        with ThreadPoolExecutor(1) as threads:
            await asyncio.get_running_loop().run_in_executor(
                threads, until, lambda: owner.warm._unanswered > 1, "starts that wait"
            )
        yield template, starts
    finally:
        os.kill(template, signal.SIGCONT)


def test_starts_that_wait_leave_the_threads_of_others_alone(
    owner: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with waiting(owner, monkeypatch) as (_, starts):
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 3) == "done"
            for start in starts:
                start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)

    play(scene)


def test_starts_that_are_given_up_take_no_turn_and_cost_no_template(
    owner: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with waiting(owner, monkeypatch) as (template, starts):
            for start in starts:
                start.cancel()
            ended = await asyncio.gather(*starts, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            # The threads do not wait for an answer that nobody wants: five seconds and more.
            await asyncio.to_thread(until, lambda: not owner.warm._unanswered, "their end", 4)
        async with kernel() as manager:
            assert mode(owner, manager) == "fork"
            assert await answer(manager, "print(1 + 1)") == "2\n"
        (spawner,) = owner.warm.to_json()
        assert (spawner["pid"], spawner["failures"], spawner["state"]) == (template, 0, "ready")
        await eventually(lambda: not census.children(template), "keepers that leave")
        assert all(one.state is State.ENDED for one in owner.kernels())
        assert not list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("kernel-*.json"))

    play(scene)


def test_a_process_without_descriptors_does_not_blame_the_template(
    owner: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scene() -> None:
        await warmed(owner)
        monkeypatch.setattr(owner.warm, "reserve", lambda *_: None)
        pair = wire.pair
        monkeypatch.setattr(wire, "pair", lambda: none_left() or pair())
        with pytest.raises(OSError, match="Too many open files"):
            await AsyncKernelManager().start_kernel()
        monkeypatch.setattr(wire, "pair", pair)
        assert [one["failures"] for one in owner.warm.to_json()] == [0]
        assert [one["state"] for one in owner.warm.to_json()] == ["ready"]

    play(scene)
