"""Waiting for the end of a kernel: as long as it runs, and within bounds once it is to end."""

from __future__ import annotations

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

GONE_WITHIN = 10.0

# The bound for what is being ended is 0.1 s then: less than the time that this is looked at.
BRIEF = """
from jupyter_ownedkernels import ownership, provisioner as provisioners

provisioners._REPORT_MARGIN = -1.0
"""
WAIT = """
def states():
    return [kernel.state.value for kernel in ownership.current().kernels()]

async def run():
    ours = managers["awaited"].provisioner
    if loaded:
        info = await ours.get_provisioner_info()
        ours = provisioners.OwnedProvisioner(
            kernel_id=ours.kernel_id, kernel_spec=ours.kernel_spec, parent=ours.parent
        )
        await ours.load_provisioner_info(info)
    kind, before = type(ours.process).__name__, states()
    waiting = asyncio.ensure_future(ours.wait())
    done, _ = await asyncio.wait({waiting}, timeout=0.7)
    found = [kind, not done, await ours.poll(), states() == before]
    os.kill(ours.process.pid, 9)
    return [*found, await asyncio.wait_for(waiting, 30), ours.process is None]

result = asyncio.run(run())
"""


@pytest.mark.parametrize(
    ("kind", "status"), [("OwnedProcess", -9), ("StockProcess", -9), ("LoadedProcess", 255)]
)
def test_nobody_gives_up_a_kernel_that_runs(
    workspace: Workspace, owner: Owner, kind: str, status: int
) -> None:
    owner.set(terminate_grace=0.1, retire_timeout=0.1)
    owner.run(BRIEF)
    kernel = census.find(
        owner.start("awaited", workspace.mini("awaited"), independent=kind == "StockProcess")["pid"]
    )
    try:
        found = owner.run(WAIT, loaded=kind == "LoadedProcess")
        assert found == [kind, True, None, True, status, True]
        assert not census.left_after([kernel], GONE_WITHIN)
    finally:
        census.end([kernel])


STARTED_AGAIN = """
from jupyter_ownedkernels.provisioning import owned_process

owned_process._LOOK_INTERVAL = 1.0  # to be late

async def run():
    manager = managers["again"]
    waiting = asyncio.ensure_future(manager.provisioner.wait())
    await asyncio.sleep(0)
    await manager.restart_kernel(now=True)
    await asyncio.wait_for(waiting, 30)
    return [await manager.is_alive(), manager.provisioner.process is not None]

new_manager("again", spec, "AsyncKernelManager")
call("again", "start_kernel", independent=True)
result = asyncio.run(run())
"""


def test_whoever_waited_takes_no_handle_on_the_next_kernel(
    workspace: Workspace, owner: Owner
) -> None:
    assert owner.run(STARTED_AGAIN, spec=workspace.mini("again")) == [True, True]
    owner.shut_down("again", now=True)
