"""A limit on processes, as those feel it who ask for a thread."""

from __future__ import annotations

import threading

import pytest


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Threads whose name begins so cannot be started, until ``monkeypatch`` is undone."""
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith(name):
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
