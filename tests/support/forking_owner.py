"""Forks owners that begin a launch at once: a round costs no interpreter start.

Requests and answers are lines on a Unix socket. A request is a mark for the environment,
a kernelspec, and how many kernels are to be up before the launch that counts; the answer
is the owner's pid, sent by the owner itself at the moment when it asks for that launch.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid

from jupyter_client.manager import KernelManager

# Imported before the fork, since it is the launch that a test measures its moments in.
import jupyter_ownedkernels.provisioner  # noqa: F401


def own(link: socket.socket, request: dict[str, str]) -> None:
    os.setsid()
    os.environ["OWNEDKERNELS_ROUND"] = request["mark"]
    folder = os.environ["JUPYTER_RUNTIME_DIR"]
    managers = [
        KernelManager(
            kernel_name=request["spec"], connection_file=f"{folder}/kernel-{uuid.uuid4()}.json"
        )
        for _ in range(request["before"] + 1)
    ]
    for manager in managers[:-1]:
        manager.start_kernel()
    link.sendall(b"%d\n" % os.getpid())
    managers[-1].start_kernel()
    time.sleep(3600)


def main() -> None:
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[1])
    for raw in link.makefile("rb"):
        if os.fork() == 0:
            try:
                own(link, json.loads(raw))
            finally:
                os._exit(1)
        os.wait()


if __name__ == "__main__":
    main()
