"""An owner whose end nobody notices: it, its helpers and its kernel are killed at one moment.

What is left is a process that the kernel started: a stray. Its number is printed.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid

import psutil
from jupyter_client.manager import KernelManager

CODE = "import subprocess; child = subprocess.Popen(['sleep', '600'])"


def start(connection_file: str) -> int:
    """Start a kernel that starts a process; the number of the latter."""
    manager = KernelManager(kernel_name="python3", connection_file=connection_file)
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    client.execute_interactive(CODE, timeout=60)
    client.stop_channels()
    return next(one.pid for one in descendants() if one.name() == "sleep")


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def main() -> None:
    runtime = os.environ["JUPYTER_RUNTIME_DIR"]
    stray = start(f"{runtime}/kernel-{uuid.uuid4()}.json")
    others = [one for one in descendants() if one.pid != stray]
    # Stopped, none of them can do anything about the end of another.
    for one in others:
        one.send_signal(signal.SIGSTOP)
    sys.stdout.write(f"{stray}\n")
    sys.stdout.flush()
    for one in others:
        one.send_signal(signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
