"""Standard streams of a kernel, given the way ``subprocess.Popen`` takes them."""

from __future__ import annotations

import io
import os
import subprocess
from typing import IO, Any

from ..errors import BadRequest
from ..runtime import wire


class Stdio:
    """Three descriptors for the kernel, and this process's ends of the pipes.

    Each stream may be None, ``PIPE``, ``DEVNULL``, a descriptor or an object with
    ``fileno()``; ``stderr`` may be ``STDOUT``. None for ``stdin`` is a pipe that is at
    its end, as in Jupyter's own launcher: a kernel has no use for the owner's input.
    None for the others is the owner's own stream.
    """

    def __init__(
        self, stdin: Any = None, stdout: Any = None, stderr: Any = None, *, text: bool = False
    ) -> None:
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None
        self.child: list[int] = []
        self._close_later: list[int] = []
        try:
            self.child.append(self._input(stdin, text))
            self.child.append(self._output("stdout", stdout, 1, text))
            if stderr == subprocess.STDOUT:
                self.child.append(self.child[1])
            else:
                self.child.append(self._output("stderr", stderr, 2, text))
        except BaseException:
            self.close_child_ends()
            self.close_own_ends()
            raise

    def _input(self, source: Any, text: bool) -> int:
        if source is None or source == subprocess.PIPE:
            reader, writer = os.pipe()
            self._close_later.append(reader)
            if source is None:
                os.close(writer)
            else:
                raw = open(writer, "wb")  # noqa: SIM115
                self.stdin = io.TextIOWrapper(raw, write_through=True) if text else raw
            return reader
        return self._given(source)

    def _output(self, name: str, target: Any, own: int, text: bool) -> int:
        if target is None:
            try:
                os.fstat(own)
            except OSError:
                return self._given(subprocess.DEVNULL)
            return own
        if target == subprocess.PIPE:
            reader, writer = os.pipe()
            self._close_later.append(writer)
            raw = open(reader, "rb")  # noqa: SIM115
            setattr(self, name, io.TextIOWrapper(raw) if text else raw)
            return writer
        return self._given(target)

    def _given(self, stream: Any) -> int:
        if stream == subprocess.DEVNULL:
            fd = os.open(os.devnull, os.O_RDWR)
            self._close_later.append(fd)
            return fd
        if isinstance(stream, int):
            if stream < 0:
                raise BadRequest(f"not a stream for a kernel: {stream}")
            return stream
        return int(stream.fileno())

    def close_child_ends(self) -> None:
        """Once the spawner has them, or will not get them."""
        fds, self._close_later = self._close_later, []
        wire.close(fds)

    def close_own_ends(self) -> None:
        """When the kernel has ended, as ``LocalProvisioner.wait`` does."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
