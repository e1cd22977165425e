"""A throw-away Jupyter home with its kernelspecs, and a mark on every process of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import census
from .census import Proc

HERE = Path(__file__).parent
MARK = "OWNEDKERNELS_TEST"
IPYKERNEL = [
    sys.executable,
    "-Xfrozen_modules=off",
    "-m",
    "ipykernel_launcher",
    "-f",
    "{connection_file}",
]
# The command stays a child of the shell, whatever shell it is: it has something to do after.
SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


class Workspace:
    """Folders for one test or a module of them. Its mark is in the environment of all."""

    def __init__(self) -> None:
        # A short path, since Unix sockets lie in it, that another user may enter.
        self.path = Path(tempfile.mkdtemp(prefix="ok-"))
        self.path.chmod(0o755)
        self.mark = uuid.uuid4().hex
        self.notes = self.path / "notes"
        self.runtime = self.path / "runtime"
        for folder in (self.notes, self.runtime, self.path / "data", self.path / "home"):
            folder.mkdir()
        # Where journals go that cannot be elsewhere: on this machine there may be others.
        (self.path / "session").mkdir(mode=0o700)
        self.temporary = self.path / "tmp"
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)

    def environment(self, provisioner: str = "owned-provisioner", **extra: str) -> dict[str, str]:
        """For an owner: nothing of Jupyter's configuration around us gets through."""
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "JPY_", "IPYTHON", "PYTEST_", "COV_"))
        }
        env.update(
            {
                MARK: self.mark,
                "HOME": str(self.path / "home"),
                "IPYTHONDIR": str(self.path / "home" / "ipython"),
                "JUPYTER_CONFIG_DIR": str(self.path / "config"),
                "JUPYTER_DATA_DIR": str(self.path / "data"),
                "JUPYTER_RUNTIME_DIR": str(self.runtime),
                "XDG_RUNTIME_DIR": str(self.path / "session"),
                "TMPDIR": str(self.temporary),
                "JUPYTER_PLATFORM_DIRS": "1",
                "JUPYTER_DEFAULT_PROVISIONER_NAME": provisioner,
            }
        )
        env.update(extra)
        return env

    def spec(self, name: str, argv: Sequence[str], **fields: Any) -> str:
        """Install a kernelspec; its name."""
        folder = self.path / "data" / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        content = {"argv": list(argv), "display_name": name, "language": "none", **fields}
        (folder / "kernel.json").write_text(json.dumps(content))
        return name

    def mini_argv(self, name: str, scene: str = "idle", *options: str) -> list[str]:
        """The command of a mini kernel that leaves its note under ``name``."""
        program = str(HERE / "mini_kernel.py")
        note = str(self.notes / name)
        start = [sys.executable, "-I", "-S", program, "-f", "{connection_file}"]
        return [*start, "--scene", scene, "--note", note, *options]

    def mini(
        self, name: str, scene: str = "idle", wrapper: Sequence[str] = (), **fields: Any
    ) -> str:
        """Install a mini kernel that plays a scene, behind a wrapper if one is given."""
        return self.spec(name, [*wrapper, *self.mini_argv(name, scene)], **fields)

    def python(self, name: str, wrapper: Sequence[str] = (), **fields: Any) -> str:
        """Install a real Python kernel."""
        return self.spec(name, [*wrapper, *IPYKERNEL], language="python", **fields)

    def scene_code(self, name: str, scene: str) -> str:
        """A cell that plays a scene in a Python kernel; its note lies under ``name``."""
        return (
            f"import sys; sys.path.append({str(HERE)!r}); import scenes\n"
            f"scenes.play({scene!r}, {str(self.notes / name)!r})"
        )

    def note(self, name: str, timeout: float = 60) -> dict[str, Proc]:
        """Wait for the note of a scene: the processes it tells of, by their names there."""
        path = self.notes / name
        census.wait_until(path.exists, timeout, f"the scene of {name}")
        pids: Mapping[str, int] = json.loads(path.read_text())
        return {key: census.find(pid) for key, pid in pids.items()}

    def forget_note(self, name: str) -> None:
        (self.notes / name).unlink(missing_ok=True)

    def connection_files(self) -> list[str]:
        return sorted(path.name for path in self.runtime.glob("kernel-*.json"))

    def processes(self) -> set[Proc]:
        """Every process with this workspace's mark; those with a clean environment not."""
        return census.marked(f"{MARK}={self.mark}")

    def close(self) -> set[Proc]:
        """Remove all; the processes that were left (they are ended)."""
        left = census.left_after(self.processes(), 10)
        census.end(left)
        shutil.rmtree(self.path, ignore_errors=True)
        return left
