"""Start-up recovery against owners that were really killed, with their helpers or without."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import census
from support.census import Proc
from support.fence import look_of
from support.owner import Owner
from support.workspace import SHELL, Workspace

from jupyter_ownedkernels import recovery
from jupyter_ownedkernels.doctor.estate import Estates
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import LaunchRecord
from jupyter_ownedkernels.processes.snapshot import Snapshot
from jupyter_ownedkernels.recovery import Recovery

SOAK = os.environ.get("OWNEDKERNELS_SOAK", "") not in ("", "0")
pytestmark = pytest.mark.timeout(3000 if SOAK else 180)

HELPERS = ("spawner", "keeper")
ROLES = (*HELPERS, "kernel", "child")
STOPPED = census.Line(Proc(0, 0), "", "T", 0, 0, 0, 1)
DETACHED = ("new_session", "nohup", "daemon")


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    made = Workspace()
    # Behind a shell the kernel has no parent-death signal: it outlives its keeper.
    made.mini("core", "children", wrapper=SHELL)
    made.mini("fork", "socket_holder", wrapper=SHELL)
    made.mini("detached", "detached", wrapper=SHELL)
    made.mini(
        "killing", "detached", SHELL, metadata={"ownedkernels": {"detached_processes": "kill"}}
    )
    made.mini("stubborn", "stubborn", wrapper=SHELL)
    yield made
    left = census.describe(census.left_after(made.processes(), 10))
    made.close()
    assert not left, f"left behind: {left}"


@pytest.fixture
def innocent(workspace: Workspace) -> Iterator[set[Proc]]:
    """All processes of a living owner with a kernel: they must live on."""
    assert not census.left_after(workspace.processes(), 20), "of the test before"
    with Owner(workspace) as owner:
        owner.start("innocent", "core")
        shell = workspace.note("core")["shell"]
        census.wait_until(lambda: census.children(shell.pid), 10, "the child of its shell")
        workspace.forget_note("core")
        spared = workspace.processes()
        yield spared
        assert all(census.runs(proc) for proc in spared)


def folders(workspace: Workspace) -> list[str]:
    return [str(workspace.runtime / "ownedkernels")]


def recover(workspace: Workspace, **options: object) -> Recovery:
    where, look = str(workspace.runtime), look_of(workspace)
    return recovery.recover(folders(workspace), (where,), look=look, **options)  # type: ignore[arg-type]


def journals_of_the_dead(workspace: Workspace) -> list[str]:
    return [
        path
        for path in journal.find(folders(workspace))
        if journal.owner_verdict(journal.read(path)).proves_death
    ]


def crash(owner: Owner, helpers: set[Proc]) -> None:
    """Stop the helpers, so that none can act, and kill the owner."""
    for proc in helpers:
        stop(proc)
    owner.die()


def stop(proc: Proc) -> None:
    os.kill(proc.pid, signal.SIGSTOP)
    census.wait_until(lambda: (census.line(proc.pid) or STOPPED).state == "T", 5, "it stops")


@pytest.mark.parametrize(
    "dead",
    [set(c) for n in range(5) for c in itertools.combinations(ROLES, n)],
    ids=lambda dead: "-".join(sorted(dead)) or "none",
)
def test_every_combination_of_dead_and_living(
    workspace: Workspace, innocent: set[Proc], dead: set[str]
) -> None:
    """Living helpers are stopped ones, the hardest case: recovery has to wake them."""
    with Owner(workspace) as owner:
        owner.start("core", "core")
        owner.start("detached", "detached")
        note, outside = workspace.note("core"), workspace.note("detached")
        for name in ("core", "detached"):
            workspace.forget_note(name)
        spawner, keepers = owner.spawner(), set(owner.keepers())
        everything = workspace.processes() - innocent
        kept = {outside[name] for name in DETACHED}
        crash(owner, {spawner, *keepers})
        if "spawner" in dead:
            census.end([spawner])
        if "keeper" in dead:
            census.end(keepers)
        if "kernel" in dead:
            census.end([note["kernel"]])
        if "child" in dead:
            census.end([note["child"], note["shell"]])
        done = recover(workspace)
        left = census.left_after(everything - kept - {spawner}, 5)
        assert not census.describe(left)
        assert all(census.runs(proc) for proc in kept)
        assert done.leftovers == ()
        assert not files_of_the_dead(workspace)
        # The journal of a launch with living detached processes stays; else it is removed.
        (path,) = journals_of_the_dead(workspace)
        view = journal.read(path)
        assert not view.open
        assert {s.pid for _, s, _ in view.survivors()} >= {proc.pid for proc in kept}
        census.end({*kept, *({outside["bare"]} if census.runs(outside["bare"]) else set())})
        if "spawner" not in dead:
            os.kill(spawner.pid, signal.SIGCONT)
            assert not census.left_after([spawner], 5)
        again = recover(workspace)
        assert not again.did_something
        assert journals_of_the_dead(workspace) == []


def files_of_the_dead(workspace: Workspace) -> set[str]:
    """Connection files that no living owner has on record."""
    living = {
        os.path.basename(launch.connection_file)
        for path in journal.find(folders(workspace))
        if not journal.owner_verdict(journal.read(path)).proves_death
        for launch in journal.read(path).launches.values()
    }
    return set(workspace.connection_files()) - living


def killed_with_helpers(workspace: Workspace, *specs: str) -> dict[str, dict[str, Proc]]:
    """Start the kernels, then kill their owner and all helpers; what still runs by name."""
    notes: dict[str, dict[str, Proc]] = {}
    with Owner(workspace) as owner:
        for spec in specs:
            owner.start(spec, spec)
            notes[spec] = workspace.note(spec)
            workspace.forget_note(spec)
        helpers = {owner.spawner(), *owner.keepers()}
        wrappers = {w for k in owner.keepers() for w in census.children(k.pid, "sh")}
        crash(owner, helpers)
        census.end(helpers)
        assert not census.left_after(helpers | wrappers, 5)
    return notes


def test_a_fork_that_holds_the_kernels_ports_is_ended(workspace: Workspace) -> None:
    notes = killed_with_helpers(workspace, "fork")
    census.end([notes["fork"]["kernel"]])
    assert census.runs(notes["fork"]["fork"])
    recover(workspace)
    assert not census.left_after(notes["fork"].values(), 5)
    assert workspace.connection_files() == []


def test_detached_processes_end_under_the_policy_kill(workspace: Workspace) -> None:
    notes = killed_with_helpers(workspace, "killing")
    recover(workspace)
    marked = {proc for name, proc in notes["killing"].items() if name != "bare"}
    assert not census.left_after(marked, 5)
    census.end([notes["killing"]["bare"]])


def test_what_ignores_sigterm_gets_sigkill_after_the_grace(workspace: Workspace) -> None:
    notes = killed_with_helpers(workspace, "stubborn")
    done = recover(workspace, grace=0.3)
    assert not census.left_after(notes["stubborn"].values(), 1)
    assert done.killed >= 1
    assert done.leftovers == ()


def test_report_touches_nothing(workspace: Workspace) -> None:
    notes = killed_with_helpers(workspace, "core")
    before = workspace.connection_files()
    done = recover(workspace, mode="report")
    assert done.mode == "report"
    assert done.processes == 4
    assert len(done.kernels) == 1
    assert all(census.runs(proc) for proc in notes["core"].values())
    assert workspace.connection_files() == before
    assert len(journals_of_the_dead(workspace)) == 1
    assert recover(workspace).processes == 4


def test_files_of_dead_servers_go_with_their_journals(workspace: Workspace) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with Owner(workspace) as living, Owner(workspace) as dead:
        for owner in (living, dead):
            owner.start("core", "core")
            workspace.note("core")
            workspace.forget_note("core")
        for pid in (living.pid, dead.pid, gone.pid):
            info = json.dumps({"pid": pid, "port": 1, "token": "s3cret"})
            (workspace.runtime / f"jpserver-{pid}.json").write_text(info)
            (workspace.runtime / f"jpserver-{pid}-open.html").write_text("<a href='?token=s3cret'>")
        dead.die()
        files = set(workspace.runtime.glob("jpserver-*"))
        try:
            done = recover(workspace)
            # That no journal names may be of a server in a container; it has to grow old.
            stay = {path for path in files if f"-{dead.pid}" not in path.name}
            assert set(workspace.runtime.glob("jpserver-*")) == stay
            assert {path for path in done.files if "jpserver" in path} == set(
                map(str, files - stay)
            )
        finally:
            for path in workspace.runtime.glob("jpserver-*"):
                path.unlink()
    recover(workspace)


def test_it_tells_what_it_did_and_the_history_keeps_it(workspace: Workspace) -> None:
    killed_with_helpers(workspace, "core")
    (dead,) = (journal.read(path) for path in journal.find(folders(workspace)))
    done = recover(workspace)
    assert done.owners == 1
    assert len(done.files) == 1
    assert done.message == ("ended 4 processes of 1 kernel whose owner has died, removed 1 file")
    assert done.to_json()["message"] == done.message
    newest = journal.history(folders(workspace), 10)
    (ended,) = (
        entry for entry in newest if (entry.event, entry.kernel_id) == ("ended", done.kernels[0])
    )
    assert (ended.cause, ended.by) == ("owner-died", "recovery")
    (told,) = (
        entry
        for entry in newest
        if (entry.event, entry.kernel_id) == ("recovered", ended.kernel_id)
    )
    assert (told.count, told.kernel_name) == (4, "core")
    assert dead.owner is not None
    assert dead.owner.identity is not None
    whose = f"left by process {dead.owner.identity.pid}"
    assert told.message == f"ended 4 processes and removed 1 file of 1 kernel, {whose}"


def test_a_recovery_of_several_kernels_is_of_none_of_them(workspace: Workspace) -> None:
    killed_with_helpers(workspace, "core", "fork")
    done = recover(workspace)
    newest = journal.history(folders(workspace), 3)
    (told,) = (entry for entry in newest if entry.event == "recovered")
    assert (told.kernel_id, told.count) == (None, done.processes)
    assert told.message is not None
    assert told.message.startswith(f"ended {done.processes} processes and removed 2 files of 2 k")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_living_keeper_finishes_by_itself(workspace: Workspace, stopped: bool) -> None:
    """It takes its second: something ignores SIGTERM. Nobody else signals meanwhile."""
    with Owner(workspace) as owner:
        owner.start("stubborn", "stubborn")
        note = workspace.note("stubborn")
        workspace.forget_note("stubborn")
        (keeper,) = owner.keepers()
        if stopped:
            stop(keeper)
        owner.die()
        done = recover(workspace, patience=30.0)
        assert not census.left_after([*note.values(), keeper], 1)
        assert (done.processes, done.killed) == (0, 0)
    ended = next(e for e in journal.history(folders(workspace), 5) if e.event == "ended")
    assert ended.by == "keeper"


def test_a_keeper_that_never_finishes_is_not_waited_for_without_end(workspace: Workspace) -> None:
    with Owner(workspace) as owner:
        owner.start("core", "core")
        note = workspace.note("core")
        workspace.forget_note("core")
        (keeper,) = owner.keepers()
        stop = threading.Event()

        def hold() -> None:
            while not stop.wait(0.001):
                try:
                    os.kill(keeper.pid, signal.SIGSTOP)
                except ProcessLookupError:
                    return

        holder = threading.Thread(target=hold)
        holder.start()
        try:
            owner.die()
            done = recover(workspace, patience=0.2, grace=0.2)
        finally:
            stop.set()
            holder.join()
        assert not census.left_after([*note.values(), keeper], 5)
        assert done.leftovers == ()


def together(workspace: Workspace, count: int) -> list[Recovery]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: recover(workspace), range(count)))


def test_several_recoveries_at_once(workspace: Workspace, soak: bool) -> None:
    for _ in range(100 if soak else 2):
        notes = killed_with_helpers(workspace, "core")
        results = together(workspace, 3)
        assert not census.left_after(notes["core"].values(), 5)
        assert sum(done.processes for done in results) == 4, "one of them did it all"
        assert journals_of_the_dead(workspace) == []


def test_a_locked_journal_is_left_alone(workspace: Workspace) -> None:
    notes = killed_with_helpers(workspace, "core")
    (path,) = journals_of_the_dead(workspace)
    claim = journal.claim(path)
    assert claim is not None
    with claim:
        assert not recover(workspace).did_something
        assert all(census.runs(proc) for proc in notes["core"].values())
    assert recover(workspace).processes == 4


def test_the_owner_is_proven_dead_again_once_its_journal_is_claimed(workspace: Workspace) -> None:
    """Where nobody can lock, a free lock says nothing: this owner lives."""
    one = Journal(journal.this_owner("unlocked"), folders(workspace))
    one.launching(LaunchRecord("l", "k", 1, "python3", ""))
    path = one.path
    assert path is not None
    one.close()
    assert os.path.exists(path)
    with Estates(folders(workspace), [], look_of(workspace)) as estates:
        assert not estates.claim(path)
        assert estates.refused == {path: "its owner is not proven dead any more"}
        assert estates.claimed == {}
    os.unlink(path)


@pytest.fixture
def port_of_the_dead(workspace: Workspace, innocent: set[Proc]) -> Iterator[socket.socket]:
    """Something of this process listens where a kernel did that died with owner and helpers."""
    recover(workspace)  # The owner beside the test before this one was killed with its keepers.
    killed_with_helpers(workspace, "core")
    left = workspace.processes() - innocent
    census.end(left)
    assert not census.left_after(left, 5)
    (name,) = files_of_the_dead(workspace)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        info = json.loads((workspace.runtime / name).read_text())
        listener.bind((info["ip"], info["iopub_port"]))
        listener.listen()
        yield listener
    recover(workspace)
    assert not files_of_the_dead(workspace)
    assert not journals_of_the_dead(workspace)


def test_a_file_that_may_be_in_use_stays_on_record(
    workspace: Workspace, port_of_the_dead: socket.socket
) -> None:
    done = recover(workspace)
    (name,) = files_of_the_dead(workspace)
    assert done.doubts == {str(workspace.runtime / name): "something listens on its ports"}
    assert done.message.endswith("; 1 file may be in use")
    again = recover(workspace)
    assert again.message == "1 file that may be in use was left by servers that have died"
    assert journals_of_the_dead(workspace)
    port_of_the_dead.close()
    assert recover(workspace).files == (str(workspace.runtime / name),)
    assert not journals_of_the_dead(workspace)


def test_what_says_so_may_be_gone_at_the_next_look(
    workspace: Workspace, port_of_the_dead: socket.socket
) -> None:
    looked = []

    def look() -> Snapshot:
        found = look_of(workspace)()
        looked.append(found.listeners)
        if len(looked) > 2:  # The first two judge owners and processes.
            port_of_the_dead.close()
        return found

    (name,) = files_of_the_dead(workspace)
    done = recovery.recover(folders(workspace), [str(workspace.runtime)], look=look)
    assert done.files == (str(workspace.runtime / name),)
    assert not done.doubts


def test_a_journal_does_not_wait_for_an_old_file(
    workspace: Workspace, port_of_the_dead: socket.socket
) -> None:
    (name,) = files_of_the_dead(workspace)
    path = workspace.runtime / name
    two_hours_ago = path.stat().st_mtime - 7200
    os.utime(path, (two_hours_ago, two_hours_ago))
    assert list(recover(workspace).doubts) == [str(path)]
    assert not journals_of_the_dead(workspace)
    path.unlink()


def test_nothing_to_recover_costs_nothing(workspace: Workspace, innocent: set[Proc]) -> None:
    done = recover(workspace)
    assert not done.did_something
    assert done.message == "nothing was left by servers that have died"


# -- crashes between the steps of a launch and of an end -------------------------------

DIE = """
def die(*_, **__):
    import contextlib, signal
    from support import census
    helpers = []
    for one in census.below(os.getpid()):
        seen = census.line(one.pid)  # None for one that ends just now
        if seen is not None and seen.name in ("kernel-spawner", "kernel-keeper"):
            helpers.append(one)
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for one in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signum)
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    setattr(owner, name, die)

