"""What a kernel gets from its owner is what it would get from Jupyter's own launch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import census
from support.mirror import without_librarys_own
from support.owner import Owner
from support.workspace import Workspace

MIRROR = str(Path(__file__).parents[1] / "support" / "mirror.py")
BLOCKING = (
    "import os, signal, sys\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGCHLD})\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
LESS_OPEN = 'ulimit -S -n 900; exec "$@"'
PREFIXES = {
    "plain": [],
    "nohup": ["nohup"],
    "odd": [
        "sh",
        "-c",
        'umask 027; ulimit -S -n 777; trap "" INT USR1 PIPE TERM; exec nice -n 3 "$@"',
        "sh",
        sys.executable,
        "-I",
        "-S",
        "-c",
        BLOCKING,
    ],
}


def mirror(workspace: Workspace, name: str, *rest: str) -> str:
    argv = [sys.executable, "-I", "-S", MIRROR, "-f", "{connection_file}"]
    return workspace.spec(name, [*argv, "--note", str(workspace.notes / name), *rest])


def seen(workspace: Workspace, name: str) -> dict[str, Any]:
    path = workspace.notes / name
    census.wait_until(path.exists, 30, f"the note of {name}")
    told: dict[str, Any] = json.loads(path.read_text())
    workspace.forget_note(name)
    return told


def both(
    workspace: Workspace,
    make: Callable[..., Owner],
    name: str,
    kwargs: dict[str, Any],
    **options: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same kernel, started by us and by Jupyter itself."""
    looks = []
    for provisioner in ("owned-provisioner", "local-provisioner"):
        owner = make(provisioner=provisioner, **options)
        owner.set(ready_timeout=0.0)
        owner.start(name, name, **kwargs)
        looks.append(seen(workspace, name))
        owner.shut_down(name, now=True)
    return looks[0], looks[1]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_state_of_the_process(
    workspace: Workspace, owners: Callable[..., Owner], prefix: str
) -> None:
    mirror(workspace, "state")
    ours, stock = both(workspace, owners, "state", {}, prefix=PREFIXES[prefix])
    ours["environment"].pop(b"JUPYTER_DEFAULT_PROVISIONER_NAME".hex())
    stock["environment"].pop(b"JUPYTER_DEFAULT_PROVISIONER_NAME".hex())
    assert ours == stock
    if prefix == "odd":
        assert ours["status"]["Umask"] == "0027"
        assert ours["nice"] == os.nice(0) + 3
        assert ours["limits"]["RLIMIT_NOFILE"][0] == 777
        assert int(ours["status"]["SigIgn"], 16) & 1 << 9, "SIGUSR1 was to stay ignored"
        assert int(ours["status"]["SigBlk"], 16) & 1 << 11, "SIGUSR2 was to stay blocked"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_signals_of_a_program_that_changes_none(
    workspace: Workspace, owners: Callable[..., Owner], prefix: str
) -> None:
    """Python ignores some signals itself; a kernel in another language must not inherit that."""
    note = workspace.notes / "signals"
    argv = ["grep", "Sig", "/proc/self/status"]
    workspace.spec("signals", argv)
    seen_by = []
    for provisioner in ("owned-provisioner", "local-provisioner"):
        owner = owners(provisioner=provisioner, prefix=PREFIXES[prefix])
        owner.set(ready_timeout=0.0)
        owner.run("start('signals', 'signals', stdout=open(note, 'wb'))", note=str(note))
        census.wait_until(lambda: not owner.is_alive("signals"), 30, "grep ends")  # noqa: B023
        rows = [row.split() for row in note.read_text().splitlines() if row[:4] != "SigQ"]
        assert len(rows) >= 4
        seen_by.append({name: without_librarys_own(mask) for name, mask in rows})
    assert seen_by[0] == seen_by[1]


# What an owner may do to itself after its first launch, when its helpers run already.
CHANGES = """
import resource, signal
os.umask(0o027)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 10, hard))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.nice(2)
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
for signum in (signal.SIGUSR1, signal.SIGTTOU, signal.SIGINT, signal.SIGCHLD):
    signal.signal(signum, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
with open("/proc/self/oom_score_adj", "w") as stream:
    stream.write("77")
"""


def test_what_the_owner_changed_after_its_first_launch(
    workspace: Workspace, owners: Callable[..., Owner]
) -> None:
    mirror(workspace, "first")
    mirror(workspace, "second")
    looks = []
    for provisioner in ("owned-provisioner", "local-provisioner"):
        # Ignored at first, not later: what its helpers have does not matter.
        owner = owners(provisioner=provisioner, prefix=["nohup", "sh", "-c", LESS_OPEN, "sh"])
        owner.set(ready_timeout=0.0)
        owner.start("first", "first")
        before = seen(workspace, "first")
        owner.run(CHANGES)
        owner.start("second", "second")
        looks.append(seen(workspace, "second"))
        for name in ("first", "second"):
            owner.shut_down(name, now=True)
        assert before["nice"] == looks[-1]["nice"] - 2
    for look in looks:
        look["environment"].pop(b"JUPYTER_DEFAULT_PROVISIONER_NAME".hex())
    ours, stock = looks
    assert ours == stock
    assert ours["status"]["Umask"] == "0027"
    assert ours["limits"]["RLIMIT_CORE"] == [0, 0]
    assert ours["oom_score_adj"].strip() == "77"
    assert ours["policy"] == [os.SCHED_BATCH, 0]
    ignored = int(ours["status"]["SigIgn"], 16)
    assert ignored & 1 << 9, "SIGUSR1 was to be ignored"
    assert not ignored & 1 << 0, "SIGHUP was not"
    assert int(ours["status"]["SigBlk"], 16) & 1 << 11, "SIGUSR2 was to be blocked"


