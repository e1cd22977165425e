"""The command line, run as a program."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import census
from support.elsewhere import ROOT, needs_root
from support.owner import Owner
from support.workspace import Workspace

from jupyter_ownedkernels import __version__
from jupyter_ownedkernels.cli import main as cli
from jupyter_ownedkernels.cli.doctor import _is_done, _whole_id, short_ids
from jupyter_ownedkernels.cli.output import duration, memory, printable
from jupyter_ownedkernels.errors import BadRequest, OwnedKernelsError

pytestmark = pytest.mark.timeout(120)

CLI = [sys.executable, "-W", "error", "-m", "jupyter_ownedkernels.cli"]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    made.mini("core", "children")
    made.mini("a-kernel-with-quite-a-long-name", "children")
    yield made
    left = census.describe(census.left_after(made.processes(), 10))
    made.close()
    assert not left, f"left behind: {left}"


def run(workspace: Workspace, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *args],
        env={**workspace.environment(), "COLUMNS": "80", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def on_terminal(workspace: Workspace, *args: str, **env: str) -> tuple[int, str]:
    """Exit status, and all that was written to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*CLI, *args],
        env={**workspace.environment(), "COLUMNS": "80", "TERM": "xterm-256color", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(ours)
    return child.wait(60), said.decode().replace("\r\n", "\n")


# -- usage -----------------------------------------------------------------------------


def test_version(workspace: Workspace) -> None:
    done = run(workspace, "--version")
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


def test_without_a_command_it_helps(workspace: Workspace) -> None:
    done = run(workspace)
    assert done.returncode == 64
    assert "examples:" in done.stderr
    assert "exit status:" in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("frobnicate",),
        ("doctor", "--frobnicate"),
        ("doctor", "--grace", "soon"),
        ("doctor", "--stale-file-age", "-1"),
        *(("doctor", f"--watch={text}") for text in ("0", "0.09", "-1", "nan", "inf", "-inf", "")),
        ("doctor", "--all-users", "--runtime-dir", "/x"),
        ("history", "--limit", "many"),
        ("history", "--limit", "²"),
        ("history", "--limit", "1" + "0" * 9),
        ("clean",),
        ("clean", ""),
        ("clean", "p4711", ""),
        ("detach",),
        ("detach", "--"),
        ("completion", "tcsh"),
    ],
)
def test_wrong_usage_ends_with_64_and_says_what_is_wrong(
    workspace: Workspace, args: tuple[str, ...]
) -> None:
    done = run(workspace, *args)
    assert done.returncode == 64
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    usage, *_, line = done.stderr.splitlines()
    assert re.fullmatch(r"jupyter ownedkernels: .+ \(see jupyter ownedkernels.* --help\)", line)
    # What is wrong with an option is told by its command.
    if args[0] in ("detach", "history", "clean", "completion") or "--runtime-dir" in args:
        assert usage.startswith(f"usage: jupyter ownedkernels {args[0]} ")


@pytest.mark.parametrize(
    "name", ["list", "doctor", "clean", "history", "detach", "check", "completion"]
)
def test_every_command_has_help(workspace: Workspace, name: str) -> None:
    done = run(workspace, name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: jupyter ownedkernels {name}")
    said = done.stdout.split("\n\n")
    assert said[1][:1].isupper(), "after the usage it says what it does"
    assert all(len(line) <= 90 for line in done.stdout.splitlines())


def test_help_waits_for_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from jupyter_ownedkernels.cli import main as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'psutil', 'jupyter_client', 'jupyter_server', 'tornado', 'zmq'}\n"
        "print(*(heavy & set(sys.modules)), file=sys.stderr, end='')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_one_line(workspace: Workspace, tmp_path: Path) -> None:
    missing = tmp_path / "no such program"
    done = run(workspace, "detach", "--", str(missing))
    assert done.returncode == 2
    assert done.stderr == f"jupyter ownedkernels: {missing}: No such file or directory\n"