def after(owner, name):
    original = getattr(owner, name)
    def both(*args, **kwargs):
        answer = original(*args, **kwargs)
        die()
        return answer
    setattr(owner, name, both)

sys.path.insert(0, tests)
from jupyter_client.manager import KernelManager
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.launching.launcher import Launcher
"""
START_GAPS = {
    "before the intent is on record": "before(Journal, 'launching')",
    "after the intent is on record": "after(Journal, 'launching')",
    "after the request": "after(Launcher, 'submit')",
    "before the start is on record": "before(Journal, 'running')",
    "after the start is on record": "after(Journal, 'running')",
    "before the kernel is on record": "before(Journal, 'kernel')",
    "after the kernel is on record": "after(Journal, 'kernel')",
}
END_GAPS = {
    "before the end is announced": "before(Journal, 'retiring')",
    "after the end is announced": "after(Journal, 'retiring')",
    "before the end is on record": "before(Journal, 'ended')",
    "after the end is on record": "after(Journal, 'ended')",
    "before the connection file is removed": "before(KernelManager, 'cleanup_connection_file')",
    "after the connection file is removed": "after(KernelManager, 'cleanup_connection_file')",
}


@pytest.mark.parametrize("gap", START_GAPS)
def test_crash_between_two_steps_of_a_launch(
    workspace: Workspace, innocent: set[Proc], gap: str
) -> None:
    with Owner(workspace) as owner:
        owner.run(DIE + START_GAPS[gap], tests=str(os.path.dirname(__file__)))
        owner.tell("result = start('core', 'core')")
        assert not census.left_after([owner.proc], 60)
        _all_is_recovered(workspace, innocent, on_record="before the intent" not in gap)


@pytest.mark.parametrize("gap", END_GAPS)
def test_crash_between_two_steps_of_an_end(
    workspace: Workspace, innocent: set[Proc], gap: str
) -> None:
    with Owner(workspace) as owner:
        owner.start("core", "core")
        workspace.note("core")
        owner.run(DIE + END_GAPS[gap], tests=str(os.path.dirname(__file__)))
        owner.tell("shut_down('core', now=True)")
        assert not census.left_after([owner.proc], 60)
        _all_is_recovered(workspace, innocent)


def _all_is_recovered(workspace: Workspace, innocent: set[Proc], on_record: bool = True) -> None:
    done = recover(workspace)
    workspace.forget_note("core")
    left = census.left_after(workspace.processes() - innocent, 5)
    assert not census.describe(left)
    assert journals_of_the_dead(workspace) == []
    left_files = files_of_the_dead(workspace)
    # Written before anything is on record it is a stale file, once it is old.
    assert len(left_files) == (0 if on_record else 1), (done, done.doubts)
    for name in left_files:
        (workspace.runtime / name).unlink()


@pytest.mark.parametrize("how", ["removed", "moved", "made useless"])
def test_a_journal_that_is_taken_away_while_kernels_run(
    workspace: Workspace, innocent: set[Proc], how: str
) -> None:
    """A keeper knows the path of its launch; the end is there, or is put on record later."""
    aside = workspace.runtime / "aside"
    other = workspace.path / "other"
    private = workspace.path / "private"
    private.mkdir(mode=0o700)
    recover(workspace)  # The owner beside the test before this one was killed with its keepers.
    with Owner(workspace, env={"XDG_RUNTIME_DIR": str(private)}) as owner:
        owner.set(journal_dir=str(other / "first"))
        owner.start("first", "core")
        note = workspace.note("core")
        workspace.forget_note("core")
        if how == "moved":
            os.rename(other / "first", aside)
        else:
            shutil.rmtree(other / "first")
        if how == "made useless":
            (other / "first").write_text("no folder")
        owner.start("second", "core")
        note.update({f"second {name}": proc for name, proc in workspace.note("core").items()})
        workspace.forget_note("core")
        path = owner.run(
            "from jupyter_ownedkernels import ownership\nresult = ownership.current().journal.path"
        )
        owner.die()
        assert not census.left_after(note.values(), 10)
        assert not census.left_after(workspace.processes() - innocent, 10)
        assert "Traceback" not in owner.errors()
    assert not files_of_the_dead(workspace)
    assert (os.path.dirname(path) == str(other / "first")) == (how != "made useless")
    mine = os.path.dirname(path)
    recovery.recover([mine], [str(workspace.runtime)], look=look_of(workspace))
    told = {entry.launch_id: entry for entry in journal.history([mine])}
    assert len([one for one in told.values() if one.event == "ended"]) == 2
    for left in (aside, other, private):
        shutil.rmtree(left, ignore_errors=True)
