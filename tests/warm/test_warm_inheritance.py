"""What a fork passes on reaches forked kernels too, as the owner has it now."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_kernels import Kennel, until

from jupyter_ownedkernels.errors import WarmLost
from jupyter_ownedkernels.runtime import inherited


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    umask = os.umask(0o022)
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    yield
    os.umask(umask)
    resource.setrlimit(resource.RLIMIT_CORE, limit)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def change() -> None:
    os.umask(0o027)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def rows(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    return dict(row.split(":\t", 1) for row in text.splitlines() if ":\t" in row)


def test_a_forked_kernel_has_what_the_owner_has_now(kennel: Kennel) -> None:
    assert kennel.warm_up()["state"] == "ready"
    change()
    launch = kennel.forked(inherited=inherited.of_this_thread())
    assert launch is not None
    pid = launch.started.result(0).pid
    assert rows(pid)["Umask"] == "0027"
    assert int(rows(pid)["SigIgn"], 16) & 1 << signal.SIGUSR1 - 1
    assert int(rows(pid)["SigIgn"], 16) & 1 << signal.SIGPIPE - 1, "as any Python has it"
    assert resource.prlimit(pid, resource.RLIMIT_CORE)[0] == 0
    # Another one after it, from the same template, has what the owner has then.
    os.umask(0o022)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    launch = kennel.forked(inherited=inherited.of_this_thread())
    assert launch is not None
    pid = launch.started.result(0).pid
    assert rows(pid)["Umask"] == "0022"
    assert not int(rows(pid)["SigIgn"], 16) & 1 << signal.SIGUSR1 - 1


def test_a_standby_kernel_is_claimed_only_where_it_has_the_same(kennel: Kennel) -> None:
    def reserve() -> dict[str, int] | None:
        return kennel.pool.reserve([*kennel.argv, "/x.json"], kennel.environment, "/x.json")

    assert kennel.warm_up()["state"] == "ready"
    assert kennel.forked(inherited=inherited.of_this_thread()) is not None
    until(lambda: kennel.pool.to_json()[0]["standby"], "a standby kernel")
    (first,) = kennel.pool.standby.pids()
    change()
    assert reserve() is None
    # The next launch brings one that fits, and the other goes.
    assert kennel.forked(inherited=inherited.of_this_thread()) is not None
    until(lambda: not os.path.exists(f"/proc/{first}"), "the end of the first")
    until(lambda: kennel.pool.to_json()[0]["standby"], "a standby kernel that fits")
    (second,) = kennel.pool.standby.pids()
    assert rows(second)["Umask"] == "0027"
    ports = reserve()
    assert ports is not None
    os.umask(0o022)
    with pytest.raises(WarmLost, match="passes on"):
        kennel.forked(kennel.request(ports, inherited=inherited.of_this_thread()))
