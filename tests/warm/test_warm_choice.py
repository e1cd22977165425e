"""Which launches may be forked, and which may share a template."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jupyter_ownedkernels.launching.choice import Choice, choose, of_template, significant

FILE = "/run/kernel-1.json"
PYTHON = sys.executable


def chosen(*argv: str, **environment: str) -> Choice | None:
    return choose(argv, {"PATH": os.defpath, **environment}, FILE)


@pytest.mark.parametrize(
    ("argv", "flags", "module"),
    [
        ([PYTHON, "-m", "ipykernel_launcher", "-f", FILE], (), "ipykernel_launcher"),
        ([PYTHON, "-mipykernel_launcher", "-f", FILE], (), "ipykernel_launcher"),
        ([PYTHON, "-m", "ipykernel", f"--f={FILE}"], (), "ipykernel"),
        (
            [PYTHON, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", FILE],
            ("-Xfrozen_modules=off",),
            "ipykernel_launcher",
        ),
        (
            [PYTHON, "-X", "dev", "-W", "error", "-Esu", "-m", "my.kernel", FILE],
            ("-X", "dev", "-W", "error", "-Esu"),
            "my.kernel",
        ),
    ],
)
def test_a_module_run_by_python_is_forked(
    argv: list[str], flags: tuple[str, ...], module: str
) -> None:
    choice = chosen(*argv)
    assert choice is not None
    assert (choice.flags, choice.module) == (flags, module)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [PYTHON],
        [PYTHON, "-m"],
        [PYTHON, "-m", "ipykernel_launcher"],
        [PYTHON, "-m", "ipykernel_launcher", "-f", "/another/file.json"],
        [PYTHON, "-c", "import ipykernel", "-m", "x", FILE],
        [PYTHON, "script.py", "-m", "ipykernel_launcher", "-f", FILE],
        [PYTHON, "-i", "-m", "ipykernel_launcher", "-f", FILE],
        [PYTHON, "--version", "-m", "ipykernel_launcher", "-f", FILE],
        ["/bin/sh", "-c", f"exec {PYTHON} -m ipykernel_launcher -f {FILE}"],
        ["conda", "run", "-n", "x", "python", "-m", "ipykernel_launcher", "-f", FILE],
        ["/no/such/python", "-m", "ipykernel_launcher", "-f", FILE],
        ["bin/python", "-m", "ipykernel_launcher", "-f", FILE],
        ["R", "--slave", "-e", "IRkernel::main()", "--args", FILE],
        ["perl", "-m", "ipykernel_launcher", FILE],
    ],
)
def test_everything_else_is_executed(argv: list[str]) -> None:
    assert chosen(*argv) is None


def test_a_bare_name_is_looked_up_in_the_kernels_path(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(PYTHON)
    argv = ("python", "-m", "ipykernel_launcher", "-f", FILE)
    found = choose(argv, {"PATH": str(tmp_path)}, FILE)
    assert found is not None
    assert found.executable == str(tmp_path / "python")
    assert choose(argv, {"PATH": str(tmp_path / "none")}, FILE) is None


def test_what_is_read_at_start_separates_and_the_rest_does_not() -> None:
    argv = (PYTHON, "-m", "ipykernel_launcher", "-f", FILE)
    plain = chosen(*argv)
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "VIRTUAL_ENV", "LC_ALL", "TZ"):
        assert chosen(*argv, **{name: "/1"}) != plain, name
    # Read by libraries when they are imported, which may be preloaded.
    for name in ("TORCHINDUCTOR_CACHE_DIR", "GOMP_CPU_AFFINITY", "KERAS_BACKEND", "HF_HOME"):
        assert chosen(*argv, **{name: "/1"}) != plain, name
    for name in ("FOO", "JPY_SESSION_NAME", "JPY_PARENT_PID", "JUPYTER_OWNEDKERNELS_LAUNCH"):
        assert chosen(*argv, **{name: "/1"}) == plain, name


def test_a_relative_path_means_another_folder_in_each_kernel() -> None:
    argv = (PYTHON, "-m", "ipykernel_launcher", "-f", FILE)
    assert chosen(*argv, PYTHONPATH="/abs") is not None
    assert chosen(*argv, PYTHONPATH="/abs:rel") is None
    assert chosen(*argv, PYTHONPATH="/abs:") is None


def test_values_of_the_environment_are_not_shown() -> None:
    choice = chosen(PYTHON, "-m", "ipykernel_launcher", "-f", FILE, JUPYTER_TOKEN="geheim")
    assert "geheim" not in repr(choice)


def test_a_template_gets_nothing_of_one_launch() -> None:
    environment = {
        "JPY_PARENT_PID": "1",
        "JUPYTER_OWNEDKERNELS_LAUNCH": "x",
        "HOME": "/h",
        "A": "b",
    }
    assert of_template(environment) == {"HOME": "/h", "A": "b"}
    assert significant(environment) == (("HOME", "/h"),)
