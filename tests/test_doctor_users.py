"""The doctor among several users: what one may see and do, and root for all of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.elsewhere import NOBODY, ROOT, needs_root

pytestmark = [needs_root, pytest.mark.timeout(120)]

PRELUDE = """
import json, os, pwd, signal, subprocess, sys, time, traceback
from pathlib import Path
import jupyter_ownedkernels.cli.check, encodings.idna, psutil
from jupyter_ownedkernels import connections
from jupyter_ownedkernels import doctor
from jupyter_ownedkernels.doctor import users as doctor_users
from jupyter_ownedkernels.doctor import unjournaled as doctor_unjournaled
from jupyter_ownedkernels import identity
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.processes import look as processes_look
from jupyter_ownedkernels import recovery
from jupyter_ownedkernels.doctor.cleaning import clean
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord, Survivor
from jupyter_ownedkernels.runtime import procfs
doctor_unjournaled.MIN_AGE = 0.0
doctor_users._load_codecs()
home = Path(sys.argv[1])
runtime = home / ".local" / "share" / "jupyter" / "runtime"
NOBODY = 65534

def scope(look=processes_look.take, folder=None):
    folder = folder or runtime
    return doctor.Scope((str(folder),), (str(folder / "ownedkernels"),), (), 3600.0, look)

def mount(*args):
    subprocess.run(["mount", *args], check=True)

def become_nobody():
    os.setgroups([]); os.setgid(NOBODY); os.setuid(NOBODY)
    os.environ["HOME"] = str(home)

def as_nobody(body):
    # What the body returns, computed by a child that is that user.
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            become_nobody()
            told = json.dumps(body())
        except BaseException:
            traceback.print_exc()
            told = json.dumps("failed")
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as stream:
        told = stream.read()
    os.waitpid(pid, 0)
    return json.loads(told) if told else None

def sleeper(uid=0, environ=()):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if uid:
            become_nobody()
        os.execvpe("sleep", ["sleep", "600"], {**os.environ, **dict(environ)})
    time.sleep(0.05)
    return pid

def dead_owners_journal(process, folder=None, owner_id="crashed", **fields):
    # What an owner that died left on record about a living process.
    def write():
        one = Journal(journal.this_owner(owner_id), [str((folder or runtime) / "ownedkernels")])
        one.launching(LaunchRecord("l-" + owner_id, "k", 1, "python3", "", **fields))
        ticks = procfs.stat(process).start_ticks
        recorded = identity.Identity(identity.this_world(), process, ticks)
        one.running("l-" + owner_id, keeper=None, process=recorded, sessions=[process])
        os.kill(os.getpid(), signal.SIGKILL)
    as_nobody(write)

def old_file(name, uid=NOBODY, folder=None):
    # Put together here: a script that named the file whole would be a process that uses it.
    path = (folder or runtime) / ("kernel-" + name + ".json")
    path.write_text(json.dumps({"ip": "127.0.0.1", "shell_port": 1}))
    os.chown(path, uid, uid)
    os.utime(path, (1e9, 1e9))
    return path

def short(report):
    if isinstance(report, dict):
        return sorted((one["kind"], one["pid"]) for one in report["findings"])
    return sorted((one.kind, one.pid) for one in report.findings)

def alive(*pids):
    return [procfs.stat(pid) is not None and procfs.stat(pid).alive for pid in pids]

def answer(value):
    print("ANSWER " + json.dumps(value))
    sys.stdout.flush()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of the user nobody, in a place that the user can reach."""
    made = Path(tempfile.mkdtemp(prefix="ok-home-"))
    runtime = made / ".local" / "share" / "jupyter" / "runtime"
    runtime.mkdir(parents=True)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(made)], check=True)
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def inside(script: str, home: Path, *unshare: str) -> Any:
    """Run as root in a pid namespace, so that nobody outside can be met, and come back."""
    namespaces = ["unshare", "--pid", "--fork", "--mount-proc", *unshare]
    done = subprocess.run(
        [*namespaces, sys.executable, "-W", "error", "-c", PRELUDE + script, str(home)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            assert not done.stderr, done.stderr
            return json.loads(line.removeprefix("ANSWER "))
    raise AssertionError(done.stdout + done.stderr)


# -- a user who is not root --------------------------------------------------------------


def test_a_user_does_not_end_what_is_not_his(home: Path) -> None:
    """His journal names a process of root: exact, but not his to signal."""
    outcome, reason, lives = inside(
        """
