"""Running a few lines of Python in another process, user, namespace or mount table.

What is mounted is mounted in a private namespace of that process, and gone with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare",
)

_PRELUDE = """
import json, os, subprocess, sys
import getpass, encodings.idna, jupyter_ownedkernels.journal.journal
from jupyter_ownedkernels import connections, identity
from jupyter_ownedkernels.journal import journal, folder as journal_folder
from jupyter_ownedkernels.models import LaunchRecord
from jupyter_ownedkernels.runtime import files, procfs, records

def mount(*args):
    subprocess.run(["mount", *args], check=True)

def become_nobody():
    os.setgroups([]); os.setgid(65534); os.setuid(65534)

def answer(value):
    print("ANSWER " + json.dumps(value))
"""


def run(
    script: str, *args: object, unshare: Sequence[str] = (), env: dict[str, str] | None = None
) -> Any:
    """The value that the script gave to ``answer``. Its ``sys.argv[1:]`` are the args."""
    command = ["unshare", *unshare] if unshare else []
    command += [sys.executable, "-c", _PRELUDE + textwrap.dedent(script), *map(str, args)]
    done = subprocess.run(
        command,
        env={**os.environ, **(env or {}), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            return json.loads(line[7:])
    raise AssertionError(f"no answer (exit {done.returncode}): {done.stderr}")
