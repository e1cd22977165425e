"""What a server tells by events and metrics of what happens to its kernels."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
import yaml
from jupyter_events import EventLogger
from prometheus_client.parser import text_string_to_metric_families
from rest_server import RestServer
from support import census
from support.workspace import Workspace

from jupyter_ownedkernels.telemetry import telemetry

DETACHED = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(server: RestServer) -> Samples:
    """Our metrics: name and labels to value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(server.metrics())
        for sample in family.samples
        if sample.name.startswith("jupyter_ownedkernels_")
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((f"jupyter_ownedkernels_{name}", tuple(sorted(labels.items()))), 0.0)


def test_a_kernel_that_is_started_and_shut_down(server: RestServer) -> None:
    before = samples(server)
    kernel_id = server.start_kernel("mini")
    launched = server.event("launched", kernel_id=kernel_id)
    shown = server.kernel(kernel_id)
    assert launched["pid"] == shown["pid"]
    assert launched["launch_id"] == shown["launch_id"]
    assert launched["generation"] == 1
    assert "mini" in launched["message"]
    during = samples(server)
    mode = shown["launch_mode"]
    assert value(during, "kernels", state="running") == 1 + value(
        before, "kernels", state="running"
    )
    started = value(during, "launches_total", mode=mode, result="ok")
    assert started == 1 + value(before, "launches_total", mode=mode, result="ok")
    timed = value(during, "launch_duration_seconds_count", mode=mode)
    assert timed == 1 + value(before, "launch_duration_seconds_count", mode=mode)
    census.wait_until(
        lambda: value(samples(server), "processes") >= 1, 10, "the number of processes"
    )
    server.end_kernel(kernel_id)
    ended = server.event("ended", kernel_id=kernel_id)
    assert ended["exit"]["cause"] == "shutdown"
    assert ended["message"] == ended["exit"]["summary"]
    after = samples(server)
    assert value(after, "exits_total", cause="shutdown") == 1 + value(
        before, "exits_total", cause="shutdown"
    )
    assert value(after, "kernels", state="running") == value(before, "kernels", state="running")
    assert value(after, "journal_write_errors_total") == 0


def test_a_crash_and_the_new_start(server: RestServer, kernel: str) -> None:
    before = samples(server)
    os.kill(server.kernel(kernel)["pid"], signal.SIGKILL)
    ended = server.event("ended", kernel_id=kernel, generation=1)
    assert (ended["exit"]["cause"], ended["exit"]["signal"]) == ("killed", "SIGKILL")
    assert server.event("launched", kernel_id=kernel, generation=2)["pid"] != ended["pid"]
    assert value(samples(server), "exits_total", cause="killed") == 1 + value(
        before, "exits_total", cause="killed"
    )


def test_a_keeper_that_dies(server: RestServer, kernel: str) -> None:
    os.kill(server.kernel(kernel)["keeper_pid"], signal.SIGKILL)
    server.event("keeper_lost", kernel_id=kernel)
    ended = server.event("ended", kernel_id=kernel, generation=1)
    assert ended["exit"]["cause"] == "keeper-died"


def test_a_launch_that_fails(server: RestServer, workspace: Workspace) -> None:
    workspace.spec("missing", ["/no/such/program", "{connection_file}"])
    before = samples(server)
    answer = server.ask("POST", "/api/kernels", {"name": "missing"})
    assert answer.status >= 400
    failed = sum(
        count - before.get(sample, 0)
        for sample, count in samples(server).items()
        if sample[0].endswith("launches_total") and ("result", "failed") in sample[1]
    )
    assert failed == 1


def test_a_launch_that_is_made_in_another_way(servers: Callable[..., RestServer]) -> None:
    """Nobody needs to be woken for it: the kernel has started."""
    server = servers("--OwnedKernels.launch_timeout=0.3", "--OwnedKernels.warm=off")
    first = server.start_kernel("mini")
    (spawner,) = server.get("health")["spawners"]
    os.kill(spawner["pid"], signal.SIGSTOP)
    try:
        second = server.start_kernel("mini")
    finally:
        os.kill(spawner["pid"], signal.SIGCONT)
    assert server.kernel(second)["launch_mode"] == "stock"
    found = samples(server)
    assert value(found, "launches_total", mode="exec", result="fallback") == 1
    assert value(found, "launches_total", mode="stock", result="ok") == 1
    assert not any(("result", "failed") in labels for _, labels in found)
    for kernel_id in (first, second):
        server.end_kernel(kernel_id)


