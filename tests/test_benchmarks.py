"""The benchmarks come to an end, and leave nothing, where the stock stack does not."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from support import census
from support.elsewhere import ROOT

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc"),
]

BENCHMARKS = ROOT / "benchmarks"
PROGRAM = """
import asyncio, sys
from _servers import serving, started

async def main(server):
    async with started(server, {}) as kernel:
        await kernel.run("1")
        print(server.process.pid, server.folder, flush=True)
        await asyncio.sleep(600)

with serving(False) as server:
    asyncio.run(main(server))
"""


@pytest.fixture
def warm_starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    if not BENCHMARKS.is_dir():
        pytest.skip("only in the source tree")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("_common", "_servers", "warm_starts")
    yield importlib.import_module("warm_starts")
    for name in names:
        sys.modules.pop(name, None)


class Kernel:
    """Answers, says nothing for ever, or raises; ``ways`` is taken in turn."""

    ways: ClassVar[list[str]] = []

    async def run(self, code: str) -> None:
        way = Kernel.ways.pop(0)
        if way == "silent":
            await asyncio.Event().wait()
        if way == "failing":
            raise RuntimeError("the cell fails")


@pytest.fixture
def stack(warm_starts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark with kernels of :class:`Kernel` instead of servers."""

    server = SimpleNamespace(process=SimpleNamespace(pid=0), wait_until_warm=lambda standby: None)

    @contextlib.contextmanager
    def serving(owned: bool) -> Iterator[SimpleNamespace]:
        yield server

    @contextlib.asynccontextmanager
    async def started(server: Any, times: dict[str, float]) -> AsyncIterator[Kernel]:
        yield Kernel()

    monkeypatch.setattr(warm_starts, "serving", serving)
    monkeypatch.setattr(warm_starts, "started", started)
    monkeypatch.setattr(warm_starts, "private_memory", lambda root: 1.0)
    monkeypatch.setattr(warm_starts, "SILENCE", 0.2)
    return warm_starts


def test_a_kernel_that_never_answers_ends_the_wait(stack: ModuleType) -> None:
    Kernel.ways = ["good", "silent", "good"]
    with pytest.raises(stack.NeverAnswered, match="1 of 3 kernels never answered"):
        asyncio.run(stack.at_once(SimpleNamespace(), 3))


def test_a_start_that_fails_is_no_silence(stack: ModuleType) -> None:
    Kernel.ways = ["silent", "failing"]
    with pytest.raises(RuntimeError, match="the cell fails"):
        asyncio.run(stack.at_once(SimpleNamespace(), 2))


def test_the_stock_stack_is_measured_again(
    stack: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    Kernel.ways = ["good", "silent", "good"] + ["good"] * 6
    names = [row[0] for row in stack.many(2)]
    assert names == [
        "2 kernels at once, by a server to the first cell, s",
        "MB of its own per kernel",
    ]
    said = capsys.readouterr().err
    assert said == "stock stack: 1 of 2 kernels never answered\n"
    assert Kernel.ways == []


def test_but_not_for_ever(stack: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    Kernel.ways = ["good", "silent"] * stack.ATTEMPTS + ["good"] * 2
    assert stack.many(1) == []
    assert capsys.readouterr().err.count("never answered") == stack.ATTEMPTS
    assert Kernel.ways == []


def test_silence_of_ours_is_an_error(stack: ModuleType) -> None:
    Kernel.ways = ["good"] * 2 + ["good", "silent"]
    with pytest.raises(stack.NeverAnswered):
        stack.many(1)


def test_a_server_that_does_not_end_is_killed_with_its_kernels(
    warm_starts: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = importlib.import_module("_servers")
    previous = signal.getsignal(signal.SIGTERM)

    below: set[census.Proc] = set()

    async def stop_with_a_kernel(server: Any) -> None:
        async with servers.started(server, {}) as kernel:
            await kernel.run("1")
            below.update(census.below(server.process.pid))
            server.process.send_signal(signal.SIGSTOP)
            # Else they would see that their parent is gone, and end by themselves.
            for one in below:
                os.kill(one.pid, signal.SIGSTOP)
            monkeypatch.setattr(servers, "ENDING", 0.2)
            server.close()

    try:
        with servers.serving(False) as server, contextlib.suppress(OSError):
            asyncio.run(stop_with_a_kernel(server))
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert below
    assert server.process.returncode == -signal.SIGKILL
    left = census.left_after(below, 5)
    census.end(left)
    assert left == set()


def test_a_benchmark_that_is_told_to_end_takes_its_server_along(
    warm_starts: ModuleType, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=BENCHMARKS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as benchmark:
        assert benchmark.stdout is not None
        assert benchmark.stderr is not None
        number, folder = benchmark.stdout.readline().split()
        server = census.find(int(number))
        below = census.below(server.pid)
        assert below
        benchmark.terminate()
        assert benchmark.wait(60) == -signal.SIGTERM
        assert benchmark.stderr.read() == ""
    left = census.left_after({server, *below}, 5)
    census.end(left)
    assert left == set()
    assert not Path(folder).exists()
