"""Many kernels and many who ask at once: one look at the processes serves them all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rest_server import RestServer
from support import census
from support.workspace import Workspace

from jupyter_ownedkernels.handlers.base import _text

KERNELS = 25
CLIENTS = 20

# Notes each pass over the process table, and makes it slow enough to be met by others.
COUNTED = """
import time
import jupyter_ownedkernels.processes.table as module
take = module.Table.take.__func__

def counted(cls, *args):
    with open({path!r}, "a") as notes:
        print("look", file=notes)
    time.sleep(0.3)
    return take(cls, *args)

module.Table.take = classmethod(counted)
"""


def test_one_look_for_all_who_ask_at_once(
    servers: Callable[..., RestServer], workspace: Workspace, tmp_path: Path
) -> None:
    notes = tmp_path / "looks"
    notes.touch()
    server = servers(config=COUNTED.format(path=str(notes)))
    ids = {server.start_kernel("mini", f"notebook-{number}.ipynb") for number in range(KERNELS)}
    # Until the last of them is in a look that others may share.
    census.wait_until(
        lambda: all(one["process_count"] for one in server.get("kernels")["kernels"]), 30, "all"
    )
    time.sleep(1.1)  # the time for which a look is shared
    before = len(notes.read_text().splitlines())
    answers: list[set[str]] = []
    asked = threading.Barrier(CLIENTS)

    def ask() -> None:
        asked.wait(30)
        found = server.get("kernels")["kernels"]
        answers.append({one["kernel_id"] for one in found if one["rss_bytes"]})

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    # The event loop serves others while the look is taken.
    begun = time.monotonic()
    server.get("health")
    served_meanwhile = time.monotonic() - begun
    for thread in threads:
        thread.join(60)
    assert answers == [ids] * CLIENTS
    assert len(notes.read_text().splitlines()) - before <= 2
    assert served_meanwhile < 20
    # A kernel that is newer than the look that others share is not shown without its memory.
    new = server.start_kernel("mini")
    (found,) = [one for one in server.get("kernels")["kernels"] if one["kernel_id"] == new]
    assert found["process_count"] == 1


# Notes in which thread answers are made, and how often the server's secrets are gathered.
THREADS = """
import threading
from jupyter_ownedkernels import models
from jupyter_ownedkernels.handlers import routes
from jupyter_ownedkernels.redaction_known import KnownSecrets

def noted(what, function):
    def call(*args):
        with open({path!r}, "a") as notes:
            print(what, threading.current_thread().name, file=notes)
        return function(*args)
    return call

for kind in (models.Report, models.CleanResult):
    kind.to_json = noted("json", kind.to_json)
routes.redact = noted("redact", routes.redact)
KnownSecrets.__call__ = noted("secrets", KnownSecrets.__call__)
"""


def test_many_findings_do_not_hold_the_event_loop_up(private: Workspace, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with RestServer(private, config=THREADS.format(path=str(notes))) as server:
        kernel_id = server.start_kernel("python3")
        server.run(
            kernel_id,
            "import subprocess\n"
            "for _ in range(3):\n"
            f"    subprocess.Popen(['sh', '-c', 'sleep 300; exit', {server.token!r}],\n"
            "                     start_new_session=True)\n",
        )
        server.end_kernel(kernel_id)
        notes.write_text("")
        found = [
            one for one in server.get("strays?refresh=1")["findings"] if one["kind"] == "detached"
        ]
        told = notes.read_text().splitlines()
        notes.write_text("")
        server.clean(ids=[one["id"] for one in found], dry_run=False)
        cleaned = notes.read_text().splitlines()
    assert len(found) >= 3
    assert [line for line in told if line.startswith("secrets")] == ["secrets MainThread"]
    assert len([line for line in told if line.startswith("redact ownedkernels-rest")]) >= 3
    assert [line.partition("_")[0] for line in told if "json" in line] == ["json ownedkernels-rest"]
    assert {line.partition("_")[0] for line in cleaned} == {"json ownedkernels-rest"}


def test_long_answers_are_the_same_json() -> None:
    content = {
        "findings": [{"a": None}, {"b": "\u00e9"}],
        "none": [],
        "counts": {"x": [1]},
        "at": 1.5,
    }
    assert json.loads(_text(content)) == content


def test_scans_and_cleans_from_all_sides(server: RestServer) -> None:
    failures: list[str] = []
    logged = len(server.log)

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except AssertionError as error:
            failures.append(str(error)[:500])

    work: list[Callable[[], object]] = [
        lambda: server.get("strays?refresh=1"),
        lambda: server.get("strays"),
        lambda: server.clean(ids=["f-0123456789ab"], dry_run=False),
        lambda: server.clean(kinds=["stale_file", "detached"]),
        lambda: server.get("kernels?scope=user"),
        lambda: server.metrics(),
    ]
    threads = [threading.Thread(target=guarded, args=(one,)) for one in work * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert server.get("health")["mode"] == "full"
    assert "Uncaught exception" not in server.log[logged:]
