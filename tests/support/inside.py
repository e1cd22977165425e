"""What servers inside of a test's own process have in common."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_ownedkernels import ownership

EXTENSIONS = {"jupyter_ownedkernels": True, "jupyter_server_terminals": False}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Of what there is one per process, each test has its own."""
    yield
    ownership.close_current()
    KernelProvisionerFactory.clear_instance()


def held_before_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[threading.Event, threading.Event]:
    """Starts wait before they are put on record: set when one does, and to be set to go on."""
    owned = ownership.current()
    reached, go_on = threading.Event(), threading.Event()
    begin = owned.begin

    def slow(**of_launch: Any) -> Any:
        reached.set()
        go_on.wait(30)
        return begin(**of_launch)

    monkeypatch.setattr(owned, "begin", slow)
    return reached, go_on
