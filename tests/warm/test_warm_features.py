"""What kernels can do beside running cells, in forked ones and in ones that stood by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import zmq
from warm_kernels import PATIENCE, Kennel, Kernel, until

from jupyter_ownedkernels.runtime.warm.rehearsal import rehearse


def control(kernel: Kernel, kind: str, **content: Any) -> dict[str, Any]:
    client = kernel.client
    message = client.session.msg(kind, content)
    client.control_channel.send(message)
    while True:
        reply = client.get_control_msg(timeout=PATIENCE)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return dict(reply["content"])


def test_a_subshell_answers_while_a_cell_runs(warm: Kernel, tmp_path: Path) -> None:
    asked = control(warm, "create_subshell_request")
    if asked.get("status") != "ok":
        pytest.skip("this ipykernel has no subshells")
    note = tmp_path / "note"
    waiting = f"import os, time\nwhile not os.path.exists({str(note)!r}): time.sleep(0.01)"
    client = warm.client
    busy = client.execute(waiting)
    content = {"code": f"open({str(note)!r}, 'w').close()", "silent": False}
    message = client.session.msg("execute_request", content)
    message["header"]["subshell_id"] = asked["subshell_id"]
    client.shell_channel.send(message)
    # The cell ends only because the subshell has run.
    answered = set()
    while busy not in answered:
        reply = client.get_shell_msg(timeout=PATIENCE)
        assert reply["content"]["status"] == "ok"
        answered.add(reply["parent_header"]["msg_id"])
    assert control(warm, "list_subshell_request")["subshell_id"] == [asked["subshell_id"]]
    deleted = control(warm, "delete_subshell_request", subshell_id=asked["subshell_id"])
    assert deleted["status"] == "ok"


def test_the_event_loop_of_asyncio(warm: Kernel) -> None:
    warm.run("%gui asyncio")
    warm.run("import asyncio; task = asyncio.ensure_future(asyncio.sleep(0.01, 'slept'))")
    assert warm.run("print(await task)") == "slept\n"
    warm.run("%gui")
    assert warm.value("1 + 1") == 2


def test_the_event_loop_of_tk_is_what_it_is_in_an_executed_kernel(
    shared: Kennel, warm: Kernel
) -> None:
    pytest.importorskip("tkinter")
    code = (
        "try:\n    get_ipython().enable_gui('tk'); print('enabled')\n"
        "except BaseException as error:\n    print(type(error).__name__, error)"
    )
    assert warm.run(code) == shared.start("exec").run(code)
    assert warm.value("1 + 1") == 2


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq knows no curves")
def test_an_encrypted_connection(shared: Kennel) -> None:
    """Forked; one that stands by has bound its ports in the clear, and is not taken."""
    public, secret = zmq.curve_keypair()
    request = shared.request()
    path = Path(request.connection_file)
    content = json.loads(path.read_text())
    content.update(curve_publickey=public.decode(), curve_secretkey=secret.decode())
    path.write_text(json.dumps(content))
    kernel = shared.kernel(shared.forked(request))
    if kernel.value("getattr(get_ipython().kernel.parent, 'curve_publickey', None)") is None:
        pytest.skip("this ipykernel cannot encrypt")
    assert kernel.client.curve_publickey == public
    assert kernel.value("1 + 1") == 2
    sockets = ("shell_socket", "control_socket", "stdin_socket")
    expression = (
        f"[getattr(get_ipython().kernel.parent, name).get(__import__('zmq').CURVE_SERVER)"
        f" for name in {sockets}]"
    )
    assert kernel.value(expression) == [1, 1, 1]


MOMENTS = """
def moments(since, until):
    import datetime, sys
    found = []
    for name, module in list(sys.modules.items()):
        holders = [(name, vars(module))]
        holders += [(name + "." + k, vars(v)) for k, v in list(vars(module).items())
                    if isinstance(v, type) and v.__module__ == name]
        for where, content in holders:
            for key, value in list(content.items()):
                if isinstance(value, datetime.datetime) and value.year > 2000:
                    value = value.timestamp()
                if type(value) in (int, float) and any(
                    since <= value / unit <= until for unit in (1, 1e3, 1e6, 1e9)
                ):
                    found.append(where + "." + key)
    return sorted(set(found))
