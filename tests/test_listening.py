"""Whether ports listen: the quick look agrees with the one that tells inodes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys

import pytest

from jupyter_ownedkernels.runtime import procfs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def test_listeners_among_other_sockets() -> None:
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
        assert procfs.listening_ports(ports) == {ports[0], ports[3]}
        assert procfs.listening_ports(ports, os.getpid()) == {ports[0], ports[3]}
        assert procfs.listening_ports([]) == set()
        listening.close()
        bound.listen()
        assert procfs.listening_ports(ports) == {ports[2], ports[3]}


def test_many_and_of_both_families() -> None:
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
            made.append(one.getsockname()[1])
        assert len(made) >= 196
        assert procfs.listening_ports(made) == set(made)
        table = procfs.tcp_listeners()
        assert all(port in table for port in made)


def test_of_a_process_that_is_gone() -> None:
    assert procfs.listening_ports([1], 2**22 + 1) == set()
