"""Kernels of other provisioners: listed and on record, never touched."""

from __future__ import annotations

import json
import os
import signal

import pytest
from rest_server import RestServer
from support import census
from support.workspace import Workspace

from jupyter_ownedkernels.other_kernels import without_secrets

# Its kernels run "elsewhere": nothing of them has the connection file on its command line.
# It notes each signal that anybody asks it to send.
MODULE = """
import os, subprocess
from jupyter_client.provisioning import LocalProvisioner

class ClusterProvisioner(LocalProvisioner):
    async def launch_kernel(self, cmd, **kwargs):
        return await super().launch_kernel(["sleep", "1000"], **kwargs)

    async def get_provisioner_info(self):
        info = await super().get_provisioner_info()
        info.update(
            job_id="job-4711",
            queue={"name": "long", "hosts": ["node-1", "node-2"]},
            api_token="PLANTED-token",
            env={"PASSWORD": "PLANTED-environment"},
            note="the key is " + info["connection_info"]["key"].decode(),
        )
        return info

    def _note(self, what):
        with open(os.environ["CLUSTER_NOTES"], "a") as notes:
            print(what, file=notes)

    async def send_signal(self, signum):
        self._note(f"signal {signum}")
        await super().send_signal(signum)

    async def kill(self, restart=False):
        self._note("kill")
        await super().kill(restart)

    async def terminate(self, restart=False):
        self._note("terminate")
        await super().terminate(restart)
"""


