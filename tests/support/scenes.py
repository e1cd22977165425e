"""What goes on inside a kernel when its end comes. Imported by kernels, not by tests.

A scene sets the stage, yields the pids that it has made by a name, and may then go on
with something that never returns. The yield is written to a file, for the test to see.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LONG = "3600"
Pids = dict[str, int]
_kept: list[object] = []


def _start(*argv: str, **options: object) -> int:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    _kept.append(process)
    return int(process.pid)


def _shell(script: str) -> int:
    """Run a script that prints one pid and ends."""
    done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def idle() -> Iterator[Pids]:
    yield {}


def gil_held() -> Iterator[Pids]:
    yield {}
    ctypes.PyDLL(None).sleep(int(LONG))


def stopped() -> Iterator[Pids]:
    yield {}
    os.kill(os.getpid(), signal.SIGSTOP)


def children() -> Iterator[Pids]:
    yield {"child": _start("sleep", LONG), "shell": _start("sh", "-c", f"sleep {LONG}; true")}


def other_group() -> Iterator[Pids]:
    yield {"child": _start("sleep", LONG, preexec_fn=os.setpgrp)}


def orphans() -> Iterator[Pids]:
    script = f"sleep {LONG} >/dev/null & echo $!"
    yield {"orphan": _shell(script), "grandchild": _shell(f"(sh -c '{script}')")}


def bare_environment() -> Iterator[Pids]:
    script = f"env -i sleep {LONG} >/dev/null & echo $!"
    yield {"child": _start("sleep", LONG, env={}), "orphan": _shell(script)}


def stopped_child() -> Iterator[Pids]:
    pid = _start("sleep", LONG, preexec_fn=os.setpgrp)
    os.kill(pid, signal.SIGSTOP)
    yield {"child": pid}


def stubborn() -> Iterator[Pids]:
    loop = f"trap '' TERM HUP INT; while :; do sleep {LONG}; done"
    yield {"child": _start("sh", "-c", loop)}


def respawning() -> Iterator[Pids]:
    """At each SIGTERM it goes on as another process."""
    code = (
        "import os, signal\n"
        "def go_on(signum, frame):\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "signal.signal(signal.SIGTERM, go_on)\n"
        "open(READY, 'w').close()\n"
        "while True:\n"
        "    signal.pause()\n"
    )
    fd, ready = tempfile.mkstemp()
    os.close(fd)
    os.unlink(ready)
    pid = _start(sys.executable, "-I", "-S", "-c", code.replace("READY", repr(ready)))
    while not os.path.exists(ready):
        time.sleep(0.01)
    os.unlink(ready)
    yield {"child": pid}


def thread_left() -> Iterator[Pids]:
    """A process whose main thread has ended while another runs: it shows as a zombie."""
    code = (
        "import ctypes, threading, time\n"
        f"threading.Thread(target=time.sleep, args=({LONG},)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    pid = _start(sys.executable, "-I", "-S", "-c", code)
    status = Path(f"/proc/{pid}/stat")
    while status.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    yield {"child": pid}


def _pool(method: str) -> Iterator[Pids]:
    pool = multiprocessing.get_context(method).Pool(2)
    _kept.append(pool)
    pool.map_async(time.sleep, [int(LONG)] * 2)
    yield {f"worker{n}": worker.pid for n, worker in enumerate(pool._pool)}  # type: ignore[attr-defined]


def pool_fork() -> Iterator[Pids]:
    return _pool("fork")


def pool_spawn() -> Iterator[Pids]:
    return _pool("spawn")


def socket_holder() -> Iterator[Pids]:
    """A fork without exec, in a session of its own: it has all sockets of the kernel."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(int(LONG))
        os._exit(0)
    yield {"fork": pid}


def detached() -> Iterator[Pids]:
    """The four usual ways to leave a kernel's session on purpose."""
    daemon = f"setsid sh -c 'sleep {LONG} >/dev/null 2>&1 & echo $!'"
    nohup = f"nohup setsid sleep {LONG} >/dev/null 2>&1 & echo $!"
    yield {
        "new_session": _start("sleep", LONG, start_new_session=True),
        "nohup": _shell(nohup),
        "daemon": _shell(daemon),
        "bare": _start("sleep", LONG, env={}, start_new_session=True),
    }


SCENES: dict[str, Callable[[], Iterator[Pids]]] = {
    scene.__name__: scene
    for scene in (
        idle,
        gil_held,
        stopped,
        children,
        other_group,
        orphans,
        bare_environment,
        stopped_child,
        stubborn,
        respawning,
        thread_left,
        pool_fork,
        pool_spawn,
        socket_holder,
        detached,
    )
}


def play(name: str, note: str) -> None:
    """Set the scene; tell the test in the file ``note``; go on with it."""
    scene = SCENES[name]()
    pids = dict(next(scene), kernel=os.getpid())
    # Several kernels of one kernelspec write the same note; the last one stays.
    part = f"{note}.{os.getpid()}.part"
    with open(part, "w") as stream:
        json.dump(pids, stream)
    os.rename(part, note)
    for _ in scene:
        pass
