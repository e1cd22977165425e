"""What helpers and kernels hold of the owner: nothing that it did not hand to them."""

from __future__ import annotations

import os
import re
import socket
from collections import Counter

import pytest
from support import census
from support.owner import Owner
from support.workspace import Workspace

GONE_WITHIN = 10.0

# An owner that has been careless: files, pipes and sockets, all inheritable.
CARELESS = """
import socket
careless = [open(program), *os.pipe(), socket.create_server(("127.0.0.1", 0))]
careless += [socket.socketpair(), os.memfd_create("careless", 0)]
for one in careless:
    for part in one if isinstance(one, tuple) else (one,):
        os.set_inheritable(part if isinstance(part, int) else part.fileno(), True)
result = careless[3].getsockname()[1]
"""


def kinds(pid: int) -> Counter[str]:
    """Descriptors by what they are, numbers of inodes left out."""
    targets = census.descriptors(pid).values()
    return Counter(re.sub(r":\[\d+\]$", "", target) for target in targets)


def test_what_is_open(workspace: Workspace, owner: Owner) -> None:
    port = owner.run(CARELESS)
    lister = ["sh", "-c", f"ls -l /proc/self/fd > {workspace.notes}/lister; exec sleep 3600"]
    owner.set(ready_timeout=0.0)
    for name in ("lister", "second"):
        owner.start(name, workspace.spec(name, lister if name == "lister" else ["sleep", "3600"]))
    kernel = owner.run("result = about('second')['pid']")
    keeper = owner.keeper_of(kernel).pid
    census.wait_until((workspace.notes / "lister").exists, 30, "a kernel's list")
    # Quiet: a keeper that is about to send a pidfd has it open for a moment.
    census.wait_until(lambda: "anon_inode:[pidfd]" in kinds(keeper), 30, "the keeper")
    helper = {"/dev/null": 3, "pipe": 2, "socket": 1, "anon_inode:[pidfd]": 1}
    census.wait_until(lambda: kinds(keeper) == helper, 10, f"a whitelist, not {kinds(keeper)}")
    spawner = owner.spawner().pid
    census.wait_until(lambda: kinds(spawner) == helper, 10, f"a whitelist, not {kinds(spawner)}")
    # Standard input is at its end, the others are the owner's; and the one that ls opens.
    own = {census.descriptors(owner.pid)[1], census.descriptors(owner.pid)[2]}
    open_in_kernel = census.descriptors(kernel)
    assert set(open_in_kernel) == {0, 1, 2}
    assert open_in_kernel[0].startswith("pipe:")
    assert {open_in_kernel[1], open_in_kernel[2]} == own
    listed = re.findall(r" (\d+) -> ", (workspace.notes / "lister").read_text())
    assert set(listed) <= {"0", "1", "2", "3"}
    assert socket.create_connection(("127.0.0.1", port), 5).close() is None


@pytest.mark.parametrize("after", ["a launch", "a fork in the spawner"])
def test_the_owners_port_is_free_at_once(workspace: Workspace, owner: Owner, after: str) -> None:
    """Right after its death, while what it owned is still being ended."""
    port = owner.run(CARELESS)
    owner.start("stubborn", workspace.mini("stubborn", "stubborn"))
    procs = set(workspace.note("stubborn").values())
    if after != "a launch":
        owner.start("second", workspace.mini("second"))
    owner.die()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    assert any(census.runs(proc) for proc in procs), "too late to show anything"
    assert census.describe(census.left_after(procs, GONE_WITHIN)) == []


def test_helpers_stand_apart(workspace: Workspace, owner: Owner) -> None:
    """Neither a terminal's signals nor a folder that is to be unmounted meet them."""
    owner.start("apart", workspace.mini("apart"))
    mine = census.line(owner.pid)
    assert mine is not None
    for proc in (owner.spawner(), *owner.keepers()):
        seen = census.line(proc.pid)
        assert seen is not None
        assert seen.session != mine.session
        assert os.readlink(f"/proc/{proc.pid}/cwd") == "/"
        assert seen.threads == 1


def test_many_launches_leak_nothing(workspace: Workspace, owner: Owner) -> None:
    """Descriptors and children of owner and spawner are as after the first."""
    spec = workspace.mini("often")

    def once() -> None:
        owner.start("often", spec)
        owner.shut_down("often", now=True)

    def state() -> tuple[object, ...]:
        spawner = owner.spawner().pid
        return (
            kinds(owner.pid),
            kinds(spawner),
            len(census.children(owner.pid)),
            len(census.children(spawner)),
        )

    for _ in range(3):
        once()
    # The last keeper reports a moment before it ends, and its lease is closed after that.
    census.wait_until(lambda: owner.keepers() == [], 10, "the end of the last keeper")
    count = (
        "from jupyter_ownedkernels import ownership\n"
        "result = len(ownership.current().launcher._launches)"
    )
    census.wait_until(lambda: owner.run(count) == 0, 10, "the end of the last lease")
    before = state()
    for _ in range(12):
        once()
    census.wait_until(lambda: state() == before, 10, f"{state()} as {before}")
    assert workspace.connection_files() == []
    seen = census.line(owner.pid)
    # The event loop's pool of threads grows to its bound, some more than there are processors.
    assert seen is not None
    assert seen.threads <= 12 + (os.cpu_count() or 1)
