"""A server that stops: soon, whatever it is at work on, and leaving nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import threading

import pytest
from rest_server import RestServer
from support import census
from support.workspace import Workspace

# Says when a recovery begins.
TOLD_RECOVERY = """
from jupyter_ownedkernels import recovery
recover = recovery.recover

def told(*args, **kwargs):
    open({flag!r}, "w").close()
    return recover(*args, **kwargs)

recovery.recover = told
"""
# Far below what would be waited for otherwise, far above what a busy machine takes.
SOON = 30


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_kernels_that_are_starting_end_with_it(private: Workspace, signum: int) -> None:
    # It never binds its ports: the start waits for them, and the kernel is not listed yet.
    private.spec("mute", private.mini_argv("mute", "idle", "--bind-after", "-1"))
    server = RestServer(private, "--OwnedKernels.ready_timeout=60")

    def start() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.request("POST", "/api/kernels", json.dumps({"name": "mute"}).encode())

    request = threading.Thread(target=start)
    request.start()
    try:
        private.note("mute")
        assert private.connection_files()
        server.process.send_signal(signum)
        server.process.wait(SOON)
        assert not census.left_after(private.processes(), 5)
        assert private.connection_files() == []
    finally:
        server.kill()
        request.join()


def test_it_does_not_wait_for_a_recovery(private: Workspace) -> None:
    # Its keeper takes the whole grace for a process that ignores SIGTERM.
    patient = "--OwnedKernels.terminate_grace=60"
    with RestServer(private, patient) as dead:
        dead.start_kernel(private.mini("stubborn", "stubborn"))
        stubborn = private.note("stubborn")["child"]
        dead.kill()
    flag = private.path / "recovers"
    try:
        server = RestServer(private, patient, config=TOLD_RECOVERY.format(flag=str(flag)))
        try:
            census.wait_until(flag.exists, SOON, "the recovery")
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(SOON)
            assert census.runs(stubborn)
            assert "Traceback" not in server.log
        finally:
            server.kill()
    finally:
        census.end(private.processes())
