"""A control group with a limit of memory, of either version."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


class MemoryGroup:
    """Made on entry, removed on exit. Whoever is in it then is moved to the root group."""

    def __init__(self, limit: int) -> None:
        root = self._root()
        assert root is not None
        self._base, self._version = root
        self._path = self._base / f"ownedkernels-test-{uuid.uuid4().hex}"
        self._limit = limit

    @staticmethod
    def _root() -> tuple[Path, int] | None:
        if (_V1 / "memory.limit_in_bytes").exists() and os.access(_V1, os.W_OK):
            return _V1, 1
        for base in _V2:
            with contextlib.suppress(OSError):
                if "memory" in (base / "cgroup.subtree_control").read_text().split():
                    return (base, 2) if os.access(base, os.W_OK) else None
        return None

    @classmethod
    def obstacle(cls) -> str:
        """Why there can be none here; empty when there can."""
        if cls._root() is None:
            return "no memory controller here that this user may use"
        try:
            with cls(64 << 20):
                return ""
        except OSError as error:
            return f"a control group cannot be made: {error}"

    def __enter__(self) -> MemoryGroup:
        self._path.mkdir()
        try:
            if self._version == 1:
                self._write("memory.limit_in_bytes", str(self._limit))
                with contextlib.suppress(OSError):  # only with accounting of swap
                    self._write("memory.memsw.limit_in_bytes", str(self._limit))
            else:
                self._write("memory.max", str(self._limit))
                with contextlib.suppress(OSError):
                    self._write("memory.swap.max", "0")
        except BaseException:
            self._path.rmdir()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (self._path / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self._base / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            self._path.rmdir()

    def _write(self, name: str, text: str) -> None:
        (self._path / name).write_text(text)

    def prefix(self) -> list[str]:
        """A command in front of another that puts it, and all it starts, into the group."""
        script = f'echo $$ >"{self._path}/cgroup.procs" && exec "$@"'
        return ["sh", "-c", script, "sh"]

    def oom_kills(self) -> int:
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        counts = dict(row.split() for row in (self._path / name).read_text().splitlines())
        return int(counts["oom_kill"])
