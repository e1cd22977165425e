"""Owners in odd places: below other parents, another user's, first in a pid namespace."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import census
from support.machine import needs_namespaces
from support.owner import Owner
from support.workspace import SHELL, Workspace

GONE_WITHIN = 10.0
SUBREAPER = [sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "support/subreaper.py")]
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def own_workspace() -> Iterator[Workspace]:
    made = Workspace()
    yield made
    assert census.describe(made.close()) == []


def furnish(workspace: Workspace, owner: Owner) -> set[census.Proc]:
    """Kernels that tell most: a double fork, a group of its own, a wrapper with a session."""
    owner.start("orphans", workspace.mini("orphans", "orphans"))
    owner.start("other_group", workspace.mini("other_group", "other_group"))
    owner.start("setsid", workspace.mini("setsid", wrapper=[*SHELL, "setsid", "--wait"]))
    for name in ("orphans", "other_group", "setsid"):
        census.wait_until((workspace.notes / name).exists, 60, f"the scene of {name}")
    return workspace.processes()


def all_gone(owner: Owner, procs: set[census.Proc]) -> None:
    mine = procs - {owner.proc} - owner.parents
    # A spawner, three keepers, three kernels, a wrapper, three of what they have started.
    assert len(mine) == 11, census.describe(mine)
    owner.die(signal.SIGKILL)
    assert census.describe(census.left_after(mine, GONE_WITHIN)) == []


BEHIND: dict[str, Sequence[str]] = {
    "shell": SHELL,
    "env": ["env", "SOMETHING=1"],
    "nohup": ["nohup"],
    "setsid": ["setsid", "--wait"],
    "timeout": ["timeout", "--foreground", "3600"],
    "session leader behind a shell": [*SHELL, "setsid", "--wait"],
    "subreaper": SUBREAPER,
    "shell below a subreaper": [*SUBREAPER, *SHELL],
}


@pytest.mark.parametrize("parents", BEHIND)
def test_owner_behind_others(own_workspace: Workspace, parents: str) -> None:
    with Owner(own_workspace, BEHIND[parents]) as owner:
        all_gone(owner, furnish(own_workspace, owner))


def other_user(workspace: Workspace) -> list[str]:
    """As nobody. The one capability kept lets it read an interpreter in root's home."""
    for folder in (workspace.path, *workspace.path.rglob("*")):
        os.chown(folder, NOBODY, NOBODY)
    caps = "-all,+dac_read_search"
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*drop, f"--inh-caps={caps}", f"--ambient-caps={caps}"]


@as_root
@pytest.mark.parametrize("parents", ["alone", "shell", "subreaper"])
def test_owner_of_another_user(own_workspace: Workspace, parents: str) -> None:
    between = {"alone": [], "shell": SHELL, "subreaper": SUBREAPER}[parents]
    with Owner(own_workspace, [*between, *other_user(own_workspace)]) as owner:
        procs = furnish(own_workspace, owner)
        users = {os.stat(f"/proc/{proc.pid}").st_uid for proc in procs - owner.parents}
        assert users == {NOBODY}
        all_gone(owner, procs)


@pytest.fixture
def sudo(own_workspace: Workspace) -> tuple[list[str], list[str]]:
    """A command that makes root of nobody, and the prefix that makes nobody of root."""
    if os.geteuid() != 0 or not os.path.exists("/usr/bin/setpriv"):
        pytest.skip("needs root, and setpriv to copy")
    program = own_workspace.path / "sudo"
    prefix = other_user(own_workspace)
    shutil.copy("/usr/bin/setpriv", program)
    program.chmod(0o4755)
    return [str(program), "--reuid=0", "--regid=0", "--clear-groups"], prefix


INTERRUPT = """
try:
    managers[name].interrupt_kernel()
    result = "interrupted"
except PermissionError as error:
    result = error.errno
"""


def test_kernel_of_another_user(
    own_workspace: Workspace, sudo: tuple[list[str], list[str]]
) -> None:
    """A kernel behind sudo may not be signalled: that is said, within bounds."""
    wrapper, prefix = sudo
    spec = own_workspace.spec("root", [*wrapper, "sleep", "3600"])
    with Owner(own_workspace, prefix) as owner:
        owner.set(ready_timeout=0.0, terminate_grace=0.2, retire_timeout=1.0)
        pid = owner.start("root", spec)["pid"]
        kernel = census.find(pid)
        census.wait_until(lambda: census.command(pid)[:1] == ["sleep"], 30, "the kernel of root")
        assert os.stat(f"/proc/{pid}").st_uid == 0
        try:
            assert owner.run(INTERRUPT, 20, name="root") == errno.EPERM
            assert owner.is_alive("root")
            keepers = owner.keepers()
            owner.die()
            assert census.describe(census.left_after(keepers, GONE_WITHIN)) == []
            assert census.runs(kernel), "nobody may have ended it"
        finally:
            census.end([kernel])


def test_child_of_another_user(own_workspace: Workspace, sudo: tuple[list[str], list[str]]) -> None:
    """A kernel that runs something behind sudo can be interrupted and shut down all the same."""
    wrapper, prefix = sudo
    spec = own_workspace.python("mixed")
    argv = [*wrapper, "sleep", "3600"]
    with Owner(own_workspace, prefix) as owner:
        owner.set(terminate_grace=0.2, retire_timeout=1.0)
        kernel = census.find(owner.start("mixed", spec)["pid"])
        said = owner.execute(
            "mixed", f"import subprocess; child = subprocess.Popen({argv!r}); print(child.pid)"
        )
        child = census.find(int(said[0]))
        census.wait_until(
            lambda: census.command(child.pid)[:1] == ["sleep"], 30, "the child of root"
        )
        try:
            assert owner.run(INTERRUPT, 20, name="mixed") == "interrupted"
            owner.run("shut_down('mixed')", 30)
            assert not census.runs(kernel)
            assert census.runs(child), "nobody may have ended it"
        finally:
            census.end([child])


@needs_namespaces
def test_owner_is_the_first_process_of_a_namespace(own_workspace: Workspace) -> None:
    """As in a container. Orphans must go to the keeper, not to the owner, who never reaps."""
    with Owner(own_workspace, ["unshare", "-pf", "--mount-proc"]) as owner:
        assert owner.run("result = os.getpid()") == 1
        owner.start("orphans", own_workspace.mini("orphans", "orphans"))
        census.wait_until((own_workspace.notes / "orphans").exists, 60, "the scene")
        orphans = [proc for proc in own_workspace.processes() if "sleep" in name_of(proc)]
        assert len(orphans) == 2
        assert {parent_of(proc) for proc in orphans} == {owner.keepers()[0].pid}
        owner.shut_down("orphans", now=True)
        assert census.describe(census.left_after(orphans, GONE_WITHIN)) == []
        all_gone(owner, furnish(own_workspace, owner))


@needs_namespaces
def test_the_first_process_of_the_namespace_never_reaps(own_workspace: Workspace) -> None:
    """And it lives on, so that the end of the namespace does not do the work."""
    never = [sys.executable, "-I", "-S", "-c"]
    first = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(3600)"
    prefix = ["unshare", "-pf", "--mount-proc", *never, first]
    with Owner(own_workspace, prefix) as owner:
        all_gone(owner, furnish(own_workspace, owner))
        assert len(owner.parents) >= 2
        assert all(census.runs(proc) for proc in owner.parents), "the parents were to live on"


def name_of(proc: census.Proc) -> str:
    seen = census.line(proc.pid)
    return seen.name if seen else ""


def parent_of(proc: census.Proc) -> int:
    seen = census.line(proc.pid)
    return seen.ppid if seen else 0
