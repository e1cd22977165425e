"""A forked kernel is the same as an executed one in every way that a program can see."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from warm_kernels import Kennel, Kernel, until

PROBE = (Path(__file__).parent / "probe.py").read_text()
# Other interpreters with ipykernel, separated by colons, to be put to the same test.
OTHERS = [path for path in os.environ.get("OWNEDKERNELS_TEST_PYTHONS", "").split(":") if path]


def look(kernel: Kernel) -> dict[str, Any]:
    kernel.run(PROBE)
    seen = json.loads(kernel.run("import json as _j; print(_j.dumps(look(), default=str))"))
    assert len(seen) > 40
    return dict(seen)


def differences(kennel: Kennel, *ways: str, **changes: Any) -> dict[str, Any]:
    """What differs from an executed kernel, by way and aspect: (executed, other)."""
    assert kennel.warm_up()["state"] == "ready", kennel.pool.to_json()
    # A first one makes the profile, the history and the byte code.
    kennel.start("exec", **changes).run("1")
    executed = look(kennel.start("exec", **changes))
    found = {}
    for how in ways or ("fork", "standby"):
        other = look(kennel.start(how, **changes))
        assert executed.keys() == other.keys()
        for aspect in executed:
            if executed[aspect] != other[aspect]:
                found[how, aspect] = (executed[aspect], other[aspect])
    return found


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_nothing_differs(kennel: Kennel, python: str) -> None:
    kennel.argv[0] = python
    assert differences(kennel) == {}


def test_nothing_differs_with_flags_of_the_kernelspec(kennel: Kennel) -> None:
    kennel.argv[1:1] = ["-Xfrozen_modules=off", "-W", "ignore::UserWarning", "-s", "-X", "utf8"]
    assert differences(kennel) == {}


def test_nothing_differs_under_a_configured_environment(kennel: Kennel) -> None:
    kennel.environment.update(
        PYTHONWARNINGS="error::FutureWarning",
        PYTHONFAULTHANDLER="1",
        LC_ALL="C",
        TZ="Asia/Kathmandu",
        OMP_NUM_THREADS="1",
        JPY_SESSION_NAME="/some/notebook.ipynb",
        SOMETHING_OF_MINE="ä=ö\nü",
    )
    assert differences(kennel, umask=0o27) == {}


def test_nothing_differs_with_profile_and_startup_file(kennel: Kennel) -> None:
    profile = kennel.folder / "ipython" / "profile_default"
    (profile / "startup").mkdir(parents=True)
    (profile / "startup" / "10-mine.py").write_text("import this_folder\nmine = 'startup'\n")
    (kennel.folder / "this_folder.py").write_text("")
    (profile / "ipython_config.py").write_text(
        "c.InteractiveShellApp.extensions = ['storemagic']\n"
        "c.InteractiveShellApp.exec_lines = ['configured = 1']\n"
        "c.InteractiveShell.ast_node_interactivity = 'all'\n"
    )
    assert differences(kennel, "fork") == {}
    assert kennel.start("fork").value("(mine, configured)") == ("startup", 1)


def test_nothing_differs_with_startup_file_only(kennel: Kennel) -> None:
    startup = kennel.folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "10-mine.py").write_text("import os\nmine = os.getcwd()\n")
    assert differences(kennel) == {}
    assert kennel.start("standby").value("mine") == str(kennel.cwd)


def test_nothing_differs_for_other_arguments_and_folders(kennel: Kennel) -> None:
    kennel.argv = [sys.executable, "-m", "ipykernel", "--IPKernelApp.log_level=40", "-f"]
    kennel.cwd = kennel.folder / "ordner mit ümlaut"
    kennel.cwd.mkdir()
    assert differences(kennel) == {}


@pytest.mark.parametrize("how", ["fork", "standby"])
def test_two_kernels_draw_different_numbers(shared: Kennel, how: str) -> None:
    draw = (
        "[__import__('random').random(), __import__('uuid').uuid4().hex,"
        " __import__('uuid').uuid1().hex, __import__('secrets').token_hex(8),"
        " __import__('ssl').RAND_bytes(8), __import__('tempfile').mktemp(),"
        " bytes(__import__('multiprocessing').current_process().authkey)]"
    )
    one, other = (shared.start(how).value(draw) for _ in range(2))
    assert all(a != b for a, b in zip(one, other, strict=True)), (one, other)


SCRIPTS = {
    "fork": """