process = sleeper()
dead_owners_journal(process)
def act():
    (one,) = clean(dry_run=False, scope=scope(), grace=0.0, timeout=0.5)
    return [one.outcome, one.reason]
told = as_nobody(act)
answer([*told, alive(process)[0]])
""",
        home,
    )
    assert outcome == "not-permitted"
    assert "may not be signalled" in reason
    assert lives


def test_a_user_sees_neither_others_strays_nor_their_files(home: Path) -> None:
    found, left = inside(
        """
mine, roots = sleeper(NOBODY), sleeper()
for uid in (0, NOBODY):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os.setsid()
            os.environ["JPY_PARENT_PID"] = "99999"
            if uid:
                become_nobody()
            # Not this Python: another user may not be allowed to execute it.
            argv = ["python3", "-c", "sleep 600; true"]
            argv += ["-m", "ipykernel_launcher", "-f", f"/tmp/kernel-{uid}.json"]
            os.execv("/bin/sh", argv)
        os._exit(0)
    os.waitpid(pid, 0)
old_file("roots", 0)
old_file("mine")
time.sleep(0.3)
def act():
    report = doctor.scan(scope())
    clean(dry_run=False, scope=scope(), grace=0.0)
    told = [[one.kind, (one.path or "").rpartition("/")[2]] for one in report.findings]
    return told
told = as_nobody(act)
left = sorted(one.name for one in runtime.glob("kernel-*"))
answer([told, left])
""",
        home,
    )
    assert sorted(found) == [
        ["stale_file", "kernel-mine.json"],
        ["stray_kernel", f"kernel-{NOBODY}.json"],
    ]
    assert left == ["kernel-roots.json"]


def without_exec(network: bool) -> str:
    """A process that became the user without exec, as sshd's for a login: nobody may trace it."""
    return f"""
import ctypes, socket
reading, writing = os.pipe()
silent = os.fork()
if silent == 0:
    if {network}:
        assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET
        listening = socket.create_server(("0.0.0.0", 41234))
    become_nobody()
    os.write(writing, b"x")
    signal.pause()
os.read(reading, 1)
def act():
    try:
        os.listdir(f"/proc/{{silent}}/fd")
    except PermissionError:
        report = doctor.scan(scope())
    stale = [one.path.rpartition("/")[2] for one in report.findings if one.kind == "stale_file"]
    clean(dry_run=False, scope=scope())
    return [report.complete, stale]
told = as_nobody(act)
os.kill(silent, signal.SIGKILL)
answer([*told, sorted(one.name for one in runtime.glob("kernel-*"))])
"""


def test_a_process_that_hides_its_open_files_keeps_a_file_only_that_names_no_port(
    home: Path,
) -> None:
    complete, stale, left = inside(
        """
old_file("old")
empty = old_file("empty")
empty.write_text("")
os.utime(empty, (1e9, 1e9))
"""
        + without_exec(network=False),
        home,
    )
    assert complete
    assert stale == ["kernel-old.json"]
    assert left == ["kernel-empty.json"]


def test_such_a_process_may_listen_in_a_network_of_its_own(home: Path) -> None:
    complete, stale, left = inside(
        """
old_file("old")
used = old_file("used")
used.write_text(json.dumps({"ip": "0.0.0.0", "shell_port": 41234}))
os.utime(used, (1e9, 1e9))
"""
        + without_exec(network=True),
        home,
    )
    assert complete
    assert stale == ["kernel-old.json"]
    assert left == ["kernel-used.json"]