@pytest.mark.parametrize("option", ["--runtime-dir", "--journal-dir"])
@pytest.mark.parametrize(
    "args",
    [
        ("doctor",),
        ("doctor", "--json"),
        ("doctor", "--fix"),
        ("clean", "f-1"),
        ("list",),
        ("history",),
        ("detach", "--", "true"),
    ],
)
def test_a_folder_that_is_named_has_to_be_there(
    workspace: Workspace, tmp_path: Path, args: tuple[str, ...], option: str
) -> None:
    (tmp_path / "file").touch()
    for given, problem in (
        (str(tmp_path / "none"), "no such folder"),
        (str(tmp_path / "file"), "not a folder"),
        (str(tmp_path / "file" / "below"), "Not a directory"),
        ("", "no such folder"),
    ):
        done = run(workspace, args[0], option, given, *args[1:])
        assert (done.returncode, done.stdout) == (64, "")
        shown = given or "''"
        assert done.stderr == f"jupyter ownedkernels: {option} {shown}: {problem}\n"


def test_the_default_folder_need_not_be_there_yet(workspace: Workspace, tmp_path: Path) -> None:
    done = run(workspace, "doctor", "--json", JUPYTER_RUNTIME_DIR=str(tmp_path / "none"))
    assert done.returncode in (0, 1), "strays of whoever runs the test are none of its business"
    assert done.stderr == ""
    assert json.loads(done.stdout)["findings"] is not None


