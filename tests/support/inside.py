"""What servers inside of a test's own process have in common."""

from __future__ import annotations

from collections.abc import Iterator

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
