"""What importing a preloaded module does in a kernel: the same as if it were imported there."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warm_kernels import Kennel, Kernel

from jupyter_ownedkernels.runtime import inherited

WAYS = ("fork", "standby")
PACKAGES = {
    # Loads its parts late, as numpy does.
    "lazy/__init__.py": "def __getattr__(name):\n    if name == 'part':\n"
    "        import lazy.part\n        return lazy.part\n    raise AttributeError(name)",
    "lazy/part.py": "value = 1",
    "lazy/other.py": "value = 2",
    # Imports in ways that no import statement shows, as extensions do, and makes a module.
    "odd/__init__.py": "import importlib, sys, types\nimportlib.import_module('odd.quiet')\n"
    "made = sys.modules['odd.made'] = types.ModuleType('odd.made')",
    "odd/quiet.py": "import importlib\nimportlib.import_module('colorsys')",
    "odd/unasked.py": "import mmap",
    # Brings all of them, in an order that a kernel need not follow.
    "user.py": "import odd.unasked\nfrom lazy import other\nimport lazy\nlazy.part\n"
    "import multiprocessing.pool",
    "talker.py": "import logging, warnings\nwarnings.filterwarnings('ignore', 'of the talker')\n"
    "log = logging.getLogger('talker')\nlog.addHandler(logging.StreamHandler())\n"
    "def talk():\n    warnings.warn('of the talker')\n    log.warning('said')",
}  # fmt: skip
NAMES = "print(__import__('json').dumps(sorted(__import__('sys').modules)))"


@pytest.fixture(scope="module")
def kennel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kennel]:
    """Replaces the one of each test: all of these share a template."""
    folder = tmp_path_factory.mktemp("kennel")
    made = Kennel(folder, preload=["user", "talker"], standby=1)
    made.packages(PACKAGES)
    (made.cwd / "of_the_folder.py").write_text("def double(x):\n    return 2 * x\n")
    entry = made.warm_up()
    assert (entry["state"], entry["reason"]) == ("ready", None)
    yield made
    made.close()


def modules(kernel: Kernel) -> set[str]:
    return set(json.loads(kernel.run(NAMES)))


@pytest.mark.parametrize(
    "statement",
    [
        "import lazy",
        "import lazy.other",
        "from lazy import part",
        "import odd",
        "from odd import made",
        "import user",
    ],
)
def test_the_modules_are_those_of_an_executed_kernel(kennel: Kennel, statement: str) -> None:
    def brought(how: str) -> set[str]:
        kernel = kennel.start(how)
        before = modules(kernel)
        kernel.run(statement)
        return modules(kernel) - before

    executed = brought("exec")
    for how in WAYS:
        assert brought(how) == executed


@pytest.mark.parametrize("how", WAYS)
def test_a_part_is_in_its_package_once_it_is_imported(kennel: Kennel, how: str) -> None:
    kernel = kennel.start(how)
    kernel.run("import lazy, odd, sys")
    parts = "[hasattr(lazy, 'other'), 'part' in vars(lazy), 'lazy.part' in sys.modules]"
    assert kernel.value(parts) == [False, False, False]
    assert (
        kernel.value("[hasattr(odd, 'quiet'), odd.made is sys.modules['odd.made']]") == [True] * 2
    )
    assert kernel.value("lazy.part.value") == 1
    assert kernel.value(parts) == [False, True, True]
    kernel.run("import lazy.other")
    assert kernel.value("[lazy.other is sys.modules['lazy.other'], lazy.other.value]") == [True, 2]


def test_there_is_one_of_each_module_that_the_spawner_has_for_itself(kennel: Kennel) -> None:
    kernel = kennel.start("fork")
    kernel.run("import odd.unasked, mmap")
    assert kernel.value("odd.unasked.mmap is mmap") is True


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_find_modules_of_the_working_folder(kennel: Kennel, how: str, method: str) -> None:
    """multiprocessing remembers the folder in which it was imported."""
    code = (
        "import multiprocessing, of_the_folder\n"
        f"with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "    print(pool.map_async(of_the_folder.double, [2]).get(30))"
    )
    assert kennel.start(how).run(code) == "[4]\n"


@pytest.mark.parametrize("how", WAYS)
def test_the_main_module_is_the_kernels_under_both_of_its_names(kennel: Kennel, how: str) -> None:
    kernel = kennel.start(how)
    assert kernel.value("'__mp_main__' in __import__('sys').modules") is False
    kernel.run("import multiprocessing, sys")
    assert kernel.value("sys.modules['__mp_main__'] is sys.modules['__main__']") is True


FILTERS = "[repr(one) for one in __import__('warnings').filters]"
STREAM = "[type(one.stream).__name__ for one in talker.log.handlers]"


@pytest.mark.parametrize("how", WAYS)
def test_filters_and_log_handlers_are_as_if_they_were_made_now(kennel: Kennel, how: str) -> None:
    def seen(kernel: Kernel) -> list[Any]:
        before = kernel.value(FILTERS)
        kernel.run("import warnings; warnings.simplefilter('error')")
        kernel.run("import talker")
        # The module's own filter stands before the one that makes errors of all.
        assert kernel.run("talker.talk()") == "said\n"
        return [before, kernel.value(FILTERS), kernel.value(STREAM)]

    assert seen(kennel.start(how)) == seen(kennel.start("exec"))


@pytest.mark.parametrize(
    ("name", "hides"),
    [
        ("talker.ipynb", False),
        ("talker.py", True),
        ("lazy.py", True),  # brought along only
        ("odd", False),
        ("odd/__init__.py", True),
        ("multiprocessing.py", False),  # Python's own come first
        ("matplotlibrc", False),
    ],
)
def test_what_hides_a_preloaded_module(
    kennel: Kennel, tmp_path: Path, name: str, hides: bool
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if path.suffix or name == "matplotlibrc":
        path.write_text("")
    else:
        path.mkdir()
    assert (kennel.forked(cwd=str(tmp_path)) is None) == hides
    assert kennel.pool.to_json()[-1]["failures"] == 0


@pytest.mark.parametrize("what", ["processors", "stack"])
def test_what_is_read_once_keeps_a_kernel_from_being_forked(kennel: Kennel, what: str) -> None:
    wanted = inherited.of_this_thread()
    assert wanted is not None
    assert kennel.forked(inherited=wanted) is not None
    if what == "processors":
        if len(wanted["processors"]) == 1:
            pytest.skip("one processor cannot be made fewer")
        wanted["processors"] = wanted["processors"][:1]
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        wanted["limits"]["RLIMIT_STACK"] = [4 << 20 if soft != 4 << 20 else 2 << 20, hard]
    assert kennel.forked(inherited=wanted) is None
    assert kennel.pool.to_json()[-1]["failures"] == 0