import multiprocessing
print(multiprocessing.get_context("fork").Pool(2).map(abs, [-1, -2]))
""",
    "spawn": """
import multiprocessing
print(multiprocessing.get_context("spawn").Pool(2).map(abs, [-1, -2]))
""",
    "forkserver": """
import multiprocessing
print(multiprocessing.get_context("forkserver").Pool(2).map(abs, [-1, -2]))
""",
    "futures": """
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print(list(pool.map(abs, [-1, -2])))
""",
    "processes": """
import concurrent.futures, multiprocessing
context = multiprocessing.get_context("spawn")
with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
    print(list(pool.map(abs, [-1, -2])))
""",
    "subprocess": """
import subprocess, sys
out = subprocess.run([sys.executable, "-c", "print([1, 2])"], capture_output=True, text=True)
print(out.stdout.strip() if out.returncode == 0 else out)
""",
    "wait": """
import os
pid = os.fork()
if pid == 0:
    os._exit(7)
print([1, 2] if os.waitstatus_to_exitcode(os.wait()[1]) == 7 else "lost")
""",
    "no_children": """
import os
try:
    print("a child", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print([1, 2])
""",
    "asyncio": """
import asyncio
process = await asyncio.create_subprocess_exec("true")
print([1, 2] if await process.wait() == 0 else "failed")
""",
    "shell": """
print([1, 2] if get_ipython().getoutput("echo hallo") == ["hallo"] else "no")
""",
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_processes_and_pools(warm: Kernel, what: str) -> None:
    # Since Python 3.12, of a fork where threads run, printed before or after the result.
    warm.run("import warnings; warnings.filterwarnings('ignore', '.*multi-threaded')")
    assert warm.run(SCRIPTS[what]).splitlines()[-1] == "[1, 2]"


def test_input_is_asked_of_the_client(warm: Kernel) -> None:
    def answer(message: dict[str, Any]) -> None:
        warm.client.input(message["content"]["prompt"] + "42")

    assert warm.run("print(input('n='))", allow_stdin=True, stdin_hook=answer) == "n=42\n"


def test_interrupt_raises_keyboard_interrupt(warm: Kernel) -> None:
    code = (
        "import time\ntry:\n    print('go', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted')"
    )
    message = warm.client.execute(code)

    def next_text() -> str:
        while True:
            heard = warm.client.get_iopub_msg(timeout=30)
            if heard["msg_type"] == "stream" and heard["parent_header"]["msg_id"] == message:
                return str(heard["content"]["text"])

    assert next_text() == "go\n"
    warm.launch.signal(2)
    assert next_text() == "interrupted\n"


def test_exit_handlers_run_and_the_status_is_the_kernels(shared: Kennel, warm: Kernel) -> None:
    kernel = warm
    note = shared.folder / f"atexit-{warm.pid}"
    kernel.run(f"import atexit; atexit.register(lambda: open({str(note)!r}, 'w').write('x'))")
    kernel.client.shutdown()
    exited = kernel.launch.exited.result(30)
    assert exited.status == 0
    assert note.read_text() == "x"


def test_a_status_of_its_own_is_reported(warm: Kernel) -> None:
    kernel = warm
    kernel.client.execute("import os; os._exit(41)")
    assert kernel.launch.exited.result(30).status == 41


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("how", ["exec", "fork"])
def test_output_of_the_process_goes_to_the_given_terminal(
    tmp_path: Path, how: str, unbuffered: str
) -> None:
    """What is not captured; flushed at each line, unless there is no buffer."""
    kennel = Kennel(tmp_path)
    kennel.environment["PYTHONUNBUFFERED"] = unbuffered
    assert kennel.warm_up()["state"] == "ready"
    main, terminal = os.openpty()
    try:
        with kennel.stdio(terminal) as stdio:
            if how == "fork":
                launch = kennel.pool.launch(kennel.request(), stdio, lambda _: None)
            else:
                launch = kennel.launcher.submit(kennel.request(), stdio)
        assert launch is not None
        launch.started.result(30)
        kennel._launches.append(launch)
        kernel = kennel.kernel(launch)
        kernel.run("import os, sys; os.write(sys.stderr._original_stdstream_copy, b'RAW\\n')")
        buffering = "(sys.__stdout__.line_buffering, sys.__stdout__.write_through)"
        assert kernel.value(buffering) == (not unbuffered, bool(unbuffered))
        heard = b""
        while b"RAW" not in heard:
            heard += os.read(main, 1000)
    finally:
        kennel.close()
        os.close(main)
        os.close(terminal)


def test_the_debugger_attaches_and_stops_at_a_breakpoint(warm: Kernel) -> None:
    client = warm.client

    def ask(command: str, seq: int, **arguments: Any) -> dict[str, Any]:
        content = {"type": "request", "seq": seq, "command": command, "arguments": arguments}
        message = client.session.msg("debug_request", content)
        client.control_channel.send(message)
        while True:
            reply = client.get_control_msg(timeout=30)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return dict(reply["content"])

    assert ask("initialize", 1, clientID="test", adapterID="", pathFormat="path")["success"]
    assert ask("attach", 2)["success"]
    code = "a = 1\nb = a + 1\nprint(b)\n"
    path = ask("dumpCell", 3, code=code)["body"]["sourcePath"]
    stops = ask(
        "setBreakpoints", 4, source={"path": path}, breakpoints=[{"line": 2}], sourceModified=False
    )
    assert stops["success"]
    assert ask("configurationDone", 5)["success"]
    client.execute(code)

    def stopped_at(seq: int) -> tuple[int, int]:
        """The thread and the line, once it has stopped."""
        while True:
            message = client.get_iopub_msg(timeout=30)
            if message["msg_type"] == "debug_event" and message["content"]["event"] == "stopped":
                thread = message["content"]["body"]["threadId"]
                frames = ask("stackTrace", seq, threadId=thread)["body"]["stackFrames"]
                return thread, frames[0]["line"]

    thread, line = stopped_at(6)
    assert line == 2
    assert ask("next", 7, threadId=thread)["success"]
    assert stopped_at(8) == (thread, 3)
    assert ask("continue", 9, threadId=thread)["success"]
    reply = client.get_shell_msg(timeout=30)
    assert reply["content"]["status"] == "ok"


def test_history_has_a_session_of_its_own(shared: Kennel) -> None:
    number = "get_ipython().history_manager.session_number"
    # A standby kernel that nobody claims has none.
    ways = ("fork", "standby", "fork", "standby")
    numbers = [shared.start(how).value(number) for how in ways]
    assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_comms_and_rich_output(warm: Kernel) -> None:
    code = """
import comm
opened = comm.create_comm(target_name="test")
from IPython.display import HTML, display
display(HTML("<b>x</b>"))
"""
    kinds = []
    warm.client.execute_interactive(code, output_hook=lambda m: kinds.append(m["msg_type"]))
    assert {"comm_open", "display_data"} <= set(kinds)


def test_ipykernels_own_watch_of_its_parent_is_armed(warm: Kernel) -> None:
    expression = (
        "(get_ipython().kernel.parent.poller.is_alive(),"
        " get_ipython().kernel.parent.parent_handle == __import__('os').getppid())"
    )
    assert warm.value(expression) == (True, True)


def test_the_kernel_dies_with_its_keeper(warm: Kernel) -> None:
    keeper = warm.launch.started.result(0).keeper_pid
    pid = warm.pid
    os.kill(keeper, 9)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the kernel's end")
    assert warm.launch.exited.result(30).keeper_lost
