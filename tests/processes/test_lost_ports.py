"""No port of a kernel is lost between its choice and the moment when the kernel binds it."""

from __future__ import annotations

import pytest
from support.machine import needs_small_network, small_network
from support.owner import Owner
from support.workspace import IPYKERNEL, Workspace

# The command names ipykernel, so that its ports are held. What runs starts ten times as fast.
LIKE_IPYKERNEL = ["sh", "-c", 'exec "$@"', "-m ipykernel"]

# Takes every port that is given out to somebody who asks for any, and tells which.
THIEF = """
import json, socket, sys
taken = []
try:
    while True:
        one = socket.socket()
        one.bind(("", 0))
        taken.append(one)
except OSError:
    print(json.dumps([one.getsockname()[1] for one in taken]), flush=True)
sys.stdin.read()
"""

# Once per start: with ``pre_launch`` if the ports are those of a kernel before, else with
# ``launch_kernel``, when they have just been chosen.
ROBBED = """
import subprocess
from jupyter_ownedkernels.launching.standby import StandbyKernels
from jupyter_ownedkernels.provisioner import OwnedProvisioner

thieves, stolen = [], []
honest = OwnedProvisioner.pre_launch, OwnedProvisioner.launch_kernel, StandbyKernels._boot

def steal():
    pipe = subprocess.PIPE
    thieves.append(subprocess.Popen([sys.executable, "-c", thief], stdin=pipe, stdout=pipe))
    stolen.append(json.loads(thieves[-1].stdout.readline()))

def give_back():
    while thieves:
        thieves.pop().communicate()

async def pre_launch(self, **kwargs):
    if self.ports_cached:
        steal()
    return await honest[0](self, **kwargs)

async def launch_kernel(self, cmd, **kwargs):
    if not thieves:
        steal()
    try:
        return await honest[1](self, cmd, **kwargs)
    finally:
        give_back()

def boot(*args):
    steal()
    try:
        return honest[2](*args)
    finally:
        give_back()

OwnedProvisioner.pre_launch = pre_launch
OwnedProvisioner.launch_kernel = launch_kernel
StandbyKernels._boot = boot
"""

HELD = """
def held(name):
    wanted, found = set(managers[name].ports), []
    for fd in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(fd)))
        except OSError:
            continue
        with one:
            if one.family == socket.AF_INET and one.getsockname()[1] in wanted:
                found.append((one.getsockname()[1], os.get_inheritable(int(fd))))
    return found
"""


def ports_of(owner: Owner, name: str) -> list[int]:
    found: list[int] = owner.run("result = managers[name].ports", name=name)
    return found


@needs_small_network
@pytest.mark.parametrize("how", ["exec", "stock", "fork"])
def test_a_thief_gets_none(workspace: Workspace, how: str) -> None:
    """Another process asks for all ports that there are, at the start and at a restart."""
    with Owner(workspace, small_network(40000, 40199)) as owner:
        owner.set(ready_timeout=60.0, warm="auto" if how == "fork" else "off")
        if how == "fork":
            owner.start("first", workspace.python("first"))
            owner.wait_until_warm()
        owner.run(ROBBED, thief=THIEF)
        told = owner.start("robbed", workspace.python("robbed"), independent=how == "stock")
        assert told["kind"] == ("StockProcess" if how == "stock" else "OwnedProcess")
        mode = "result = managers['robbed'].provisioner._kernel.record.launch_mode"
        assert owner.run(mode) == how
        before = ports_of(owner, "robbed")
        # Nobody has talked to it: connections that have just ended would keep a thief away.
        owner.run("call('robbed', 'restart_kernel', now=True)")
        assert ports_of(owner, "robbed") == before
        assert owner.execute("robbed", "print(42)") == ["42\n"]
        at_start, at_restart = owner.run("result = stolen")
        assert len(at_start) > 100
        assert len(at_restart) > 100
        assert not set(before) & {*at_start, *at_restart}
        owner.shut_down("robbed", now=True)


@needs_small_network
def test_nor_those_of_a_kernel_on_standby(workspace: Workspace) -> None:
    with Owner(workspace, small_network(40000, 40199)) as owner:
        owner.set(warm="auto", standby=1)
        owner.start("first", workspace.python("first"))
        owner.wait_until_warm()
        owner.run(ROBBED, thief=THIEF)
        # Its boot alone: on a slow machine the start before it would still have all ports.
        owner.run("OwnedProvisioner.pre_launch, OwnedProvisioner.launch_kernel = honest[:2]")
        owner.start("second", workspace.python("first"))
        owner.wait_until_warm(standby=1)
        waiting = "result = list(ownership.current().warm.standby._ready[0].ports.values())"
        taken = owner.run(f"from jupyter_ownedkernels import ownership; {waiting}")
        assert len(set(taken)) == 5
        assert not set(taken) & set(owner.run("result = stolen[-1]"))


def test_a_kernel_that_binds_in_another_way(workspace: Workspace, owner: Owner) -> None:
    """Without SO_REUSEADDR a held port cannot be bound: it is released for the launch."""
    owner.set(ready_timeout=60.0)
    argv = workspace.mini_argv("exclusive", "idle", "--exclusive")
    owner.start("exclusive", workspace.spec("exclusive", argv))
    assert owner.is_alive("exclusive")
    workspace.note("exclusive")
    workspace.forget_note("exclusive")
    owner.run("call('exclusive', 'restart_kernel', now=True)")
    assert owner.is_alive("exclusive")
    workspace.note("exclusive")