"""


@pytest.mark.parametrize("how", ["fork", "standby"])
def test_nothing_in_a_kernel_remembers_when_its_template_was_made(shared: Kennel, how: str) -> None:
    """So that one of a template of yesterday is not of yesterday."""
    template = shared.pool.to_json()[0]["pid"]
    made = os.stat(f"/proc/{template}").st_mtime
    # The older the better, but a moment that can be told from the kernel's own is enough.
    until(lambda: time.time() > made + 2.5, "a template that is not new")
    kernel = shared.start(how)
    kernel.run(MOMENTS)
    kernel.run("kept = __import__('time').time()")
    assert "__main__.kept" in kernel.value(f"moments({made}, {time.time() + 9})")
    # Only tell, in logs for the developers of debugger and completer, how long ago a line was.
    harmless = {"_pydev_bundle.pydev_log._last_log_time", "jedi.debug._start_time"}
    assert set(kernel.value(f"moments({made - 5}, {made + 2})")) <= harmless


SECCOMP = """
import ctypes, os, platform, struct, sys
number = {"x86_64": 157, "aarch64": 167}[platform.machine()]
rows = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 35),
        (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *row) for row in rows)
kept = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()
assert libc.prctl(35, 14, 0, 0, 0) == -1 and ctypes.get_errno() == 1
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_where_the_title_may_not_be_set_it_is_written_over_the_templates(tmp_path: Path) -> None:
    """PR_SET_MM is refused, as in some containers: by a filter of system calls here."""
    filtered = tmp_path / "filtered.py"
    filtered.write_text(SECCOMP)
    run = [sys.executable, str(filtered)]
    tried = subprocess.run([*run, "/bin/true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no filter of system calls here: {tried.stderr[-200:]}")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(run)} {sys.executable} "$@"\n')
    python.chmod(0o755)
    kennel = Kennel(tmp_path, standby=1)
    kennel.argv[0] = str(python)
    try:
        assert kennel.warm_up()["state"] == "ready"
        for how in ("fork", "standby"):
            kernel = kennel.start(how)
            shown = Path(f"/proc/{kernel.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            wanted = list(map(os.fsencode, kernel.launch.request.argv))
            assert shown == wanted
            assert kernel.value("__import__('sys').argv[-1]") == kernel.path
            assert kernel.value("1 + 1") == 2
            kernel.launch.retire(1.0)
            assert kernel.launch.retired.result(30) == ()
    finally:
        kennel.close()


CACHED = """
import json, re
with open({path!r}, "w") as stream:
    keys = [key[:3] for cache in (re._cache, getattr(re, "_cache2", {{}})) for key in cache]
    json.dump([[pattern, flags] for kind, pattern, flags in keys if kind is str], stream)
"""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another tokenizer than Python 3.11's")
def test_expressions_of_the_first_cell_are_compiled_in_the_template(tmp_path: Path) -> None:
    """Before any cell has run, as the startup file sees it."""
    kennel = Kennel(tmp_path)
    folder = tmp_path / "ipython" / "profile_default" / "startup"
    folder.mkdir(parents=True)
    seen = {}
    try:
        kennel.warm_up()
        for how in ("exec", "fork"):
            path = tmp_path / how
            (folder / "00-cached.py").write_text(CACHED.format(path=str(path)))
            assert kennel.start(how).value("1 + 1") == 2
            seen[how] = {(pattern, flags) for pattern, flags in json.loads(path.read_text())}
    finally:
        kennel.close()
    learnt = rehearse([])
    assert learnt is not None
    rehearsed = {pattern for pattern in learnt.patterns if "rubf" in pattern[0]}
    assert rehearsed
    assert not rehearsed & seen["exec"]
    assert rehearsed <= seen["fork"]


# What the template has made is frozen, and not among these objects.
IMPORTED_IN_THE_CHILD = """
import gc, sys
made = {id(thing) for thing in gc.get_objects()}
imported = {name for name, module in sys.modules.items() if id(module) in made}
"""


def test_the_template_has_every_module_of_a_booted_kernel(tmp_path: Path) -> None:
    """One that is missing costs each forked kernel time, and memory of its own."""
    kennel = Kennel(tmp_path)
    try:
        kennel.warm_up()
        kernel = kennel.start("fork")
        kernel.run(IMPORTED_IN_THE_CHILD)
        assert kernel.value("imported") - {"gc"} == {"__main__"}
    finally:
        kennel.close()