def test_large_and_odd_environment_and_arguments(
    workspace: Workspace, owners: Callable[..., Owner]
) -> None:
    """1 MB of environment, arguments of 100 kB, and bytes that are no UTF-8."""
    odd = os.fsdecode(b"\xff\xfe odd \xe9")
    folder = workspace.path / odd
    folder.mkdir()
    mirror(workspace, "large", "--", "y" * 100_000, "dollar $HOME", "new\nline", odd, "")
    env = {f"LARGE_{number}": "x" * 65_000 for number in range(16)}
    env.update({"ODD": odd, odd: "name", "EMPTY": "", "QUOTES": "\"'\\\n\t", "PATH": os.defpath})
    env["JPY_PARENT_PID"] = "1"
    kwargs = {"env": env, "cwd": str(folder)}
    ours, stock = both(workspace, owners, "large", kwargs)
    for look in (ours, stock):
        look["environment"].pop(b"JUPYTER_DEFAULT_PROVISIONER_NAME".hex(), None)
    assert ours == stock
    assert len(ours["environment"]) >= 20
    assert ours["cwd"] == str(folder)


@pytest.mark.parametrize("given", ["sub", "link/../beside", "."])
def test_a_relative_folder_is_below_the_owners(
    workspace: Workspace, owners: Callable[..., Owner], given: str
) -> None:
    """nbconvert names the folder of a notebook as it was named itself."""
    mirror(workspace, "relative")
    here = workspace.path / "here"
    for folder in ("sub", "there/inside", "there/beside"):
        (here / folder).mkdir(parents=True, exist_ok=True)
    if not (here / "link").exists():
        (here / "link").symlink_to("there/inside")
    ours, stock = both(workspace, owners, "relative", {"cwd": given}, cwd=here)
    assert ours["cwd"] == stock["cwd"] == os.path.realpath(here / given)


@pytest.mark.parametrize("umask", [-1, 0o70])
def test_the_umask_of_a_launch(
    workspace: Workspace, owners: Callable[..., Owner], umask: int
) -> None:
    mirror(workspace, "umask")
    prefix = ["sh", "-c", 'umask 023; exec "$@"', "sh"]
    ours, stock = both(workspace, owners, "umask", {"umask": umask}, prefix=prefix)
    expected = "0023" if umask < 0 else "0070"
    assert ours["status"]["Umask"] == stock["status"]["Umask"] == expected


GIVEN = {
    "files": 'kwargs = {"stdout": open(out, "wb"), "stderr": open(err, "wb")}',
    "descriptors": (
        "kwargs = {\n"
        '    "stdout": os.open(out, os.O_WRONLY | os.O_CREAT),\n'
        '    "stderr": os.open(err, os.O_WRONLY | os.O_CREAT),\n'
        "}"
    ),
    "both in one": 'kwargs = {"stdout": open(out, "wb"), "stderr": subprocess.STDOUT}',
    "nowhere": 'kwargs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}',
    "pipes": 'kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}',
    "one pipe": 'kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}',
    "input pipe": 'kwargs = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}',
    "input file": 'kwargs = {"stdin": open(source), "stdout": open(out, "wb")}',
    "no input": 'kwargs = {"stdin": subprocess.DEVNULL, "stdout": open(out, "wb")}',
}
STREAMS = """
import subprocess
{given}
start("streams", "streams", **kwargs)
process = managers["streams"].provisioner.process
if process.stdin and not process.stdin.closed:
    process.stdin.write(b"by pipe\\n")
    process.stdin.flush()
"""
# Up to end of file: a helper that held the other end would make this hang.
READ = """
os.kill(process.pid, 9)
result = {}
for name in ("stdout", "stderr"):
    stream = getattr(process, name)
    if stream:
        result[name] = stream.read().decode()
shut_down("streams", now=True)
for one in kwargs.values():
    if isinstance(one, int) and one > 2:
        os.close(one)
    elif hasattr(one, "close"):
        one.close()
"""


@pytest.fixture(scope="module")
def pair(workspace: Workspace) -> Iterator[list[Owner]]:
    """An owner of ours and a stock one, for many starts."""
    with Owner(workspace) as ours, Owner(workspace, provisioner="local-provisioner") as stock:
        for owner in (ours, stock):
            owner.set(ready_timeout=0.0)
        yield [ours, stock]
        stock.run("[call(name, 'shutdown_kernel', now=True) for name in managers]")


@pytest.mark.parametrize("given", GIVEN)
def test_streams(workspace: Workspace, pair: list[Owner], given: str) -> None:
    mirror(workspace, "streams")
    paths = {name: workspace.path / name for name in ("out", "err", "source")}
    results = []
    for owner in pair:
        for path in paths.values():
            path.unlink(missing_ok=True)
        paths["source"].write_text("by file\n")
        said_before = len(owner.errors())
        texts = {name: str(path) for name, path in paths.items()}
        owner.run(STREAMS.format(given=GIVEN[given]), **texts)
        look = seen(workspace, "streams")
        read = owner.run(READ, 30)
        files = {n: p.read_text() for n, p in paths.items() if p.exists() and n != "source"}
        # Ours says so when it hears of the kill before it is told to shut the kernel down.
        said = [
            line
            for line in owner.errors()[said_before:].splitlines()
            if not line.endswith(": killed by SIGKILL")
        ]
        results.append((look["heard"], look["descriptors"], read, files, said))
    assert results[0] == results[1]
    heard, _, read, files, _ = results[0]
    printed = "".join((*read.values(), *files.values()))
    assert ("said on stdout" in printed) == (given != "nowhere")
    assert heard == {"input pipe": "by pipe\n", "input file": "by file\n"}.get(given, "")