def test_an_error_takes_the_progress_away(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("one", "two"):
        file = tmp_path / f"kernel-{name}.json"
        file.write_text(json.dumps({"shell_port": 1, "key": "x", "ip": "127.0.0.1"}))
        os.utime(file, (0, 0))
    status, said = on_terminal(workspace, "clean", "--runtime-dir", str(tmp_path), "f-")
    assert status == 2
    assert "…" in said.partition("is not unique")[0]
    assert "\x1b[Kjupyter ownedkernels: f- is not unique" in said


def test_it_is_found_by_jupyter(workspace: Workspace) -> None:
    script = Path(sys.executable).parent / "jupyter"
    if not (script.exists() and (script.parent / "jupyter-ownedkernels").exists()):
        pytest.skip("the package's scripts are not installed")
    done = subprocess.run(
        [str(script), "ownedkernels", "--version"],
        env=workspace.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(workspace: Workspace, shell: str) -> None:
    done = run(workspace, "completion", shell)
    assert done.returncode == 0
    for word in ("doctor", "history", "detach"):
        assert word in done.stdout
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=done.stdout, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


def test_completion_in_bash(workspace: Workspace) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    script = run(workspace, "completion", "bash").stdout

    def complete(*words: str) -> list[str]:
        function = (
            "_jupyter_then_ownedkernels" if words[0] == "jupyter" else "_jupyter_ownedkernels"
        )
        quoted = " ".join(f"'{word}'" for word in words)
        code = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; {function}; "
        code += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", script + code], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert complete("jupyter-ownedkernels", "doc") == ["doctor"]
    assert complete("jupyter", "ownedkernels", "doctor", "--al") == ["--all-users", "--all"]
    assert complete("jupyter", "own") == ["ownedkernels"]
    assert complete("jupyter-ownedkernels", "completion", "z") == ["zsh"]


# -- list, history ---------------------------------------------------------------------


def test_lists_without_any_server(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("list", "history"):
        done = run(workspace, name, JUPYTER_RUNTIME_DIR=str(tmp_path / "none"))
        assert (done.returncode, done.stderr) == (0, "")
    done = run(workspace, "list", "--json", JUPYTER_RUNTIME_DIR=str(tmp_path / "none"))
    assert isinstance(json.loads(done.stdout)["kernels"], list)


def test_list_and_history_of_several_owners(workspace: Workspace) -> None:
    names = ["core", "a-kernel-with-quite-a-long-name"]
    with Owner(workspace) as first, Owner(workspace) as second:
        for owner, spec in zip((first, second), names, strict=True):
            owner.start(spec, spec)
            workspace.note(spec)
            workspace.forget_note(spec)
        listed = json.loads(run(workspace, "list", "--json").stdout)["kernels"]
        mine = [one for one in listed if one["name"] in names]
        assert {one["owner"]["pid"] for one in mine} == {first.pid, second.pid}
        for one in mine:
            assert one["state"] == "running"
            assert one["process_count"] == 4
            assert one["rss_bytes"] > 1e6
            assert one["detached_count"] == 0
        text = run(workspace, "list").stdout
        assert all(one["kernel_id"][:8] in text for one in mine)
        assert str(first.pid) in text
        status, shown = on_terminal(workspace, "list")
        assert status == 0
        assert max(len(line) for line in ESCAPE.sub("", shown).splitlines()) <= 80
        first.shut_down("core", now=True)
        second.die()
    entries = census.wait_until(
        lambda: [
            one
            for one in json.loads(run(workspace, "history", "--json").stdout)["entries"]
            if one["kernel_name"] in names
        ][1:],
        20,
        "both ends on record",
    )
    assert entries
    causes = {
        one["kernel_name"]: one["cause"]
        for one in json.loads(run(workspace, "history", "--json").stdout)["entries"]
    }
    assert causes["core"] == "shutdown"
    assert causes[names[1]] == "owner-died"
    text = run(workspace, "history", "--limit", "5").stdout
    assert "shut down" in text
    assert "ended because the process that owned it died" in text


# Root reads what it may not, unless this is taken from it.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_what_cannot_be_read_is_not_said_to_be_nothing(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "ownedkernels"
    folder.mkdir(mode=0)
    problem = f"{folder}: Permission denied"
    told = {}
    for command in ("list", "history", "doctor --json"):
        told[command] = subprocess.run(
            [*UNPRIVILEGED, *CLI, *command.split(), "--runtime-dir", str(tmp_path)],
            env=workspace.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    folder.chmod(0o700)
    for command in ("list", "history"):
        assert told[command].returncode == 0
        complaint = f"jupyter ownedkernels: not everything could be looked at: {problem}\n"
        assert told[command].stderr == complaint
    report = json.loads(told["doctor --json"].stdout)
    assert not report["complete"]
    assert problem in report["incomplete_reason"]


# -- detach ----------------------------------------------------------------------------


def test_detach_starts_what_outlives_the_shell(workspace: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("w") as stream:
        done = subprocess.run(
            [*CLI, "detach", "--", "sleep", "600"],
            env=workspace.environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            timeout=30,
            cwd=tmp_path,
        )
    assert done.returncode == 0
    pid, note = output.read_text().splitlines()
    proc = census.find(int(pid))
    try:
        line = census.line(proc.pid)
        assert line is not None
        assert line.session == proc.pid
        with open(f"/proc/{proc.pid}/status") as stream:
            ignored = next(one for one in stream if one.startswith("SigIgn"))
        assert int(ignored.split()[1], 16) & 1, "SIGHUP is ignored"
        assert "nothing to put on record" in note
        assert os.readlink(f"/proc/{proc.pid}/fd/1") == str(output), "its output is as given"
        assert not (tmp_path / "nohup.out").exists()
    finally:
        census.end([proc])


def test_detach_takes_the_terminal_away(workspace: Workspace, tmp_path: Path) -> None:
    script = "echo said; echo wrong >&2; cat; echo ended"
    status, said = on_terminal(workspace, "detach", "--", "sh", "-c", script, PWD=str(tmp_path))
    assert status == 0
    assert "output goes to" in said
    path = Path(re.findall(r"output goes to (.*)", said)[0])
    try:
        census.wait_until(lambda: "ended" in path.read_text(), 10, "the output")
        assert path.read_text().splitlines()[-3:] == ["said", "wrong", "ended"]
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        path.unlink()


def test_detach_from_a_kernel_is_on_record_and_kept(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        spec = workspace.python("snake")
        owner.start("snake", spec)
        command = [*CLI, "detach", "--", "sh", "-c", "exec sleep 600 >/dev/null 2>&1"]
        code = f"import subprocess; print(subprocess.check_output({command!r}).decode())"
        pid = int("".join(owner.execute("snake", code)))
        proc = census.find(pid)
        owner.shut_down("snake", now=True)
        assert census.runs(proc)
        found = json.loads(run(workspace, "doctor", "--json").stdout)["findings"]
        (finding,) = [one for one in found if one["pid"] == pid]
        assert finding["kind"] == "detached"
        assert finding["kernel_name"] == "snake"
        done = run(workspace, "clean", finding["id"], "p1")
        assert done.returncode == 2
        assert done.stderr.endswith("the number 1 (now); none was cleaned\n")
        assert census.runs(proc)
        assert not finding["by_default"]
        done = run(workspace, "clean", finding["id"], "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["results"][0]["outcome"] == "terminated"
        assert not census.left_after([proc], 5)
        told = run(workspace, "history").stdout
        assert re.search(r"snake +cleaned: 1 process terminated *$", told, re.MULTILINE)
        assert run(workspace, "history", "--limit", "0").stdout == ""


# -- doctor, clean: in a pid namespace, where there is nobody else -----------------------

SCENE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from jupyter_ownedkernels import identity
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord, Survivor
runtime = Path(os.environ["JUPYTER_RUNTIME_DIR"])
runtime.mkdir(parents=True)

def named(pid):
    return identity.of_pid(pid)

def sleeper():
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "600", "\\x1b]0;evil\\x07", "[bold]x[/]"][:2])
    time.sleep(0.05)
    return pid

def scene(stray=True, detached=True, files=3):
    pids = {}
    if stray:
        pids["stray"] = sleeper()
    if detached:
        pids["detached"] = sleeper()
    writer = os.fork()
    if writer == 0:
        one = Journal(journal.this_owner("crashed"), [str(runtime / "ownedkernels")])
        if stray:
            one.launching(LaunchRecord("l", "kernel-1", 1, "python3", ""))
            one.running("l", keeper=None, process=named(pids["stray"]), sessions=[pids["stray"]])
        if detached:
            it = named(pids["detached"])
            one.launching(LaunchRecord("d", "kernel-2", 1, "python3", ""))
            one.running("d", keeper=it and identity.of_self(), process=None, sessions=[])
            one.ended("d", None, [Survivor(it.pid, it.start_ticks, it.pid, "detached")])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(writer, 0)
    for number in range(files):
        path = runtime / ("kernel-" + str(number) + ".json")
        path.write_text(json.dumps({"ip": "127.0.0.1", "shell_port": 1}))
        os.utime(path, (1e9, 1e9))
    return pids

def cli(*args, **env):
    done = subprocess.run([sys.executable, "-W", "error", "-m", "jupyter_ownedkernels.cli", *args],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "80", **env})
    if "Traceback" in done.stderr:
        raise SystemExit(done.stderr)
    return [done.returncode, done.stdout, done.stderr]

def alive(pid):
    return os.waitpid(pid, os.WNOHANG) == (0, 0)

def answer(value):
    print("ANSWER " + json.dumps(value))
    sys.stdout.flush()
"""


def inside(script: str, **env: str) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="ok-cli-"))
    try:
        done = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SCENE + script],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY"))},
                "PYTHONPATH": str(ROOT),
                "HOME": str(folder),
                "XDG_RUNTIME_DIR": str(folder / "xdg"),
                "TMPDIR": str(folder),
                "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
                **env,
            },
            capture_output=True,
            text=True,
            timeout=90,
        )
    finally:
        shutil.rmtree(folder)
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            return json.loads(line.removeprefix("ANSWER "))
    raise AssertionError(done.stdout + done.stderr)


@needs_root
def test_exit_codes_of_the_doctor() -> None:
    codes = inside(
        """
codes = [cli("doctor")[0]]
pids = scene()
codes += [cli("doctor")[0], cli("doctor", "--detached")[0], cli("doctor", "--json")[0]]
codes += [cli("doctor", "--fix")[0], alive(pids["stray"]), alive(pids["detached"])]
codes += [cli("doctor")[0], cli("doctor", "--detached")[0]]
codes += [cli("doctor", "--fix", "--detached")[0], alive(pids["detached"])]
codes += [cli("doctor", "--detached")[0], sorted(os.listdir(runtime))]
answer(codes)
"""
    )
    assert codes == [0, 1, 1, 1, 0, False, True, 0, 1, 0, False, 0, ["ownedkernels"]]


@needs_root
def test_what_the_doctor_prints() -> None:
    (code, text, errors), (_, verbose, _), fixed, (_, again, _) = inside(
        """
scene(files=30)
said = [cli("doctor"), cli("doctor", "-v"), cli("doctor", "--fix")]
other = runtime.parent / "a b"
os.rename(runtime, other)
elsewhere = other / ("kernel-" + "1.json")
elsewhere.write_text(json.dumps({"ip": "127.0.0.1", "shell_port": 1}))
os.utime(elsewhere, (1e9, 1e9))
said.append(cli("doctor", "--runtime-dir", str(other), "--stale-file-age", "0.5"))
answer(said)
"""
    )
    assert (code, errors) == (1, "")
    assert "\x1b" not in text
    assert "1 stray kernel, 1 detached process, 30 stale files." in text
    assert "and 10 more stale files (--all shows each)" in text
    assert "jupyter ownedkernels doctor --fix" in text
    assert "--detached ends them as well" in text
    assert "doctor --fix --runtime-dir '/" in again
    assert "/a b' --stale-file-age 0.5\n" in again
    assert "(pid and start time are the same)" in verbose
    code, text, errors = fixed
    assert (code, errors) == (0, "")
    assert "terminated" in text
    assert "30 stale files removed." in text
    assert "1 detached process left." in text


@needs_root
def test_what_could_not_be_looked_at_is_not_said_to_be_clean() -> None:
    (code, text, errors), fixed, (_, clean, _) = inside(
        """
hide = 'mount -t proc -o subset=pid proc /proc && exec "$0" "$@"'
command = ["unshare", "--mount", "sh", "-c", hide, sys.executable, "-m", "jupyter_ownedkernels.cli"]
def hidden(*args):
    done = subprocess.run([*command, *args], capture_output=True, text=True)
    return [done.returncode, done.stdout, done.stderr]
answer([hidden("doctor"), hidden("doctor", "--fix")[:2], cli("doctor")])
"""
    )
    assert (code, errors) == (0, "")
    assert "Not everything could be looked at" in text
    assert "Nothing was found in what could be looked at." in text
    assert fixed == [0, text]
    assert "no stale files" not in text
    assert "no stale files" in clean


@needs_root
def test_a_fix_keeps_the_history_that_a_server_was_configured_to_keep() -> None:
    code, entries = inside(
        """
from jupyter_ownedkernels.runtime import records
scene(detached=False, files=0)
from jupyter_ownedkernels.models import Exit, State
end = Exit(0, None, False, None, "shutdown", 1, 0.5, 2e3, "x" * 400)
old = LaunchRecord("l", "k", 1, "python3", "", state=State.ENDED, exit=end, ended_at=2e3).to_json()
with open(runtime / "ownedkernels" / "history.jsonl", "wb") as stream:
    for number in range(2500):
        own = {"event": "launch", "owner_id": "server", "launch_id": str(number)}
        stream.write(records.encode({**old, **own}))
code = cli("doctor", "--fix")[0]
told = json.loads(cli("history", "--json", "--limit", "9999")[1])
answer([code, len(told["entries"])])
"""
    )
    assert code == 0
    assert entries > 2500


@needs_root
def test_json_of_the_doctor() -> None:
    report, fixed, cleaned = inside(
        """
scene()
report = json.loads(cli("doctor", "--json")[1])
ids = [one["id"] for one in report["findings"] if one["kind"] == "detached"]
fixed = json.loads(cli("doctor", "--fix", "--json")[1])
answer([report, fixed, json.loads(cli("clean", "--json", *ids)[1])])
"""
    )
    assert set(report) == {
        "scanned_at",
        "duration_ms",
        "complete",
        "incomplete_reason",
        "findings",
        "counts",
    }
    assert report["counts"] == {"stray_kernel": 1, "detached": 1, "stale_file": 3}
    assert set(fixed) == {"report", "results"}
    assert {one["outcome"] for one in fixed["results"]} == {"terminated", "removed"}
    assert fixed["report"]["counts"] == {"detached": 1}
    (result,) = cleaned["results"]
    assert set(result) == {"id", "kind", "outcome", "reason", "pid"}
    assert result["outcome"] == "terminated"


@needs_root
def test_clean_takes_the_beginning_of_an_id() -> None:
    dry, done, again, wrong, vague, other, named = inside(
        """
pids = scene()
ticks = named(pids["stray"]).start_ticks
name = "p" + str(pids["stray"])
dry = [cli("clean", "--dry-run", name)[0], alive(pids["stray"])]
done = [cli("clean", name)[:2], alive(pids["stray"])]
other = cli("clean", "p" + str(os.getpid()) + "-7")
answer([dry, done, cli("clean", name), cli("clean", "nonsense"), cli("clean", "f-"), other,
        cli("clean", name + "-" + str(ticks))])
"""
    )
    assert dry == [0, True]
    assert done[0][0] == 0
    assert "terminated" in done[0][1]
    assert done[1] is False
    assert again[0] == 2
    assert "nothing that the doctor finds has the number" in again[2]
    assert wrong[0] == 1
    assert "no scan gives such ids" in wrong[1]
    assert "identity-changed" in other[1], "its number is another's now"
    assert other[0] == 0, "the one that was meant has ended"
    assert named[0] == 0
    assert "already-gone" in named[1]
    assert vague[0] == 2
    assert "is not unique" in vague[2]


@needs_root
def test_a_table_on_a_terminal_has_80_columns_and_obeys_no_color() -> None:
    plain, coloured = inside(
        """
import pty
def on_terminal(*args, **env):
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-m", "jupyter_ownedkernels.cli", *args],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **env})
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:
        pass
    child.wait()
    return said.decode()
scene(files=25)
answer([on_terminal("doctor", NO_COLOR="1"), on_terminal("doctor")])
"""
    )
    for text in (plain, coloured):
        lines = ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
        # The progress line is written over.
        lines = [line.rpartition("\r")[2] for line in lines]
        assert max(map(len, lines)) <= 80
        assert any("stray kernel" in line for line in lines)
    colours = re.compile(r"\x1b\[[0-9;]*m")
    assert not [code for code in colours.findall(plain) if re.search(r"[349][0-7]", code)]
    assert colours.search(coloured)


@needs_root
def test_watching_goes_on_until_it_is_interrupted() -> None:
    code, reports = inside(
        """
child = subprocess.Popen([sys.executable, "-m", "jupyter_ownedkernels.cli", "doctor", "--json",
    "--watch", "0.2"], stdout=subprocess.PIPE, text=True)
seen = ""
while seen.count('"scanned_at"') < 3:
    seen += child.stdout.readline()
child.send_signal(signal.SIGINT)
child.stdout.read()
answer([child.wait(), seen.count('"scanned_at"')])
"""
    )
    assert code == 0
    assert reports >= 3


@needs_root
def test_every_user_for_root() -> None:
    code, told, text = inside(
        """
scene()
one = cli("doctor", "--all-users", "--json")
answer([one[0], json.loads(one[1]), cli("doctor", "--all-users")[1]])
"""
    )
    assert code in (0, 1)
    assert {"user", "uid", "report", "results"} <= set(told["users"][0]) | {"report", "results"}
    assert isinstance(text, str)


@needs_root
def test_reading_of_the_output_may_end_early() -> None:
    code = inside(
        """
scene(files=5000)
child = subprocess.Popen([sys.executable, "-W", "error", "-m", "jupyter_ownedkernels.cli",
    "doctor", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
child.stdout.readline()
child.stdout.close()
errors = child.stderr.read()
answer([child.wait(), errors])
"""
    )
    assert code == [141, ""], "neither nothing found nor something left: nobody has read it"


@pytest.mark.parametrize("args", [("doctor",), ("list",), ("clean", "x")])
def test_a_dumb_terminal_gets_no_control_codes(workspace: Workspace, args: tuple[str, ...]) -> None:
    status, said = on_terminal(workspace, *args, TERM="dumb")
    assert status in (0, 1), "strays of whoever runs the test are none of its business"
    assert "\x1b" not in said
    assert "\r" not in said


# -- words -----------------------------------------------------------------------------


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b]0;evil\x07b\nc") == "a\\x1b]0;evil\\x07b\\nc"
    assert printable("é\udcff") == "é?"


def test_sizes_and_times() -> None:
    assert [memory(n) for n in (None, 0, 999, 1500, 93_000_000, 11_800_000_000)] == [
        "-",
        "0 B",
        "999 B",
        "1.5 kB",
        "93 MB",
        "11.8 GB",
    ]
    assert [duration(n) for n in (None, 5, 300, 7300, 1e6)] == ["-", "5 s", "5 min", "2 h", "11 d"]


def test_what_is_no_id_is_shown_whole() -> None:
    assert short_ids(["p1", "px", "p12-34-0123456789ab"])["p1"] == "p1"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "arguments", ["doctor", "doctor --json", "history", "list", "clean nonsense"]
)
def test_closed_streams(workspace: Workspace, arguments: str, closed: str) -> None:
    """What has no stream says nothing there, and nowhere else either."""
    command = f'"$0" -W error -m jupyter_ownedkernels.cli {arguments} {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        capture_output=True,
        text=True,
        env=workspace.environment(),
    )
    assert done.returncode == (1 if arguments == "clean nonsense" else 0)
    assert done.stderr == ""
    assert (done.stdout == "") == (closed != "2>&-")


@pytest.fixture(params=["nobody reads", "no room"])
def broken(request: pytest.FixtureRequest) -> Iterator[tuple[int, bool]]:
    """Where nothing can be written to, and whether it is for want of a reader."""
    if request.param == "no room":
        place = os.open("/dev/full", os.O_WRONLY)
    else:
        ours, place = os.pipe()
        os.close(ours)
    yield place, request.param == "nobody reads"
    os.close(place)


@pytest.mark.parametrize(
    "arguments", ["list", "list --json", "history", "clean x", "completion bash", "doctor --help"]
)
def test_output_that_goes_nowhere(
    workspace: Workspace, broken: tuple[int, bool], arguments: str
) -> None:
    """Neither a traceback, nor a status that says what was found."""
    place, read_by_nobody = broken
    done = subprocess.run(
        [*CLI, *arguments.split()],
        stdin=subprocess.DEVNULL,
        stdout=place,
        stderr=subprocess.PIPE,
        env={**workspace.environment(), "PYTHONUNBUFFERED": ""},
    )
    if read_by_nobody:
        assert (done.returncode, done.stderr) == (141, b"")
    else:
        assert done.returncode == 2
        assert done.stderr == b"jupyter ownedkernels: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "status"), [("clean p4711", 2), ("clean f", 1), ("frobnicate", 64)]
)
def test_complaints_that_go_nowhere(
    workspace: Workspace, broken: tuple[int, bool], arguments: str, status: int
) -> None:
    done = subprocess.run(
        [*CLI, *arguments.split()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=broken[0],
        env=workspace.environment(),
    )
    assert done.returncode == status


def test_signs_that_the_encoding_does_not_have(workspace: Workspace) -> None:
    done = run(workspace, "clean", "\u00fcb\udcff", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")
    assert "\\xfcb? " in done.stdout


def test_short_ids_stay_unique() -> None:
    ids = ["p12-5-abcdefabcdef", "p123-5-abcdefabcdef", "f-abcdefabcdef", "f-abcdefabcdee"]
    short = short_ids(ids)
    assert short["p123-5-abcdefabcdef"] == "p123-5"
    assert len(set(short.values())) == 4
    for whole, beginning in short.items():
        assert _whole_id(beginning, ids) == whole


@pytest.mark.parametrize(
    ("outcome", "pid", "done"),
    [
        ("already-gone", None, True),
        ("identity-changed", 7, True),
        ("identity-changed", None, False),  # a file that was written again
        ("not-permitted", 7, False),
        ("kept", None, False),
    ],
)
def test_what_counts_as_done(outcome: str, pid: int | None, done: bool) -> None:
    assert _is_done({"outcome": outcome, "pid": pid}) is done


def test_no_other_finding_is_taken_for_the_one_that_is_named() -> None:
    ids = ["p4711-50-abcdefabcdef", "f-abcdefabcdef", "o-abcdefabcdef"]
    for text in ("p4711-5", "4711"):
        assert _whole_id(text, ids) == text, "which no finding has"
    for text in ("p471", "p47110"):
        with pytest.raises(OwnedKernelsError, match=text[1:]):
            _whole_id(text, ids)
    for text in ("p4711", "p4711-", "p4711-50", "p4711-50-a"):
        assert _whole_id(text, ids) == ids[0]
    for text in ("", "p", "f", "f-", "o-"):
        only = next(one for one in ids if one.startswith(text))
        with pytest.raises(BadRequest):
            _whole_id(text, [only])


def test_completion_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    assert "complete -F" in capsys.readouterr().out
