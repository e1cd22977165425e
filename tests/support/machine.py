"""What this machine can do, for tests that need it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def _works(*probe: str) -> bool:
    if shutil.which(probe[0]) is None:
        return False
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not _works("unshare", "-pf", "--mount-proc", "true"), reason="no pid namespace to be had"
)


def small_network(lowest: int, highest: int) -> list[str]:
    """A prefix for a command: in a network of its own, with these ports to give out."""
    code = (
        "import fcntl, os, socket, struct, sys\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:\n"
        # SIOCSIFFLAGS with IFF_UP and IFF_RUNNING.
        "    fcntl.ioctl(any_socket, 0x8914, struct.pack('16sh14x', b'lo', 0x41))\n"
        f"with open({PORT_RANGE!r}, 'w') as stream:\n"
        f"    stream.write('{lowest} {highest}')\n"
        "os.execvp(sys.argv[1], sys.argv[1:])\n"
    )
    return ["unshare", "-n", sys.executable, "-I", "-S", "-c", code]


needs_small_network = pytest.mark.skipif(
    not _works(*small_network(40000, 40099), "true"),
    reason="no network namespace with ports of its own to be had",
)
