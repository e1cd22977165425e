"""Numbers, plots, frames and tensors, preloaded and imported by a cell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
import science
from warm_kernels import Kennel, Kernel

LIBRARIES = ("numpy", "matplotlib.pyplot", "pandas", "torch")
WAYS = ("exec", "fork", "standby")
# A module of the working folder, for workers that are other interpreters.
DATA = """
import torch


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index * index
"""


def kennel(factory: pytest.TempPathFactory, preload: list[str]) -> Kennel:
    made = Kennel(factory.mktemp("science"), preload=preload, standby=1)
    made.argv[0] = science.PYTHON
    (made.folder / "squares.py").write_text(DATA)
    entry = made.warm_up()
    assert (entry["state"], entry["preload"], entry["reason"]) == ("ready", preload, None)
    return made


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kennel]:
    """With all that there are in the template."""
    preload = [name for name in LIBRARIES if science.has(name.partition(".")[0])]
    if not {"numpy", "matplotlib.pyplot"} <= set(preload):
        pytest.skip(science.missing("numpy or matplotlib"))
    # The very first import of matplotlib by a user looks all fonts over, and imports more for it.
    subprocess.run([science.PYTHON, "-c", "import matplotlib.pyplot"], check=True)
    made = kennel(tmp_path_factory, preload)
    yield made
    made.close()


@pytest.fixture(scope="module", params=["plain", "preloaded"])
def torches(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kennel]:
    """Kernels in which torch can be imported."""
    if not science.has("torch"):
        pytest.skip(science.missing("torch"))
    made = kennel(tmp_path_factory, ["torch"] if request.param == "preloaded" else [])
    yield made
    made.close()


@pytest.mark.parametrize("how", WAYS)
def test_numbers_and_plots(loaded: Kennel, how: str) -> None:
    kernel = loaded.start(how)
    tops = {name.partition(".")[0] for name in LIBRARIES}
    kernel.run(f"import sys; assert not {tops} & set(sys.modules)")
    kernel.run("import numpy as np, matplotlib.pyplot as plt, pickle")
    kernel.run("a = np.ones((300, 300)); assert (a @ a)[0, 0] == 300")
    kernel.run("assert pickle.loads(pickle.dumps(np.arange(3))).sum() == 3")
    assert "inline" in kernel.run("print(plt.get_backend())")
    kinds = []
    kernel.client.execute_interactive(
        "%matplotlib inline\nplt.plot([1, 2]); plt.show()",
        output_hook=lambda message: kinds.append(message["msg_type"]),
        timeout=60,
    )
    assert "display_data" in kinds
    threads = "len(__import__('os').listdir('/proc/self/task'))"
    executed = loaded.start("exec")
    executed.run("import numpy as np; a = np.ones((300, 300)); a @ a; import matplotlib.pyplot")
    assert kernel.value(threads) == executed.value(threads)


def test_the_configuration_of_a_folder_is_read(loaded: Kennel) -> None:
    folder = loaded.folder / "configured"
    folder.mkdir()
    assert loaded.forked(cwd=str(folder)) is not None
    (folder / "matplotlibrc").write_text("lines.linewidth: 7")
    assert loaded.forked(cwd=str(folder)) is None
    assert loaded.pool.to_json()[-1]["failures"] == 0


@pytest.mark.parametrize("how", ["fork", "standby"])
def test_frames(loaded: Kennel, how: str) -> None:
    if "pandas" not in loaded.pool.preload:
        pytest.skip(science.missing("pandas"))
    kernel = loaded.start(how)
    kernel.run("import pickle, pandas as pd; f = pd.DataFrame({'a': [1, 2]})")
    kernel.run("assert pickle.loads(pickle.dumps(f)).a.sum() == 3")


@pytest.mark.parametrize("how", ["fork", "standby"])
@pytest.mark.parametrize(
    "draw",
    [
        "numpy.random.rand()",
        "numpy.random.default_rng().random()",
        "numpy.random.RandomState().rand()",
        "torch.rand(1).item()",
        "torch.randn(1).item()",
        "torch.initial_seed()",
    ],
)
def test_two_kernels_draw_different_numbers(loaded: Kennel, draw: str, how: str) -> None:
    library = draw.partition(".")[0]
    if library not in loaded.pool.preload:
        pytest.skip(science.missing(library))
    one, other = (loaded.start(how).run(f"import {library}; print({draw})") for _ in range(2))
    assert one != other


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_import_brings_the_modules_that_it_brings_elsewhere(
    loaded: Kennel, library: str
) -> None:
    if library not in loaded.pool.preload:
        pytest.skip(science.missing(library))

    def brought(how: str) -> set[str]:
        names = "print(*sorted(__import__('sys').modules))"
        kernel = loaded.start(how)
        before = set(kernel.run(names).split())
        kernel.run(f"import {library}")
        # Python's own module of threads is taken from an attribute, once that is there.
        return set(kernel.run(names).split()) - before - {"concurrent.futures.thread"}

    executed = brought("exec")
    for how in ("fork", "standby"):
        assert brought(how) == executed


def test_numbers_of_a_given_seed_are_the_same_everywhere(torches: Kennel) -> None:
    """As those of a new generator are, which torch gives a fixed seed."""
    code = (
        "import torch; torch.manual_seed(7); print(torch.rand(3), torch.randn(3))\n"
        "print(torch.Generator().initial_seed(), torch.rand(1, generator=torch.Generator()))"
    )
    said = {torches.start(how).run(code) for how in WAYS}
    assert len(said) == 1


@pytest.mark.parametrize("how", WAYS)
def test_nothing_is_left_for_other_devices(torches: Kennel, how: str) -> None:
    """A seed of the processor's generator is not one of CUDA's."""
    kernel = torches.start(how)
    kernel.run("import torch")
    kernel.run("tracker = getattr(torch.cuda, '_lazy_seed_tracker', None)")
    assert kernel.value("bool(tracker and tracker.get_calls())") is False


@pytest.mark.parametrize("how", WAYS)
def test_threads_compute(torches: Kennel, how: str) -> None:
    kernel = torches.start(how)
    kernel.run("import os, torch; a = torch.ones(1200, 1200); b = torch.mm(a, a)")
    assert kernel.value("b[0, 0].item() == 1200 and bool((b == 1200).all())") is True
    kernel.run("w = torch.ones(300, 300, requires_grad=True); (w @ w).sum().backward()")
    assert kernel.value("w.grad[0, 0].item()") == 600
    kernel.run("f = torch.jit.script(torch.nn.Linear(2, 2)); f(torch.ones(1, 2))")
    processors = "len(os.sched_getaffinity(0))"
    assert kernel.value(f"torch.get_num_threads() <= {processors}") is True
    executed = torches.start("exec")
    executed.run("import torch")
    numbers = "[torch.get_num_threads(), torch.get_num_interop_threads()]"
    assert kernel.value(numbers) == executed.value(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_load_data(torches: Kennel, method: str, how: str) -> None:
    """After threads were used; from a module of the working folder."""
    kernel: Kernel = torches.start(how)
    kernel.run("import torch; a = torch.ones(600, 600); a @ a; import squares")
    said = kernel.run(
        "loader = torch.utils.data.DataLoader(\n"
        f"    squares.Squares(), batch_size=4, num_workers=2, multiprocessing_context={method!r}\n"
        ")\nprint([batch.tolist() for batch in loader])"
    )
    assert [int(n) for n in re.findall(r"\d+", said)] == [n * n for n in range(8)]
