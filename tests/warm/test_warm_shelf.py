"""Modules that two threads of a kernel want at once: none is imported a second time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# ``shop.all`` brings ``shop.one`` along. What the first thread does stands still, or is done, at
# a moment in which the second one imports ``shop.one`` itself.
PROGRAM = """
import importlib, sys, threading
sys.path.insert(0, sys.argv[1])
from jupyter_ownedkernels.runtime.warm.needs import Needs
from jupyter_ownedkernels.runtime.warm.shelf import Shelf

reached, go_on = threading.Event(), threading.Event()
second = threading.main_thread()

def stand_still():
    if threading.current_thread() is not second and not reached.is_set():
        reached.set()
        assert go_on.wait(30)

class Kept(dict):
    def pop(self, name, *default):
        taken = super().pop(name, *default)
        if name == "shop.one":
            stand_still()
        return taken

class Paused(Shelf):
    def _bind(self, name):
        if name == "shop.one":
            stand_still()
        super()._bind(name)

class Late(list):
    def __iter__(self):
        # Not found in sys.modules; no finder was asked yet.
        if threading.current_thread() is second and not first.ident:
            first.start()
            first.join()
        return super().__iter__()

names = ["shop", "shop.all", "shop.one", "never"]
for name in names:
    importlib.import_module(name)
originals = {name: sys.modules[name] for name in names}
needs = Needs()
needs._needs = {"shop.all": {"shop.one"}}
shelf = (Paused if MOMENT == "bound" else Shelf)(names, [], needs, lambda back: None)
if MOMENT == "taken":
    shelf._kept = Kept(shelf._kept)
import shop

first = threading.Thread(target=importlib.import_module, args=["shop.all"])
if MOMENT == "looked for":
    sys.meta_path = Late(sys.meta_path)
else:
    first.start()
    assert reached.wait(30)
try:
    found = importlib.import_module("shop.one")
    assert found is originals["shop.one"], "imported a second time"
    assert shop.one is found
finally:
    go_on.set()
    first.join()
assert sys.modules["shop.one"] is shop.one is originals["shop.one"]
assert sys.modules["shop.all"] is shop.all is originals["shop.all"]
for name in ("shop", "shop.all", "shop.one"):
    loader = type(originals[name].__spec__.loader).__name__
    assert loader == "SourceFileLoader", loader
assert importlib.reload(shop.one).value is not None
"""


@pytest.mark.parametrize("moment", ["taken", "bound", "looked for"])
def test_two_threads(tmp_path: Path, moment: str) -> None:
    (tmp_path / "shop").mkdir()
    for name in ("never", "shop/__init__", "shop/all", "shop/one"):
        (tmp_path / f"{name}.py").write_text("value = object()\n")
    done = subprocess.run(
        [sys.executable, "-c", f"MOMENT = {moment!r}\n{PROGRAM}", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
