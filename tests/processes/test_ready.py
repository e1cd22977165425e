"""A start returns when the kernel accepts connections, and never waits for nothing."""

from __future__ import annotations

import socket
import time

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

PORTS = "result = [[managers['ready'].ip, port] for port in managers['ready'].ports]"


@pytest.mark.parametrize("delay", ["0", "0.7"])
def test_ports_accept_connections(workspace: Workspace, owner: Owner, delay: str) -> None:
    argv = workspace.mini_argv("ready", "idle", "--bind-after", delay)
    owner.start("ready", workspace.spec("ready", argv))
    ports = owner.run(PORTS)
    assert len(ports) == 5
    # The heartbeat is bound last, and nobody waits for it.
    open_ports = [port for port in ports if accepts(*port)]
    assert len(open_ports) >= 4


def test_a_real_kernel(workspace: Workspace, owner: Owner) -> None:
    owner.start("ready", workspace.python("ready"))
    assert sum(accepts(*port) for port in owner.run(PORTS)) >= 4


def accepts(ip: str, port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((ip, port)) == 0


def test_ipc_transport(workspace: Workspace, owner: Owner) -> None:
    """Sockets in the file system are waited for as well."""
    spec = workspace.python("ipc")
    owner.run(
        "manager = new_manager('ipc', spec)\n"
        "manager.transport = 'ipc'\n"
        "manager.ip = os.environ['JUPYTER_RUNTIME_DIR'] + '/i'\n"
        "manager.start_kernel()\n"
        "result = all(\n"
        "    os.path.exists(f'{manager.ip}-{port}')\n"
        "    for port in (manager.shell_port, manager.iopub_port, manager.control_port)\n"
        ")",
        spec=spec,
    )
    assert owner.execute("ipc", "print(6 * 7)") == ["42\n"]


def test_a_kernel_that_never_binds(workspace: Workspace, owner: Owner) -> None:
    owner.set(ready_timeout=0.4)
    argv = workspace.mini_argv("never", "idle", "--bind-after", "-1")
    begun = time.monotonic()
    owner.start("never", workspace.spec("never", argv))
    assert 0.4 <= time.monotonic() - begun < 10
    assert owner.is_alive("never")
    procs = workspace.note("never").values()
    owner.shut_down("never", now=True)
    assert census.left_after(procs, 10) == set()


@pytest.mark.parametrize("after", ["0", "0.3"])
def test_a_kernel_that_dies_while_starting(workspace: Workspace, owner: Owner, after: str) -> None:
    """Its end ends the wait: nobody waits out a timeout for a dead kernel."""
    owner.set(ready_timeout=100.0)
    begun = time.monotonic()
    owner.start("dying", workspace.spec("dying", ["sh", "-c", f"sleep {after}; exit 3"]))
    assert time.monotonic() - begun < 20
    assert not owner.is_alive("dying")
    assert owner.run("result = managers['dying'].provisioner.process.poll()") == 3
