"""The test's end of an owner: a process that starts kernels and then dies in some way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from . import census
from .census import Proc
from .workspace import Workspace

PROGRAM = Path(__file__).parent / "owner_program.py"


class OwnerError(AssertionError):
    """The owner raised; ``kind`` is the name of the exception's class."""

    def __init__(self, kind: str, text: str, traceback: str) -> None:
        super().__init__(f"{kind}: {text}\n{traceback}")
        self.kind = kind
        self.text = text


class Owner:
    """Start an owner behind the command ``prefix``; leave the block to end it.

    ``pid`` is the number in the test's own pid namespace, whatever stands in between.
    """

    def __init__(
        self,
        workspace: Workspace,
        prefix: Sequence[str] = (),
        *,
        provisioner: str = "owned-provisioner",
        env: dict[str, str] | None = None,
        python: Sequence[str] = ("-W", "error"),
        **popen: Any,
    ) -> None:
        self.workspace = workspace
        self.provisioner = provisioner
        self._errors = workspace.path / f"errors-{os.urandom(4).hex()}"
        with socket.socket(socket.AF_UNIX) as listener:
            path = str(workspace.path / f"s-{os.urandom(4).hex()}")
            listener.bind(path)
            os.chmod(path, 0o777)
            listener.listen()
            listener.settimeout(60)
            with self._errors.open("wb") as errors:
                popen = {"stdin": subprocess.DEVNULL, "stdout": errors, "stderr": errors, **popen}
                self.process = subprocess.Popen(
                    [*prefix, sys.executable, *python, str(PROGRAM), path],
                    env=workspace.environment(provisioner, **(env or {})),
                    **popen,
                )
            try:
                self._link, _ = listener.accept()
            except TimeoutError:
                raise AssertionError(f"the owner does not come up: {self.errors()}") from None
        credentials = self._link.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        self.pid: int = struct.unpack("3i", credentials)[0]
        self.proc: Proc = census.find(self.pid)
        self.parents = self._between()
        """What stands between the test and the owner: the command of the prefix."""
        self._answers = self._link.makefile("rb")

    def _between(self) -> set[Proc]:
        found = set()
        pid = self.pid
        while (seen := census.line(pid)) is not None and seen.ppid not in (0, 1, os.getpid()):
            pid = seen.ppid
            found.add(census.find(pid))
        return found

    def errors(self) -> str:
        """What the owner, and kernels without a stream of their own, have written."""
        return self._errors.read_text(errors="replace")

    # -- telling it what to do -----------------------------------------------------

    def tell(self, source: str, /, **given: Any) -> None:
        """Have source run, and do not wait for its end."""
        request = {"source": source, "given": given}
        self._link.sendall(json.dumps(request).encode() + b"\n")

    def answer(self, timeout: float = 90) -> Any:
        self._link.settimeout(timeout)
        raw = self._answers.readline()
        assert raw, f"the owner has ended: {self.errors()}"
        answer = json.loads(raw)
        if "error" in answer:
            raise OwnerError(answer["error"], answer["text"], answer["traceback"])
        return answer["result"]

    def run(self, source: str, timeout: float = 90, /, **given: Any) -> Any:
        """Have source run; what it assigned to ``result``."""
        self.tell(source, **given)
        return self.answer(timeout)

    def start(self, name: str, spec: str, **kwargs: Any) -> dict[str, Any]:
        """Start a kernel with a synchronous manager, known as ``name`` in the owner."""
        source = "result = start(name, spec, **kwargs)"
        return self.run(source, name=name, spec=spec, kwargs=kwargs)

    def set(self, **traits: Any) -> None:
        """Traits of OwnedKernels; to be called before the first start."""
        self.run("traits.update(given)", given=traits)

    def execute(self, name: str, code: str, timeout: float = 60) -> list[str]:
        """Run a cell; the texts it printed and the name of its error."""
        return self.run(
            "result = execute(name, code, seconds)",
            timeout + 30,
            name=name,
            code=code,
            seconds=timeout,
        )

    def submit(self, name: str, code: str) -> None:
        """Send a cell and do not wait for its end."""
        self.run("submit(name, code)", name=name, code=code)

    def is_alive(self, name: str) -> bool:
        return bool(self.run("result = call(name, 'is_alive')", name=name))

    def shut_down(self, name: str, **kwargs: Any) -> None:
        self.run("shut_down(name, **kwargs)", name=name, kwargs=kwargs)

    def wait_until_warm(self, standby: int = 0) -> None:
        """Until a template is ready, and so many of its kernels stand by."""
        source = (
            "from jupyter_ownedkernels import ownership\n"
            "result = any(one['state'] == 'ready' and one['standby'] >= standby"
            " for one in ownership.current().warm.to_json())"
        )
        census.wait_until(lambda: self.run(source, standby=standby), 60, "a warm spawner")

    # -- its processes ---------------------------------------------------------------

    def spawner(self) -> Proc:
        (found,) = census.children(self.pid, "kernel-spawner")
        return found

    def keepers(self) -> list[Proc]:
        return census.children(self.spawner().pid, "kernel-keeper")

    def keeper_of(self, pid: int) -> Proc:
        """The keeper above a process of a kernel."""
        while True:
            seen = census.line(pid)
            assert seen is not None, "no keeper above that process"
            if seen.name == "kernel-keeper":
                return seen.proc
            pid = seen.ppid

    # -- its end -----------------------------------------------------------------------

    def send(self, signum: int) -> None:
        fd = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(fd, signum)
        finally:
            os.close(fd)

    def die(self, signum: int = signal.SIGKILL) -> None:
        """Signal it and wait for its end."""
        self.send(signum)
        left = census.left_after([self.proc], 30)
        assert not left, "the owner does not end"

    def leave(self, status: int = 0) -> int:
        """Let the program come to its end without a shutdown of its kernels; its status."""
        self._link.sendall(json.dumps({"leave": status}).encode() + b"\n")
        return self.process.wait(30)

    def close(self) -> None:
        """End what is left of the owner. Its kernels are not this method's business."""
        # Before the link ends: at its end the program leaves in good order, and a kill in the
        # midst of that is another end each time.
        with contextlib.suppress(ProcessLookupError):
            if census.runs(self.proc):
                self.send(signal.SIGKILL)
        census.left_after([self.proc], 30)
        self._answers.close()
        self._link.close()
        census.end(self.parents)
        self.process.wait(30)

    def __enter__(self) -> Owner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            print(self.errors()[-4000:])
        self.close()
