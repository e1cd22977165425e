"""Journals for tests: owners, launches, and a child process that owns one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_ownedkernels import identity
from jupyter_ownedkernels.identity import Identity
from jupyter_ownedkernels.journal import journal
from jupyter_ownedkernels.journal.journal import Journal
from jupyter_ownedkernels.models import Exit, LaunchRecord, Survivor

from .elsewhere import ROOT

OWNER_ID = "0123456789abcdef"


def launch(number: int = 1, **fields: Any) -> LaunchRecord:
    """The intent to launch, as the ownership service makes it."""
    return LaunchRecord(
        **{
            "launch_id": f"launch-{number}",
            "kernel_id": f"kernel-id-{number}",
            "generation": 1,
            "kernel_name": "python3",
            "connection_file": f"/run/kernel-{number}.json",
            "at": 1000.0 + number,
            **fields,
        }
    )


def exit_(number: int = 1) -> Exit:
    return Exit(0, None, False, None, "shutdown", 1 << 20, 0.5, 2000.0 + number, "shut down")


def survivor(process: Identity) -> Survivor:
    return Survivor(process.pid, process.start_ticks, process.pid, "detached")


def make(folder: Path | str, **options: Any) -> Journal:
    """A journal of this process in that folder, not opened yet."""
    return Journal(journal.this_owner(options.pop("owner_id", OWNER_ID)), [str(folder)], **options)


def whole(one: Journal, number: int) -> None:
    """A launch from its beginning to its end."""
    me = identity.of_self()
    one.launching(launch(number))
    one.running(f"launch-{number}", keeper=me, process=me, sessions=[me.pid], at=1500.0 + number)
    one.retiring(f"launch-{number}", at=1900.0 + number)
    one.ended(f"launch-{number}", exit_(number), at=2000.0 + number)


def settled(one: Journal) -> None:
    """Wait until the file is not being shortened."""
    thread = one._shortener
    if thread is not None:
        thread.join(60)
        assert not thread.is_alive()


def shorten(one: Journal) -> None:
    """Have the file shortened now."""
    settled(one)
    one._compact_at = 0
    one.ended("launch-999", None)
    settled(one)


@contextmanager
def owner_process(script: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """A child that runs the script; it has said its first word (a line) when this yields."""
    prelude = "import json, os, sys\nfrom support.journals import *\nfrom pathlib import Path\n"
    with subprocess.Popen(
        [sys.executable, "-c", prelude + script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def word(child: subprocess.Popen[str]) -> Any:
    """The next line that the child wrote, as JSON."""
    assert child.stdout is not None
    return json.loads(child.stdout.readline())
