"""What this machine can do, for tests that need it."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def _has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-pf", "--mount-proc", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not _has_namespaces(), reason="no pid namespace to be had")
