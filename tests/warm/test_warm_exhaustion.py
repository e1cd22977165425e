"""No memory, no processes, no disk: the kernel is executed, and warm starts come back."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_kernels import Kennel, until

from jupyter_ownedkernels.errors import WarmLost

_PIDS = Path("/sys/fs/cgroup/pids")


def template_of(kennel: Kennel) -> int:
    return int(kennel.pool.to_json()[0]["pid"])


def works_plainly_and_comes_back(kennel: Kennel) -> None:
    assert kennel.start("exec").value("1 + 1") == 2
    assert kennel.warm_up()["state"] == "ready"
    assert kennel.start("fork").value("1 + 1") == 2


@contextlib.contextmanager
def limited(pid: int, kind: int, value: int) -> Iterator[None]:
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (value, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, before)


@contextlib.contextmanager
def no_forks(pid: int) -> Iterator[None]:
    """fork() fails with EAGAIN in this process: by a limit, or, for root, a control group."""
    if os.geteuid() != 0:
        with limited(pid, resource.RLIMIT_NPROC, 1):
            yield
        return
    if not (_PIDS / "cgroup.procs").exists():
        pytest.skip("no controller of process numbers that a test can use")
    group = _PIDS / f"ownedkernels-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    home = next(
        line.rpartition(":")[2]
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        if ":pids:" in line
    )
    try:
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        with contextlib.suppress(OSError):
            (_PIDS / home.strip("/") / "cgroup.procs").write_text(str(pid))
        until(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
        group.rmdir()


def test_without_a_process_left_the_kernel_is_executed(kennel: Kennel) -> None:
    kennel.pool.standby.count = 0
    kennel.warm_up()
    pid = template_of(kennel)
    with no_forks(pid):
        assert kennel.forked() is None
        assert kennel.start("exec").value("1 + 1") == 2
    # Nothing is wrong with the template.
    assert template_of(kennel) == pid
    works_plainly_and_comes_back(kennel)


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_without_memory_left_the_kernel_is_executed(kennel: Kennel, room: int) -> None:
    """For the spawner itself, for the keeper, or for the kernel before it is one."""
    kennel.pool.standby.count = 0
    kennel.warm_up()
    pid = template_of(kennel)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    with limited(pid, resource.RLIMIT_AS, pages * resource.getpagesize() + room):
        launch = None
        with contextlib.suppress(WarmLost):
            launch = kennel.forked()
        if launch is not None:
            # It became a kernel, which has the limit as well: it ends as an executed one would.
            assert launch.exited.result(60).status != 0
        assert kennel.start("exec").value("1 + 1") == 2
    works_plainly_and_comes_back(kennel)


def with_a_python(kennel: Kennel, prelude: str) -> None:
    """Kernels of an interpreter that is started behind some lines of shell."""
    python = kennel.folder / "python"
    python.write_text(f'#!/bin/sh\n{prelude}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    kennel.argv[0] = str(python)


def test_where_no_file_can_be_written_warm_is_off_with_the_reason(kennel: Kennel) -> None:
    with_a_python(kennel, 'case "$*" in *warm/start.py*) ulimit -f 0;; esac')
    entry = kennel.warm_up()
    assert entry["state"] == "off"
    assert "no room for a rehearsal" in entry["reason"]
    assert kennel.forked() is None
    assert kennel.start("exec").value("1 + 1") == 2


FULL = """
set -e
mount -t tmpfs -o size=64k full "$1"
cat /dev/zero >"$1/filler" 2>/dev/null || true
cp -r "$2" "$1/no-room" 2>/dev/null && exit 3
exec "$3" -c "$4"
"""
PROGRAM = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from warm_kernels import Kennel
kennel = Kennel(Path({folder!r}), standby=0)
kennel.environment["TMPDIR"] = {full!r}
try:
    entry = kennel.warm_up()
    assert entry["state"] in ("ready", "off"), entry
    assert kennel.start("exec").value("1 + 1") == 2
    if entry["state"] == "ready":
        assert kennel.start("fork").value("1 + 1") == 2
    print("state", entry["state"])
finally:
    kennel.close()
"""


def test_a_full_folder_for_temporary_files(tmp_path: Path) -> None:
    """A small file system of its own, in a mount namespace of its own."""
    unshare = shutil.which("unshare")
    probe = [str(unshare), "-m", "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted by this user")
    full, folder = tmp_path / "full", tmp_path / "kennel"
    full.mkdir()
    folder.mkdir()
    here = Path(__file__).parent
    program = PROGRAM.format(here=str(here), folder=str(folder), full=str(full))
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", FULL, "sh", full, here, sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("state ")