@pytest.mark.parametrize("option", ["hidepid=1", "hidepid=2", "subset=pid"])
def test_where_processes_are_hidden_nothing_is_stale(home: Path, option: str) -> None:
    """But a stray with proof is a stray all the same."""
    complete, reason, kinds, left = inside(
        f"""
process = sleeper(NOBODY)
dead_owners_journal(process)
old_file("old")
mount("-t", "proc", "-o", {option!r}, "proc", "/proc")
def act():
    report = doctor.scan(scope())
    clean(kinds=["stale_file"], dry_run=False, scope=scope())
    told = [report.complete, report.incomplete_reason, [one.kind for one in report.findings]]
    return told
told = as_nobody(act)
answer([*told, any(runtime.glob("kernel-*"))])
""",
        home,
        "--mount",
    )
    assert not complete
    assert reason
    assert "stale_file" not in kinds
    assert left
    if option != "subset=pid":
        assert kinds == ["stray_kernel"]


def test_without_proc_there_is_no_scan(home: Path) -> None:
    text = inside(
        """
mount("-t", "tmpfs", "none", "/proc")
try:
    doctor.scan(scope())
except OSError as error:
    answer(str(error))
""",
        home,
        "--mount",
    )
    assert "/proc" in text


# -- root for everybody ------------------------------------------------------------------

EVERYBODY = """
nobody = pwd.getpwnam("nobody")
def entry(uid=NOBODY):
    return doctor_users.User("nobody", uid, uid, str(home))
doctor_users.users = lambda table: iter([entry()])
def fix(scope):
    return [one.to_json() for one in clean(dry_run=False, scope=scope, grace=0.2)]
def everybody(work, fresh=True):
    return doctor_users.for_everybody(work, stale_file_age=3600.0, fresh=fresh)
"""


def test_root_cleans_in_the_name_of_each_user(home: Path) -> None:
    before, results, states, left, after = inside(
        EVERYBODY
        + """
process = sleeper(NOBODY)
dead_owners_journal(process)
old_file("old")
((user, report),) = everybody(lambda scope: doctor.scan(scope).to_json(), fresh=False)
((_, results),) = everybody(fix)
assert results != [], results
os.waitpid(process, os.WNOHANG)
((_, after),) = everybody(lambda scope: doctor.scan(scope).to_json(), fresh=False)
answer([[user.name, report["complete"], short(report)], results, alive(process),
        sorted(os.listdir(runtime)), short(after)])
""",
        home,
    )
    assert before[:2] == ["nobody", True]
    assert [kind for kind, _ in before[2]] == ["stale_file", "stray_kernel"]
    assert {one["outcome"] for one in results} == {"terminated", "removed"}
    assert states == [False]
    assert left == ["ownedkernels"]
    assert after == []


def test_root_is_not_fooled_by_a_users_journal(home: Path) -> None:
    """It names a process of root, and a connection file that is somebody else's."""
    results, lives, file_left = inside(
        EVERYBODY
        + """
process = sleeper()
target = old_file(f"{os.getpid()}-target", 0, Path("/tmp"))
os.chmod(target, 0o600)
def write():
    one = Journal(journal.this_owner("liar"), [str(runtime / "ownedkernels")])
    one.launching(LaunchRecord("l", "k", 1, "python3", str(target)))
    recorded = identity.Identity(identity.this_world(), process, procfs.stat(process).start_ticks)
    one.running("l", keeper=None, process=recorded, sessions=[process])
    one.launching(LaunchRecord("m", "k2", 1, "python3", str(target)))
    os.kill(os.getpid(), signal.SIGKILL)
as_nobody(write)
((_, results),) = everybody(fix)
answer([results, alive(process)[0], target.exists()])
target.unlink()
""",
        home,
    )
    assert lives
    assert file_left
    assert {one["outcome"] for one in results} <= {"not-permitted", "refused", "kept"}