def test_detached_processes_and_a_clean(private: Workspace) -> None:
    with RestServer(private) as server:
        kernel_id = server.start_kernel("python3")
        server.run(kernel_id, DETACHED)
        server.end_kernel(kernel_id)
        assert server.event("left_detached", kernel_id=kernel_id)["count"] == 1
        findings = server.get("strays?refresh=1")["findings"]
        # Orphans of others that run on this machine are only shown.
        (finding,) = [one for one in findings if one["kind"] != "unknown"]
        found = samples(server)
        assert value(found, "strays", kind="detached") == 1
        assert value(found, "strays", kind="stray_kernel") == 0
        assert value(found, "scan_duration_seconds_count") >= 1
        # Left on purpose: no stray.
        assert not server.events("stray_found")
        server.clean(ids=[finding["id"]])
        assert not server.events("cleaned")
        (result,) = server.clean(ids=[finding["id"]], dry_run=False)
        assert server.event("cleaned")["count"] == 1
        name = "cleaned_total"
        assert value(samples(server), name, kind="detached", outcome=result["outcome"]) == 1


def test_a_stray_is_told_of_once(private: Workspace) -> None:
    def leave(name: str) -> None:
        path = private.runtime / name
        path.write_text("")
        os.utime(path, (1_000_000_000, 1_000_000_000))

    leave("kernel-one.json")
    with RestServer(private) as server:
        first = server.event("stray_found")
        assert (first["count"], first["message"]) == (1, "found: 1 stale file")
        server.get("strays?refresh=1")
        leave("kernel-two.json")
        server.get("strays?refresh=1")
        told = census.wait_until(
            lambda: len(server.events("stray_found")) == 2 and server.events("stray_found"),
            10,
            "the second",
        )
        assert told[1]["count"] == 1


@contextlib.contextmanager
def subscribed(server: RestServer) -> Iterator[Callable[[], dict[str, Any]]]:
    """As the panel listens: the next event of ours."""
    url = f"ws://127.0.0.1:{server.port}/api/events/subscribe"
    connection = websocket.create_connection(
        url, header=[f"Authorization: token {server.token}"], timeout=30
    )

    def following() -> dict[str, Any]:
        while True:
            event: dict[str, Any] = json.loads(connection.recv())
            if event["schema_id"] == telemetry.SCHEMA_ID:
                return event

    try:
        yield following
    finally:
        connection.close()


def test_browsers_are_told(server: RestServer) -> None:
    with subscribed(server) as following:
        kernel_id = server.start_kernel("mini")
        event = following()
        assert (event["action"], event["kernel_id"]) == ("launched", kernel_id)
        server.end_kernel(kernel_id)
        event = following()
        assert (event["action"], event["kernel_id"]) == ("ended", kernel_id)


def test_no_metric_has_a_kernel_in_its_labels(server: RestServer, kernel: str) -> None:
    allowed = {"state", "kind", "mode", "result", "cause", "outcome", "le"}
    found = samples(server)
    assert found
    for name, labels in found:
        assert {label for label, _ in labels} <= allowed, name
    assert not any(kernel in text for _, labels in found for _, text in labels)


def test_the_schema_takes_no_other_fields() -> None:
    """So that a mistyped field fails in a test, and is not lost in silence."""
    schema = yaml.safe_load(Path(telemetry.SCHEMA).read_text(encoding="utf-8"))
    assert schema["$id"] == telemetry.SCHEMA_ID
    assert schema["additionalProperties"] is False
    assert schema["properties"]["exit"]["additionalProperties"] is False
    # Without somebody who listens nothing is checked.
    logger = EventLogger()
    logger.register_event_schema(telemetry.SCHEMA)

    async def listener(logger: Any, schema_id: str, data: Any) -> None: ...

    logger.add_listener(schema_id=telemetry.SCHEMA_ID, listener=listener)
    with pytest.raises(Exception, match="kernelid"):
        logger.emit(
            schema_id=telemetry.SCHEMA_ID,
            data={"action": "ended", "message": "", "kernelid": "x"},
        )
