"""Event loops of windows: timers run between cells, cells are answered, interrupts arrive."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import science
from warm_kernels import Kennel, Kernel, until

WAYS = ("exec", "fork", "standby")
TIMERS = {
    "qt": "from matplotlib.backends.qt_compat import QtCore\n"
    "timer = QtCore.QTimer(); timer.timeout.connect(lambda: ticks.append(1)); timer.start(10)",
    "tk": "import tkinter\nroot = tkinter.Tk()\n"
    "def tick():\n    ticks.append(1); root.after(10, tick)\ntick()",
    "asyncio": "import asyncio\nasync def tick():\n    while True:\n        ticks.append(1)\n"
    "        await asyncio.sleep(0.01)\ntask = asyncio.ensure_future(tick())",
}


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """An X server without a screen."""
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("Xvfb is not installed")
    reading, writing = os.pipe()
    server = subprocess.Popen(
        [program, "-displayfd", str(writing), "-nolisten", "tcp"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with open(reading) as stream:
            yield f":{stream.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module", params=["plain", "preloaded"])
def kennel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kennel]:
    """Kernels of one template for all toolkits that there are."""
    preload = []
    if request.param == "preloaded":
        known = ["tkinter", "PySide6.QtWidgets", "PyQt6.QtWidgets", "matplotlib.pyplot"]
        preload = [name for name in known if science.has(name.partition(".")[0])]
    made = Kennel(tmp_path_factory.mktemp("windows"), preload=preload, standby=1)
    made.argv[0] = science.PYTHON
    made.environment["QT_QPA_PLATFORM"] = "offscreen"
    if shutil.which("Xvfb"):
        made.environment["DISPLAY"] = request.getfixturevalue("display")
    entry = made.warm_up()
    assert (entry["state"], entry["reason"]) == ("ready", None)
    yield made
    made.close()


@pytest.fixture(params=list(TIMERS))
def gui(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    needed = {"qt": ("matplotlib",), "tk": ("tkinter", "matplotlib"), "asyncio": ()}[name]
    for library in needed:
        if not science.has(library):
            pytest.skip(science.missing(library))
    if name == "qt" and not (science.has("PySide6") or science.has("PyQt6")):
        pytest.skip(science.missing("PySide6 or PyQt6"))
    if name == "tk" and shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    return name


def ask(kernel: Kernel, code: str) -> str:
    """Run a cell; what it printed.

    While a window's event loop runs, ipykernel misses a message now and then, however it
    was started (ipykernel issue 559): the next one brings it to look.
    """
    client = kernel.client
    message = client.execute(code)
    for _ in range(60):
        try:
            reply = client.get_shell_msg(timeout=1)
        except queue.Empty:
            client.kernel_info()
            continue
        if reply["parent_header"]["msg_id"] == message:
            break
    else:
        raise AssertionError(f"no answer to {code!r}")
    assert reply["content"]["status"] == "ok", "\n".join(reply["content"]["traceback"])
    printed = []
    while True:
        heard = client.get_iopub_msg(timeout=30)
        if heard["parent_header"].get("msg_id") != message:
            continue
        if heard["msg_type"] == "stream":
            printed.append(heard["content"]["text"])
        elif heard["content"].get("execution_state") == "idle":
            return "".join(printed)


def interrupted(kernel: Kernel, note: str) -> str:
    """What a cell prints that is interrupted while it runs."""
    message = kernel.client.execute(
        f"import time\ntry:\n    open({note!r}, 'w').close()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted')"
    )

    def runs() -> bool:
        if not os.path.exists(note):
            kernel.client.kernel_info()
        return os.path.exists(note)

    until(runs, "a cell that runs")
    kernel.launch.signal(2)
    while True:
        heard = kernel.client.get_iopub_msg(timeout=30)
        if heard["msg_type"] == "stream" and heard["parent_header"].get("msg_id") == message:
            return str(heard["content"]["text"]).strip()


@pytest.mark.parametrize("how", WAYS)
def test_an_event_loop_turns_between_cells(kennel: Kennel, gui: str, how: str) -> None:
    kernel = kennel.start(how)
    ask(kernel, f"%gui {gui}")
    ask(kernel, f"ticks = []\n{TIMERS[gui]}")
    # Nothing of the kernel runs between these cells but its event loop.
    seen = int(ask(kernel, "print(len(ticks))"))
    until(lambda: int(ask(kernel, "print(len(ticks))")) > seen + 5, "timers that run")
    assert interrupted(kernel, str(kennel.folder / f"runs-{kernel.pid}")) == "interrupted"
    seen = int(ask(kernel, "print(len(ticks))"))
    until(lambda: int(ask(kernel, "print(len(ticks))")) > seen, "timers after the interrupt")
    ask(kernel, "%gui")
    assert ask(kernel, "print(1 + 1)") == "2\n"


@pytest.mark.parametrize("how", WAYS)
def test_a_plot_in_a_window(kennel: Kennel, gui: str, how: str) -> None:
    if gui == "asyncio":
        pytest.skip("opens no windows")
    kernel = kennel.start(how)
    said = ask(
        kernel,
        f"%matplotlib {gui}\nimport matplotlib.pyplot as plt, warnings\n"
        # That a window is opened in another thread than the first, for example.
        "warnings.simplefilter('error')\n"
        "figure = plt.figure(); plt.plot([1, 2]); plt.show(block=False); figure.canvas.draw()\n"
        "hits = []; timer = figure.canvas.new_timer(10)\n"
        "timer.add_callback(lambda: hits.append(1)); timer.start(); print(plt.get_backend())",
    )
    assert f"{gui}agg" in said
    until(lambda: ask(kernel, "print(len(hits) > 2)") == "True\n", "timers of the window")