@pytest.mark.parametrize("trick", ["runtime folder", "journal folder", "file", "home"])
def test_root_follows_no_link_to_what_the_user_may_not_touch(home: Path, trick: str) -> None:
    assert inside(
        EVERYBODY
        + f"""
trick = {trick!r}
secret = Path(__import__("tempfile").mkdtemp(prefix="ok-secret-"))
target = old_file("root", 0, secret)
(secret / "ownedkernels").mkdir()
os.chmod(secret, 0o711)
if trick == "runtime folder":
    runtime.rmdir()
    runtime.symlink_to(secret)
elif trick == "journal folder":
    (runtime / "ownedkernels").symlink_to(secret / "ownedkernels")
elif trick == "file":
    (runtime / target.name).symlink_to(target)
else:
    pass
folder = str(secret) if trick == "home" else str(home)
doctor_users.users = lambda table: iter([doctor_users.User("nobody", NOBODY, NOBODY, folder)])
everybody(fix)
everybody(lambda scope: doctor.scan(scope).to_json(), fresh=False)
there = target.exists() and target.stat().st_uid == 0
__import__("shutil").rmtree(secret)
answer(there)
""",
        home,
    )


def test_the_child_has_become_the_user_for_good(home: Path) -> None:
    told = inside(
        """
def look():
    try:
        os.setuid(0)
        back = True
    except PermissionError:
        back = False
    return [os.getresuid(), os.getresgid(), 0 in os.getgroups(), back, dict(os.environ),
            os.getcwd(), os.umask(0)]
os.environ["JUPYTER_RUNTIME_DIR"] = "/nobody/may/enter"
user = doctor_users.User("nobody", NOBODY, NOBODY, str(home))
answer(doctor_users.as_user(user, look))
""",
        home,
    )
    uids, gids, roots_group, back, environ, folder, umask = told
    assert (uids, gids) == ([NOBODY] * 3, [NOBODY] * 3)
    assert not roots_group
    assert not back
    assert environ["HOME"] == str(home)
    assert "JUPYTER_RUNTIME_DIR" not in environ
    assert (folder, umask) == ("/", 0o077)


def test_what_goes_wrong_for_one_user_does_not_stop_the_others(home: Path) -> None:
    first, second = inside(
        EVERYBODY
        + """
doctor_users.users = lambda table: iter([entry(), entry()])
calls = []
def work(scope):
    raise RuntimeError("broken")
answer([told for _, told in everybody(work)])
""",
        home,
    )
    assert first == second == {"error": "nobody: broken"}


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "no answer in time"),
        ("time.sleep(600)", "no answer in time"),
        ("'x' * 2_000_000", "more was found"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "no answer"),
    ],
)
def test_a_user_holds_nobody_up(home: Path, work: str, words: str) -> None:
    """He may stop what runs in his name, and make it find very much."""
    told, left = inside(
        f"""
doctor_users._LONGEST_ANSWER = 1_000_000
user = doctor_users.User("nobody", NOBODY, NOBODY, str(home))
pids = []
real = os.fork
def fork():
    pid = real()
    pids.append(pid)
    return pid
os.fork = fork
try:
    told = doctor_users.as_user(user, lambda: {work}, patience=1.0)
except Exception as error:
    told = str(error)
answer([told, os.path.exists(f"/proc/{{pids[0]}}")])
""",
        home,
    )
    assert words in told
    assert told.startswith("nobody: ")
    assert left is False


def test_nobodys_part_outlives_the_doctor(home: Path) -> None:
    assert inside(
        """
user = doctor_users.User("nobody", NOBODY, NOBODY, str(home))
reading, writing = os.pipe()
doctor = os.fork()
if doctor == 0:
    def work():
        os.write(writing, str(os.getpid()).encode())
        time.sleep(600)
    doctor_users.as_user(user, work)
part = int(os.read(reading, 100))
os.kill(doctor, signal.SIGKILL)
os.waitpid(doctor, 0)
deadline = time.monotonic() + 20
while any(alive(part)) and time.monotonic() < deadline:
    time.sleep(0.01)
answer(alive(part))
""",
        home,
    ) == [False]


def test_only_root_may(home: Path) -> None:
    status, text = inside(
        """
import contextlib, io
from jupyter_ownedkernels.cli import main as cli, doctor as cli_doctor
def act():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = cli.main(["doctor", "--all-users"])
    return [status, said.getvalue()]
answer(as_nobody(act))
""",
        home,
    )
    assert status == 2
    assert text == "jupyter ownedkernels: --all-users is for root: run it with sudo\n"
