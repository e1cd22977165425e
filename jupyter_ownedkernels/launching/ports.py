"""Free ports for a kernel, in agreement with all who look for some in this process.

jupyter_client finds a port, lets it go, and has the kernel bind it some 100 ms later. Who
binds any free port in between may take that very one, and the kernel ends with "address
already in use". A standby kernel boots just while others start, so it asks here.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from jupyter_client.connect import LocalPortCache

NAMES = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
_ADDRESS = "127.0.0.1"


def take() -> dict[str, int]:
    """Five ports, by the names of a connection file, that nobody here will be given."""
    return {name: _take_one() for name in NAMES}


def _take_one() -> int:
    promised = LocalPortCache.instance().currently_used_ports
    while True:
        with socket.socket() as held:
            held.bind((_ADDRESS, 0))
            port = int(held.getsockname()[1])
            # Noted while it is still bound here: another thread is not given it either.
            if port not in promised:
                promised.add(port)
                return port


def give_back(taken: Mapping[str, int]) -> None:
    """Of a kernel that has ended, or is about to and was never anybody's."""
    for port in taken.values():
        LocalPortCache.instance().return_port(port)
