"""What a server does when it starts: it answers first, then looks after what was left."""

from __future__ import annotations

import os
import signal

from rest_server import RestServer
from support import census
from support.workspace import Workspace

# A recovery that waits until the test has seen that the server answers.
SLOW_RECOVERY = """
import os, time
from jupyter_ownedkernels import recovery
recover = recovery.recover

def slowly(*args, **kwargs):
    while not os.path.exists({flag!r}):
        time.sleep(0.02)
    return recover(*args, **kwargs)

recovery.recover = slowly
"""


def dead_server_with_a_living_kernel(workspace: Workspace) -> tuple[str, census.Proc]:
    """Its keeper was stopped when it died, so that nobody has ended the kernel."""
    with RestServer(workspace) as server:
        kernel_id = server.start_kernel("mini")
        found = server.kernel(kernel_id)
        kernel = census.find(found["pid"])
        os.kill(found["keeper_pid"], signal.SIGSTOP)
        server.kill()
    assert census.runs(kernel)
    return kernel_id, kernel


def test_it_answers_before_it_recovers(private: Workspace) -> None:
    kernel_id, kernel = dead_server_with_a_living_kernel(private)
    flag = private.path / "go-on"
    with RestServer(private, config=SLOW_RECOVERY.format(flag=str(flag))) as server:
        for path in ("health", "kernels", "kernels?scope=user", "strays", "history"):
            server.get(path)
        ours = server.start_kernel("mini")
        assert census.runs(kernel)
        flag.touch()
        recovered = server.event("recovered")
        assert "1 kernel" in recovered["message"]
        assert not census.left_after({kernel}, 5)
        assert not (private.runtime / f"kernel-{kernel_id}.json").exists()
        # Its own kernel is none of a dead server's.
        assert server.kernel(ours)["state"] == "running"
        ended = [
            one
            for one in server.get("history")["entries"]
            if one["kernel_id"] == kernel_id and one["event"] == "ended"
        ]
        assert [one["cause"] for one in ended] == ["owner-died"]


def test_it_may_be_told_to_report_only(private: Workspace) -> None:
    kernel_id, kernel = dead_server_with_a_living_kernel(private)
    with RestServer(private, "--OwnedKernels.recover=report") as server:
        assert server.event("recovered")["message"].startswith("found")
        assert server.event("stray_found")["count"] >= 1
        assert census.runs(kernel)
        findings = server.get("strays")["findings"]
        (stray,) = [one for one in findings if one["kind"] == "stray_kernel"]
        assert stray["kernel_id"] == kernel_id
        (result,) = server.clean(ids=[stray["id"]], dry_run=False)
        # Its keeper, once it is continued, may be faster.
        assert result["outcome"] in ("terminated", "killed", "already-gone"), result
        assert not census.left_after({kernel}, 5)


FAILING_RECOVERY = """
from jupyter_ownedkernels import recovery

def fail(*args, **kwargs):
    raise RuntimeError("planted")

recovery.recover = fail
"""


def test_a_recovery_that_fails_keeps_nobody_from_the_first_scan(private: Workspace) -> None:
    with RestServer(private, config=FAILING_RECOVERY) as server:
        census.wait_until(
            lambda: "jupyter_ownedkernels_strays{" in server.metrics(), 20, "the first scan"
        )
        assert "The start-up recovery failed" in server.log


def test_its_address_is_on_record_without_its_token(private: Workspace) -> None:
    with RestServer(private, base_url="/user/me/") as server, RestServer(private) as other:

        def address() -> str:
            server.start_kernel("mini")
            found = other.get("kernels?scope=user")["kernels"]
            return str(found[0]["owner"]["url"]) if found else ""

        assert census.wait_until(address, 30, "the kernel of the first") == server.url
        assert server.url.endswith("/user/me/")


def test_a_server_that_starts_and_stops_leaves_nothing(private: Workspace) -> None:
    with RestServer(private) as server:
        census.wait_until(lambda: server.get("health")["journal"]["writable"], 10, "the journal")
    assert [path.name for path in private.runtime.glob("ownedkernels/owner-*")] == []
    assert "Traceback" not in server.log
    assert "never retrieved" not in server.log
