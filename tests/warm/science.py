"""Large libraries that are not installed for these tests alone: tested where they are."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

# An interpreter with ipykernel and perhaps numpy, matplotlib, pandas, torch, PySide6 or PyQt6.
PYTHON = os.environ.get("OWNEDKERNELS_TEST_SCIENCE", sys.executable)


@functools.cache
def has(name: str) -> bool:
    """Whether that interpreter can import it."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


def missing(name: str) -> str:
    """Why a test is skipped."""
    return f"{name} is not installed where OWNEDKERNELS_TEST_SCIENCE points"
