"""What a server answers about its kernels, with real kernels."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from rest_server import RestServer
from support import census
from support.workspace import Workspace


def test_health(server: RestServer) -> None:
    # The journal is opened in the background, once the server answers.
    census.wait_until(lambda: server.get("health")["journal"]["writable"], 10, "the journal")
    health = server.get("health")
    assert health["mode"] == "full"
    assert health["owner"]["pid"] == server.pid
    assert health["owner"]["url"] == server.url
    assert all(health["layers"][name]["active"] for name in ("pidfd", "subreaper", "pdeathsig"))
    assert health["journal"]["locked"]
    assert Path(health["journal"]["path"]).is_file()


def test_health_names_the_spawner_that_started_a_kernel(server: RestServer, kernel: str) -> None:
    spawners = server.get("health")["spawners"]
    assert any(one["launches"] > 0 and one["state"] == "ready" for one in spawners)
    keeper = server.kernel(kernel)["keeper_pid"]
    assert psutil.Process(keeper).ppid() in {one["pid"] for one in spawners}


def test_a_kernel_of_a_notebook(server: RestServer) -> None:
    before = time.time()
    kernel_id = server.start_kernel("python3", "folder of mine/Analysis.ipynb")
    with server.client(kernel_id):
        pass
    (found,) = [one for one in server.get("kernels")["kernels"] if one["kernel_id"] == kernel_id]
    assert found["session"]["path"] == "folder of mine/Analysis.ipynb"
    assert found["session"]["type"] == "notebook"
    assert (found["name"], found["display_name"]) == ("python3", "Python 3 (ipykernel)")
    assert found["state"] == "running"
    assert found["journaled"] is True
    assert found["generation"] == 1
    assert found["restarts"] == 0
    assert found["last_exit"] is None
    assert found["owner"]["pid"] == server.pid
    assert found["launch_mode"] in ("exec", "fork")
    assert before - 1 < found["started_at"] < time.time()
    assert 0 < found["uptime_s"] < time.time() - before + 1
    assert Path(found["connection_file"]).samefile(
        server.workspace.runtime / f"kernel-{kernel_id}.json"
    )
    assert psutil.Process(found["pid"]).ppid() == found["keeper_pid"]
    server.end_kernel(kernel_id)
    ids = [one["kernel_id"] for one in server.get("kernels")["kernels"]]
    assert kernel_id not in ids
    # It is still known, with its end.
    ended = server.kernel(kernel_id)
    assert ended["state"] == "ended"
    assert ended["last_exit"]["cause"] == "shutdown"
    assert ended["rss_bytes"] is None
    (entry,) = [one for one in server.get("history")["entries"] if one["kernel_id"] == kernel_id]
    assert entry["cause"] == "shutdown"


def test_the_tree_of_a_kernel(server: RestServer, kernel: str) -> None:
    server.run(
        kernel,
        "import subprocess\n"
        "child = subprocess.Popen(['sh', '-c', 'sleep 300 & wait'])\n"
        "away = subprocess.Popen(['sleep', '301'], start_new_session=True)",
    )

    def sleeps() -> list[list[str]]:
        return [one["cmdline"] for one in server.kernel(kernel)["processes"]]

    census.wait_until(lambda: ["sleep", "300"] in sleeps(), 10, "the child of the child")
    found = server.kernel(kernel)
    by_line = {" ".join(one["cmdline"]): one for one in found["processes"]}
    top = found["processes"][0]
    assert top["pid"] == found["pid"]
    assert (top["depth"], top["detached"], top["ppid"]) == (0, False, found["keeper_pid"])
    shell = by_line["sh -c sleep 300 & wait"]
    assert (shell["depth"], shell["ppid"]) == (1, top["pid"])
    assert (by_line["sleep 300"]["depth"], by_line["sleep 300"]["ppid"]) == (2, shell["pid"])
    assert [one["pid"] for one in found["processes"] if one["detached"]] == [
        by_line["sleep 301"]["pid"]
    ]
    assert found["process_count"] == 4
    assert found["detached_count"] == 1
    assert 0 < found["pss_bytes"] <= found["rss_bytes"]
    (listed,) = [one for one in server.get("kernels")["kernels"] if one["kernel_id"] == kernel]
    assert listed["process_count"] == 4
    assert listed["detached_count"] == 1
    os.kill(by_line["sleep 301"]["pid"], signal.SIGKILL)


def test_processors_and_memory_are_told_as_psutil_tells_them(
    server: RestServer, kernel: str
) -> None:
    with server.client(kernel) as client:
        client.execute("block = bytearray(200_000_000)\nwhile True: pass", silent=True)
        process = psutil.Process(server.kernel(kernel)["pid"])
        census.wait_until(lambda: process.memory_info().rss > 230_000_000, 30, "the memory")

        def spent() -> float:
            times = process.cpu_times()
            return times.user + times.system

        def look() -> tuple[dict[str, Any], tuple[float, float], tuple[float, float]]:
            """What the server tells, and what psutil told just before and after."""
            before = (time.monotonic(), spent())
            (found,) = [
                one for one in server.get("kernels")["kernels"] if one["kernel_id"] == kernel
            ]
            return found, before, (time.monotonic(), spent())

        # The server compares with a look of its own that is a second old or more.
        differences = []
        for _ in range(6):
            _, (at, first), _ = look()
            time.sleep(1.6)
            found, before, (then, last) = look()
            # In between; the server may tell of a moment up to a second ago.
            assert 0.95 * (before[1] - 1) <= found["cpu_s"] <= 1.05 * last
            assert found["rss_bytes"] == pytest.approx(process.memory_info().rss, rel=0.05)
            share = 100 * (last - first) / (then - at)
            differences.append(found["cpu_percent"] / share - 1)
            if abs(differences[-1]) < 0.05:
                break
        # On a machine that is busy with other things, no two looks are taken at one moment.
        assert abs(differences[-1]) < 0.05, differences
        single = server.kernel(kernel)
        pss = process.memory_full_info().pss
    assert single["pss_bytes"] == pytest.approx(pss, rel=0.05)


def test_a_crash_is_shown_with_its_reason(server: RestServer, kernel: str) -> None:
    before = server.kernel(kernel)
    os.kill(before["pid"], signal.SIGKILL)

    def restarted() -> bool:
        now = server.kernel(kernel)
        return bool(now["state"] == "running" and now["generation"] == 2)

    census.wait_until(restarted, 30, "the automatic restart")
    found = server.kernel(kernel)
    assert found["restarts"] == 1
    assert found["launch_id"] != before["launch_id"]
    assert found["last_exit"]["signal"] == "SIGKILL"
    assert found["last_exit"]["cause"] == "killed"
    assert found["last_exit"]["summary"]


def test_a_kernel_that_does_not_come_back_stays_listed_with_its_reason(
    servers: Callable[..., RestServer], workspace: Workspace
) -> None:
    workspace.spec("dies", ["sh", "-c", "exit 3", "{connection_file}"])
    config = (
        "c.OwnedKernels.ready_timeout = 0.0\n"
        "c.KernelRestarter.restart_limit = 1\nc.KernelRestarter.time_to_dead = 0.1\n"
    )
    server = servers(config=config)
    kernel_id = server.start_kernel("dies")

    def given_up() -> list[dict[str, Any]]:
        gone = server.ask("GET", f"/api/kernels/{kernel_id}").status == 404
        found = server.get("kernels")["kernels"]
        return found if gone and [one["state"] for one in found] == ["ended"] else []

    (found,) = census.wait_until(given_up, 60, "the end of the restarts")
    assert found["kernel_id"] == kernel_id
    assert found["state"] == "ended"
    assert found["execution_state"] == "dead"
    assert found["last_exit"]["code"] == 3
    assert "3" in found["last_exit"]["summary"]


def test_kernels_of_all_owners_of_the_user(
    server: RestServer, servers: Callable[..., RestServer], kernel: str
) -> None:
    other = servers()
    theirs = other.start_kernel("mini")
    everybody = {one["kernel_id"]: one for one in server.get("kernels?scope=user")["kernels"]}
    assert {kernel, theirs} <= everybody.keys()
    assert everybody[theirs]["owner"]["pid"] == other.pid
    assert everybody[theirs]["owner"]["url"] == other.url
    assert everybody[theirs]["process_count"] == 1
    assert everybody[theirs]["rss_bytes"] > 0
    assert everybody[theirs]["execution_state"] is None
    assert theirs not in {one["kernel_id"] for one in server.get("kernels")["kernels"]}
    # Of another owner: listed, but no kernel of this server.
    assert server.ask("GET", f"/api/ownedkernels/kernels/{theirs}").code == "unknown_kernel"
    other.kill()

    def forgotten() -> bool:
        found = server.get("kernels?scope=user")["kernels"]
        return theirs not in {one["kernel_id"] for one in found}

    census.wait_until(forgotten, 10, "the other owner's end")


def without_strangers(report: dict[str, Any]) -> dict[str, int]:
    """What was found, but for orphans of others that run on this machine and are only shown."""
    return {kind: number for kind, number in report["counts"].items() if kind != "unknown"}


def test_strays_are_found_and_cleaned(private: Workspace) -> None:
    stale = private.runtime / "kernel-left-by-an-old-server.json"
    ports = {f"{name}_port": 0 for name in ("shell", "iopub", "stdin", "control", "hb")}
    free = {name: 50_001 + number for number, name in enumerate(ports)}
    stale.write_text(json.dumps({**free, "ip": "127.0.0.1", "transport": "tcp", "key": "k"}))
    long_ago = time.time() - 90_000
    os.utime(stale, (long_ago, long_ago))
    with RestServer(private) as server:
        kernel_id = server.start_kernel("python3")
        server.run(
            kernel_id,
            "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)",
        )
        server.end_kernel(kernel_id)
        report = server.get("strays?refresh=1")
        assert report["complete"], report["incomplete_reason"]
        assert without_strangers(report) == {"stale_file": 1, "detached": 1}
        found = {one["kind"]: one for one in report["findings"]}
        detached = found["detached"]
        assert detached["by_default"] is False
        assert detached["cmdline"] == ["sleep", "300"]
        assert detached["kernel_id"] == kernel_id
        assert found["stale_file"]["path"] == str(stale)
        left = census.find(detached["pid"])

        # The default is a dry run.
        (dry,) = server.clean(ids=[detached["id"]])
        assert dry["outcome"] == "kept"
        assert census.runs(left)
        # By kind, only what is meant by it.
        (removed,) = server.clean(kinds=["stale_file"], dry_run=False)
        assert (removed["outcome"], removed["kind"]) == ("removed", "stale_file")
        assert not stale.exists()
        assert census.runs(left)
        (ended,) = server.clean(ids=[detached["id"]], dry_run=False)
        assert ended["outcome"] in ("terminated", "killed")
        assert not census.left_after({left}, 5)
        (again,) = server.clean(ids=[detached["id"]], dry_run=False)
        assert again["outcome"] == "already-gone"
        # Without being asked to look again: what was cleaned is not given out any more.
        assert without_strangers(server.get("strays")) == {}


def test_a_report_is_kept_for_a_while(servers: Callable[..., RestServer]) -> None:
    server = servers("--OwnedKernels.scan_max_age=600")
    first = server.get("strays")
    assert server.get("strays")["scanned_at"] == first["scanned_at"]
    newer = server.get("strays?refresh=1")
    assert newer["scanned_at"] > first["scanned_at"]
    assert server.get("strays")["scanned_at"] == newer["scanned_at"]


def test_history_is_bounded_and_newest_first(server: RestServer) -> None:
    ids = []
    for _ in range(3):
        ids.append(server.start_kernel("mini"))
        server.end_kernel(ids[-1])
    newest = server.get("history?limit=2")["entries"]
    assert [one["kernel_id"] for one in newest] == [ids[2], ids[1]]
    everything = server.get("history?limit=1000")["entries"]
    times = [one["at"] for one in everything]
    assert times == sorted(times, reverse=True)
    assert set(ids) <= {one["kernel_id"] for one in everything}