class Cluster:
    """The provisioner as an installed distribution, and a kernelspec that names it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        site = workspace.path / "site"
        info = site / "cluster_provisioner-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "cluster_provisioner.py").write_text(MODULE)
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: cluster_provisioner\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(
            "[jupyter_client.kernel_provisioners]\n"
            "cluster-provisioner = cluster_provisioner:ClusterProvisioner\n"
        )
        self.notes = workspace.path / "cluster-notes"
        self.notes.touch()
        self.env = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
            "CLUSTER_NOTES": str(self.notes),
        }
        workspace.spec(
            "cluster",
            ["unused", "{connection_file}"],
            metadata={"kernel_provisioner": {"provisioner_name": "cluster-provisioner"}},
        )

    def serve(self, config: str = "") -> RestServer:
        return RestServer(self.workspace, config=config, **self.env)

    def sleeper(self, server: RestServer) -> census.Proc:
        (found,) = census.children(server.pid, "sleep")
        return found

    def journals(self) -> str:
        folder = self.workspace.runtime / "ownedkernels"
        return "".join(path.read_text() for path in folder.glob("*.jsonl"))


@pytest.fixture
def cluster(private: Workspace) -> Cluster:
    return Cluster(private)


def listed(server: RestServer, kernel_id: str, generation: int = 1) -> dict[str, object]:
    def look() -> dict[str, object] | None:
        found = server.get("kernels")["kernels"]
        return next(
            (
                one
                for one in found
                if one["kernel_id"] == kernel_id
                and one["generation"] == generation
                and one["state"] != "launching"
            ),
            None,
        )

    shown = census.wait_until(look, 10, "the kernel in the list")
    assert shown
    return shown


def test_it_is_listed_and_on_record(cluster: Cluster) -> None:
    with cluster.serve() as server:
        kernel_id = server.start_kernel("cluster", "remote.ipynb")
        shown = listed(server, kernel_id)
        assert shown["launch_mode"] == "other"
        assert shown["state"] == "running"
        assert shown["journaled"] is True
        assert shown["keeper_pid"] is None
        # Whatever number its provisioner gives, it is not of a process that we know.
        assert shown["pid"] is None
        assert shown["rss_bytes"] is None
        assert shown["session"] == {
            "path": "remote.ipynb",
            "name": "remote.ipynb",
            "type": "notebook",
        }
        info = shown["provisioner"]
        assert isinstance(info, dict)
        assert info["provisioner_name"] == "cluster-provisioner"
        assert info["job_id"] == "job-4711"
        assert info["queue"] == {"name": "long", "hosts": ["node-1", "node-2"]}
        assert server.kernel(kernel_id)["processes"] == []
        launched = server.event("launched", kernel_id=kernel_id)
        assert "pid" not in launched
        assert '"job_id":"job-4711"' in cluster.journals()
        key = server.connection(kernel_id)["key"]

        server.end_kernel(kernel_id)
        assert server.event("ended", kernel_id=kernel_id)["exit"]["cause"] == "shutdown"
        assert server.get("kernels")["kernels"] == []
        (entry,) = server.get("history")["entries"]
        assert (entry["kernel_id"], entry["cause"]) == (kernel_id, "shutdown")
        told = cluster.journals() + server.log + server.events_path.read_text()
        told += "".join(map(repr, server.answers))
    assert "PLANTED" not in told
    assert key not in told


def test_a_restart_is_its_provisioners(cluster: Cluster) -> None:
    with cluster.serve() as server:
        kernel_id = server.start_kernel("cluster")
        listed(server, kernel_id)
        before = cluster.sleeper(server)
        assert server.ask("POST", f"/api/kernels/{kernel_id}/restart").status == 200
        shown = listed(server, kernel_id, generation=2)
        assert (shown["restarts"], shown["launch_mode"]) == (1, "other")
        assert cluster.sleeper(server) != before
        assert server.event("ended", kernel_id=kernel_id)["exit"]["cause"] == "restart"
        server.end_kernel(kernel_id)


def test_one_that_dies_stays_listed_with_its_end(cluster: Cluster) -> None:
    config = "c.KernelRestarter.restart_limit = 1\nc.KernelRestarter.time_to_dead = 0.1\n"
    with cluster.serve(config) as server:
        kernel_id = server.start_kernel("cluster")
        listed(server, kernel_id)

        def dead() -> bool:
            for proc in census.children(server.pid, "sleep"):
                census.end({proc})
            shown = server.kernel(kernel_id)
            return bool(shown["state"] == "ended" and shown["last_exit"]["cause"] == "exited")

        census.wait_until(dead, 60, "the end of the restarts")
        (shown,) = server.get("kernels")["kernels"]
        assert shown["kernel_id"] == kernel_id


def test_it_outlives_its_server_untouched(cluster: Cluster) -> None:
    """Where it runs and when it ends is not our business, whoever dies."""
    with cluster.serve() as server:
        kernel_id = server.start_kernel("cluster")
        listed(server, kernel_id)
        remote = cluster.sleeper(server)
        # A kernel behind a tunnel of another machine: its ports are not here.
        path = cluster.workspace.runtime / f"kernel-{kernel_id}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "ip": "192.0.2.1"}))
        signals = cluster.notes.read_text()
        server.kill()
    try:
        with cluster.serve() as following:
            census.wait_until(
                lambda: following.get("strays?refresh=1")["complete"], 30, "a complete scan"
            )
            report = following.get("strays?refresh=1")
            assert not any(one["pid"] == remote.pid for one in report["findings"])
            ids = [one["id"] for one in report["findings"]]
            if ids:
                following.clean(ids=ids, dry_run=False)
            assert not following.events("recovered", count=1)
        assert census.runs(remote)
        assert path.exists()
        assert cluster.notes.read_text() == signals
    finally:
        os.kill(remote.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("info", "kept"),
    [
        ({"job": 1, "ratio": 0.5, "on": True, "none": None}, ...),
        ({"key": "x", "token": "x", "ssh_private": "x", "PASSWORD": "x", "env": {"A": "x"}}, {}),
        ({"connection_info": {"ip": "x"}}, {}),
        ({"nested": {"auth_header": "x", "host": "h"}}, {"nested": {"host": "h"}}),
        ({"url": "http://h/SECRET", "list": ["SECRET", "a"]}, {"list": ["a"]}),
        ({"bytes": b"x", "object": object(), "nan": float("nan"), "big": 1 << 80}, {}),
        ({1: "x", "text": "y" * 1000}, {"text": "y" * 256}),
        ({"deep": {"er": {"and": {"er": {"still": 1}}}}}, {"deep": {"er": {"and": {}}}}),
    ],
)
def test_what_is_put_on_record_of_a_provisioner(info: dict[str, object], kept: object) -> None:
    assert without_secrets(info, ["SECRET", ""]) == (info if kept is ... else kept)


def test_what_is_put_on_record_is_bounded() -> None:
    info = {f"n{i}": {f"m{j}": ["x" * 1000] * 1000 for j in range(100)} for i in range(100)}
    assert len(json.dumps(without_secrets(info))) < 60_000
    assert without_secrets({"job": 1, **info})["job"] == 1
