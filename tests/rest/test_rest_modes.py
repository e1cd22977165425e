"""Servers that are not taken over, or only partly, say so, and answer what they know."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator

from rest_server import RestServer
from support import census
from support.workspace import Workspace


def test_the_users_own_manager(servers: Callable[..., RestServer]) -> None:
    server = servers(
        "--ServerApp.kernel_manager_class="
        "jupyter_server.services.kernels.kernelmanager.AsyncMappingKernelManager"
    )
    health = server.get("health")
    assert health["mode"] == "provisioner-only"
    assert "AsyncMappingKernelManager" in health["reason"]
    assert health["owner"]["pid"] == server.pid
    kernel_id = server.start_kernel("mini")
    (found,) = server.get("kernels")["kernels"]
    assert (found["kernel_id"], found["state"]) == (kernel_id, "running")
    assert found["keeper_pid"]
    server.end_kernel(kernel_id)
    assert server.event("ended", kernel_id=kernel_id)["exit"]["cause"] == "shutdown"


def test_switched_off(private: Workspace) -> None:
    with RestServer(private, "--OwnedKernels.enabled=False") as server:
        health = server.get("health")
        assert health["mode"] == "inactive"
        assert "enabled" in health["reason"]
        assert health["owner"] is None
        assert health["journal"] is None
        assert health["spawners"] == []
        kernel_id = server.start_kernel("mini", "a.ipynb")
        # What the server's own manager knows is shown, and that nobody watches it.
        (found,) = server.get("kernels")["kernels"]
        assert found["kernel_id"] == kernel_id
        assert (found["state"], found["launch_mode"]) == ("unwatched", "stock")
        assert (found["journaled"], found["launch_id"]) == (False, None)
        assert "enabled" in found["reason"]
        assert found["session"]["path"] == "a.ipynb"
        (process,) = server.kernel(kernel_id)["processes"]
        assert process["pid"] == found["pid"]
        assert census.find(found["pid"])
        # The doctor needs no manager.
        assert server.get("strays?refresh=1")["complete"]
        (result,) = server.clean(ids=["f-0123456789ab"], dry_run=False)
        assert result["outcome"] == "already-gone"
        assert server.get("history")["entries"] == []
        server.end_kernel(kernel_id)
        assert server.get("kernels")["kernels"] == []
        assert "jupyter_ownedkernels_journal_write_errors_total 0.0" in server.metrics()


@contextlib.contextmanager
def counted_connections() -> Iterator[tuple[int, list[int]]]:
    """A port on which nobody answers, and who has knocked."""
    knocked: list[int] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            knocked.append(self.client_address[1])

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield listener.server_address[1], knocked
        finally:
            listener.shutdown()
            thread.join()


def test_where_no_spawner_can_be_started_nothing_is_said_to_be_watched(
    servers: Callable[..., RestServer],
) -> None:
    config = """
import pathlib
import jupyter_ownedkernels.launching.spawners as module
module.START_SCRIPT = pathlib.Path("/no/such/script")
"""
    server = servers(config=config)
    assert server.get("health")["layers"]["spawner"]["active"]
    kernel_id = server.start_kernel("mini")
    found = server.kernel(kernel_id)
    assert (found["state"], found["launch_mode"]) == ("unwatched", "stock")
    health = server.get("health")
    assert health["reason"].startswith("the newest kernel is not watched: ")
    assert health["layers"]["spawner"] == {"active": False, "why": found["reason"]}
    server.end_kernel(kernel_id)


def test_behind_a_gateway(private: Workspace) -> None:
    with (
        counted_connections() as (port, knocked),
        RestServer(private, f"--gateway-url=http://127.0.0.1:{port}") as server,
    ):
        before = len(knocked)
        health = server.get("health")
        assert health["mode"] == "inactive"
        assert "Gateway" in health["reason"]
        assert server.get("kernels")["kernels"] == []
        assert server.get("kernels?scope=user")["kernels"] == []
        assert server.get("strays")["complete"]
        assert server.ask("GET", "/api/ownedkernels/kernels/none").code == "unknown_kernel"
        # A panel that polls must not make requests to the Gateway.
        assert len(knocked) == before
        assert server.ask("GET", "/api/kernels").status >= 400
        assert len(knocked) > before


def test_kernels_that_the_manager_started_behind_our_back(
    servers: Callable[..., RestServer],
) -> None:
    """A launch that no spawner can make runs unwatched, and the reason is shown."""
    config = """
import jupyter_ownedkernels.provisioning.options as module
module.obstacle = lambda kwargs: "the test says so"
"""
    server = servers(config=config)
    kernel_id = server.start_kernel("mini")
    found = server.kernel(kernel_id)
    assert (found["state"], found["launch_mode"]) == ("unwatched", "stock")
    assert found["reason"] == "the test says so"
    assert found["keeper_pid"] is None
    assert [one["pid"] for one in found["processes"]] == [found["pid"]]
    assert found["process_count"] == 1
    server.end_kernel(kernel_id)
