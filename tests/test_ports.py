"""Free ports, held for a kernel that is about to bind them."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from jupyter_client.connect import LocalPortCache
from support.machine import needs_small_network, small_network

from jupyter_ownedkernels.launching import ports
from jupyter_ownedkernels.launching.ports import Hold
from jupyter_ownedkernels.runtime import PORT_NAMES

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ports are held on Linux"
)


@pytest.fixture(autouse=True)
def promised(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The ports that this process has given to kernels."""
    cache = LocalPortCache()
    monkeypatch.setattr(LocalPortCache, "instance", lambda: cache)
    return cache.currently_used_ports


@pytest.fixture
def hold() -> Iterator[Hold]:
    made = Hold()
    yield made
    made.release()


def bind(port: int, *, shared: bool) -> int | None:
    """Why it cannot be bound and listened at; None when it can."""
    with socket.socket() as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
        try:
            kernel.bind(("127.0.0.1", port))
            kernel.listen()
        except OSError as error:
            return error.errno
    return None


def test_a_held_port_can_be_bound_as_libzmq_does(hold: Hold) -> None:
    taken = hold.take()
    assert set(taken) == set(PORT_NAMES)
    assert len(set(taken.values())) == 5
    for port in taken.values():
        assert bind(port, shared=True) is None
        assert bind(port, shared=False) == errno.EADDRINUSE
    hold.release()
    assert hold._sockets == {}
    assert [bind(port, shared=False) for port in taken.values()] == [None] * 5


def test_it_stays_bound_when_it_is_released(hold: Hold) -> None:
    port = hold.take()["shell_port"]
    hold.release_bound()
    assert len(hold._sockets) == 5
    with socket.create_server(("127.0.0.2", port)):
        hold.release_bound()
        assert port in hold._sockets
    with socket.create_server(("127.0.0.1", port)):
        hold.release_bound()
        assert len(hold._sockets) == 4
        assert port not in hold._sockets
        socket.create_connection(("127.0.0.1", port), 10).close()
        assert bind(port, shared=True) == errno.EADDRINUSE


def test_those_before_are_held_again_as_far_as_they_are_free(hold: Hold) -> None:
    taken = hold.take()
    hold.release()
    with socket.create_server(("127.0.0.1", taken["hb_port"])):
        hold.keep("127.0.0.1", taken.values())
    assert set(hold._sockets) == set(taken.values()) - {taken["hb_port"]}


def test_they_are_promised_until_they_are_given_back(hold: Hold, promised: set[int]) -> None:
    taken = hold.take()
    hold.release()
    assert promised == set(taken.values())
    ports.give_back(taken)
    assert promised == set()


def test_in_a_block(promised: set[int]) -> None:
    with ports.held() as taken:
        assert bind(taken["shell_port"], shared=False) == errno.EADDRINUSE
    assert bind(taken["shell_port"], shared=False) is None
    assert promised == set(taken.values())
    with pytest.raises(RuntimeError), ports.held() as taken:
        raise RuntimeError
    assert promised.isdisjoint(taken.values())


def test_none_where_held_ports_cannot_be_bound(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system on which SO_REUSEADDR means something else."""
    monkeypatch.setattr(ports, "_can_be_bound_by_others", lambda: False)
    taken = hold.take()
    hold.keep("127.0.0.1", taken.values())
    assert hold._sockets == {}
    assert bind(taken["shell_port"], shared=False) is None


def test_a_moment_without_descriptors_says_nothing_of_the_system() -> None:
    ports._looked_up.cache_clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
        try:
            assert not ports._can_be_bound_by_others()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ports._can_be_bound_by_others()


def test_an_address_that_is_not_here(hold: Hold, promised: set[int]) -> None:
    with pytest.raises(OSError, match="Cannot assign requested address"):
        hold.take("192.0.2.1")
    assert hold._sockets == {}
    assert promised == set()


TAKE = """
import json
from jupyter_client.connect import LocalPortCache
from jupyter_ownedkernels.launching.ports import Hold
LocalPortCache.instance().currently_used_ports.update({promised})
try:
    print(json.dumps(list(Hold().take().values())))
except OSError as error:
    print(json.dumps(str(error)))
"""


def taken_in(lowest: int, highest: int, promised: str = "()") -> list[int] | str:
    """What is taken in a process with this range of ports."""
    command = [
        *small_network(lowest, highest),
        sys.executable,
        "-c",
        TAKE.format(promised=promised),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: list[int] | str = json.loads(done.stdout)
    return answer


@needs_small_network
def test_below_those_that_are_named_by_chance() -> None:
    """As many ports are tried as it takes: these forty have ten."""
    taken = taken_in(49142, 49181)
    assert isinstance(taken, list)
    assert len(set(taken)) == 5
    assert max(taken) < 49152


@needs_small_network
@pytest.mark.parametrize("range_", [(50000, 50099), (50000, 50006), (49150, 49157)])
def test_any_where_there_are_not_enough_of_those(range_: tuple[int, int]) -> None:
    taken = taken_in(*range_)
    assert isinstance(taken, list)
    assert len(set(taken)) == 5


@needs_small_network
def test_never_one_that_is_promised() -> None:
    taken = taken_in(40000, 40009, "range(40000, 40005)")
    assert isinstance(taken, list)
    assert sorted(taken) == list(range(40005, 40010))
    assert isinstance(taken_in(40000, 40009, "range(40000, 40006)"), str)
