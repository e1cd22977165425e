"""Which TCP ports listen, and by which sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_ownedkernels.launching import readiness
from jupyter_ownedkernels.runtime import listening, procfs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


Listeners = Callable[..., dict[int, set[int]]]


@pytest.fixture(params=["netlink", "no netlink", "proc"])
def listeners(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Listeners]:
    if request.param == "proc":
        yield procfs.tcp_listeners
        return
    diag = request.param == "netlink"
    monkeypatch.setattr(listening, "_has_sock_diag", diag)
    yield listening.tcp_listeners
    assert listening._has_sock_diag is diag, "a container without it, or a defect"


def mine(found: dict[int, set[int]], inodes: list[int]) -> dict[int, set[int]]:
    """Without what others have on the same port, at another address."""
    kept = {port: sockets & set(inodes) for port, sockets in found.items()}
    return {port: sockets for port, sockets in kept.items() if sockets}


def test_listeners_among_other_sockets(listeners: Listeners) -> None:
    """Connections, also those to and from a port that is asked for, are no listeners."""
    with contextlib.ExitStack() as stack:
        made = [socket.socket() for _ in range(4)]
        for one in made:
            stack.enter_context(one)
            one.bind(("127.0.0.1", 0))
        listening, connected, bound, other = made
        listening.listen()
        other.listen()
        connected.connect(other.getsockname())
        stack.enter_context(other.accept()[0])
        ports = [one.getsockname()[1] for one in made]
        inodes = [os.fstat(one.fileno()).st_ino for one in made]
        expected = {ports[0]: {inodes[0]}, ports[3]: {inodes[3]}}
        assert mine(listeners(wanted=ports), inodes) == expected
        assert mine(listeners(os.getpid(), ports), inodes) == expected
        assert mine(listeners(), inodes) == expected
        assert listeners(wanted=()) == {}
        listening.close()
        bound.listen()
        expected = {ports[2]: {inodes[2]}, ports[3]: {inodes[3]}}
        assert mine(listeners(wanted=ports), inodes) == expected


def test_many_and_of_both_families(listeners: Listeners) -> None:
    """More rows than one read gives, and the port in the second of the two tables."""
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(200):
            family = socket.AF_INET6 if socket.has_ipv6 and number % 50 == 0 else socket.AF_INET
            try:
                one = stack.enter_context(socket.socket(family))
                one.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            except OSError:  # without a loopback address of that family
                continue
            one.listen()
            made.append(one)
        assert len(made) >= 196
        expected = {one.getsockname()[1]: {os.fstat(one.fileno()).st_ino} for one in made}
        inodes = [inode for sockets in expected.values() for inode in sockets]
        assert mine(listeners(wanted=expected), inodes) == expected


def test_of_a_process_that_is_gone(listeners: Listeners) -> None:
    assert listeners(2**22 + 1) == {}


@pytest.mark.usefixtures("listeners")
def test_readiness_looks_at_both_families() -> None:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(2)]
        with contextlib.suppress(OSError):
            six = stack.enter_context(socket.socket(socket.AF_INET6))
            six.bind(("::1", 0))
            made.append(six)
        for one in made:
            if one.family == socket.AF_INET:
                one.bind(("127.0.0.1", 0))
        names = ("shell_port", "iopub_port", "stdin_port")
        info = {name: one.getsockname()[1] for name, one in zip(names, made, strict=False)}
        for one in made:
            assert readiness.is_ready(info) is False
            one.listen()
        assert readiness.is_ready(info) is True
        assert len(info) == len(made)


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_without_a_descriptor_left_nothing_is_ready_and_nothing_fails(
    transport: str, tmp_path: Path
) -> None:
    """Whoever starts a kernel then, or asks whether it runs, must not lose it for that."""
    family = socket.AF_INET if transport == "tcp" else socket.AF_UNIX
    address: Any = ("127.0.0.1", 0) if transport == "tcp" else f"{tmp_path}/k-1"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def look(info: dict[str, Any]) -> list[object]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                os.close(os.dup(0))
            waited = await readiness.wait_until_ready(info, lambda: False, 0.01)
            return [readiness.is_ready(info), waited]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen()
        number = listener.getsockname()[1] if transport == "tcp" else 1
        info = {"transport": transport, "ip": f"{tmp_path}/k", "shell_port": number}
        assert asyncio.run(look(info)) == [False, False]
        assert readiness.is_ready(info) is True


def test_of_a_process_in_another_network(listeners: Listeners) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a network")
    code = (
        "import socket, sys; s = socket.socket(); s.bind(('', 5)); s.listen();"
        "print(s.fileno(), flush=True); sys.stdin.read()"
    )
    command = ["unshare", "-n", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as there:
        assert there.stdout is not None
        fd = int(there.stdout.readline())
        inode = os.stat(f"/proc/{there.pid}/fd/{fd}").st_ino
        assert listeners(there.pid) == {5: {inode}}
        assert listeners(there.pid, [5]) == {5: {inode}}
        assert inode not in listeners().get(5, set())
        there.communicate()