def test_they_are_released_when_they_are_bound(workspace: Workspace, owner: Owner) -> None:
    owner.set(ready_timeout=0.0)
    owner.run(HELD)
    late = workspace.mini_argv("late", "idle", "--bind-after", "1")
    owner.start("late", workspace.spec("late", [*LIKE_IPYKERNEL, *late]))
    chosen = ports_of(owner, "late")
    assert sorted(owner.run("result = held('late')")) == [[port, False] for port in sorted(chosen)]
    workspace.note("late")
    assert owner.is_alive("late")
    assert owner.run("result = held('late')") == []
    owner.run("call('late', 'restart_kernel', now=True)")
    assert len(owner.run("result = held('late')")) == 5
    owner.shut_down("late", now=True)
    assert owner.run("result = held('late')") == []


WRITTEN = """
from jupyter_client.connect import ConnectionFileMixin

written, write = [], ConnectionFileMixin.write_connection_file

def write_connection_file(self, **kwargs):
    write(self, **kwargs)
    written.append(len(held("again")) if managers.get("again") is self else None)

ConnectionFileMixin.write_connection_file = write_connection_file
"""


def test_new_ones_are_held_when_a_launch_is_made_again(workspace: Workspace, owner: Owner) -> None:
    """From their choice, as the first: jupyter_client would let go of them, and name any."""
    owner.set(launch_timeout=0.3, ready_timeout=0.0)
    owner.run(HELD + WRITTEN)
    owner.start("before", workspace.mini("before"))
    never = workspace.mini_argv("again", "idle", "--bind-after", "-1")
    spec = workspace.spec("again", [*LIKE_IPYKERNEL, *never])
    spawner = owner.spawner()
    owner.run("os.kill(pid, 19)", pid=spawner.pid)
    try:
        assert owner.start("again", spec)["kind"] == "StockProcess"
    finally:
        owner.run("os.kill(pid, 18)", pid=spawner.pid)
    assert len(owner.run("result = held('again')")) == 5
    assert owner.run("result = written") == [None, 5, 5]
    owner.shut_down("again", now=True)


NOWHERE = "/nothing/of/the/kind"
FAILING = {
    "no such program": (["nothing-of-the-kind", "-m", "ipykernel"], {}),
    "no such folder": (IPYKERNEL, {"cwd": NOWHERE}),
    "an option that nobody knows": (IPYKERNEL, {"nobody_knows": 1}),
    "no place for a connection file": (IPYKERNEL, {}),
}
FAIL = """
made = new_manager("failing", spec)
if file is not None:
    made.connection_file = file
try:
    made.start_kernel(**options)
except Exception as error:
    result = type(error).__name__
"""


@pytest.mark.parametrize("what", FAILING)
def test_nothing_is_held_when_a_start_has_failed(
    workspace: Workspace, owner: Owner, what: str
) -> None:
    argv, options = FAILING[what]
    owner.run(HELD)
    spec = workspace.spec("failing", argv)
    file = f"{NOWHERE}/kernel.json" if what == "no place for a connection file" else None
    assert owner.run(FAIL, spec=spec, options=options, file=file) is not None
    assert ports_of(owner, "failing") != [0] * 5
    assert owner.run("result = held('failing')") == []


def test_nothing_is_held_for_a_kernel_that_has_ended(workspace: Workspace, owner: Owner) -> None:
    """Before it had bound a port; whether anybody asks for it or not."""
    owner.run(HELD)
    owner.set(ready_timeout=60.0)
    owner.start("brief", workspace.spec("brief", ["true", "-m", "ipykernel"]))
    assert owner.run("result = held('brief')") == []


@pytest.mark.parametrize("end", ["made.cleanup_resources()", "made.provisioner = None"])
def test_nothing_is_held_for_a_start_that_was_never_made(
    workspace: Workspace, owner: Owner, end: str
) -> None:
    owner.run(HELD)
    code = """
made = new_manager("prepared", spec)
made.pre_start_kernel()
result = len(held("prepared"))
"""
    assert owner.run(code + end, spec=workspace.python("prepared")) == 5
    assert owner.run("result = held('prepared')") == []
    assert "ResourceWarning" not in owner.errors()


FORK = """
new_manager("prepared", spec).pre_start_kernel()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, str(len(held("prepared"))).encode())
    os._exit(0)
os.waitpid(child, 0)
result = [len(held("prepared")), os.read(reader, 9).decode()]
"""


def test_a_forked_child_holds_none(workspace: Workspace, owner: Owner) -> None:
    owner.run(HELD)
    assert owner.run(FORK, spec=workspace.python("prepared")) == [5, "0"]


CONFIGURED = """
from jupyter_client.manager import KernelManager
from traitlets.config import Config

with socket.create_server(("127.0.0.1", 0)) as any_free:
    port = any_free.getsockname()[1]
config = Config({"OwnedKernels": traits, "KernelManager": {"shell_port": port}})
managers["configured"] = KernelManager(kernel_name=spec, cache_ports=False, config=config)
managers["configured"].start_kernel()
result = [port for port, _ in held("configured")]
"""


def test_a_configured_port_is_left_alone(workspace: Workspace, owner: Owner) -> None:
    """And those beside it are held, though LocalProvisioner has let go of them before."""
    owner.run(HELD)
    owner.set(ready_timeout=0.0)
    never = workspace.mini_argv("configured", "idle", "--bind-after", "-1")
    spec = workspace.spec("configured", [*LIKE_IPYKERNEL, *never])
    found = owner.run(CONFIGURED, spec=spec)
    assert len(set(found)) == 4
    assert {*ports_of(owner, "configured")} - {*found} == {owner.run("result = port")}
    owner.shut_down("configured", now=True)
