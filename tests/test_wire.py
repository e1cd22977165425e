"""Messages between owner, spawner and keeper, where descriptors run out or nobody listens."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jupyter_ownedkernels.runtime import spawner, wire


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_long_message_that_finds_no_descriptor() -> None:
    """It is an error of the system, not the content of another descriptor or a crash."""
    ours, theirs = wire.pair()
    with ours, theirs, open(os.devnull, "rb") as null:
        wire.send(ours, {"op": "launch", "env": "x" * wire.INLINE_LIMIT}, [null.fileno()])
        with no_descriptor_left(), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            wire.receive(theirs)
        wire.send(ours, {"op": "ready"})
        assert wire.receive(theirs) == ({"op": "ready"}, [])


def test_a_word_to_nobody() -> None:
    """A launch that came to nothing, and whose owner has given it up, harms no spawner."""
    ours, theirs = wire.pair()
    with theirs:
        ours.close()
        spawner.tell(theirs.fileno(), {"op": "failed"})
