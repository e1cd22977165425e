"""Preloaded modules: there at once, and not to be seen before they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_kernels import Kennel, until

from jupyter_ownedkernels.errors import WarmLost

PACKAGE = {
    "shop/__init__.py": "import time\nfrom . import shelf\nfrom .shelf import thing\n"
    "made = time.time()",
    "shop/shelf.py": "import depot.cellar\nthing = depot.cellar.barrel",
    "shop/later.py": "value = 7",
    "depot/__init__.py": "import secrets\nnumber = secrets.token_hex()",
    "depot/cellar.py": "barrel = ['wine']",
    "unrelated.py": "value = 8",
}  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Kennel]:
    kennel = Kennel(tmp_path, preload=["shop", "shop.later", "unrelated"], standby=1)
    kennel.packages(PACKAGE)
    entry = kennel.warm_up()
    assert (entry["state"], entry["reason"]) == ("ready", None)
    assert entry["preload"] == ["shop", "shop.later", "unrelated"]
    yield kennel
    kennel.close()


NAMES = (
    "sorted(n for n in __import__('sys').modules"
    " if n.split('.')[0] in {'shop', 'depot', 'unrelated'})"
)


@pytest.mark.parametrize("how", ["fork", "standby"])
def test_each_import_brings_what_it_would_have_brought(shop: Kennel, how: str) -> None:
    kernel = shop.start(how)
    assert kernel.value(NAMES) == []
    kernel.run("import shop.shelf as s")
    assert kernel.value(NAMES) == ["depot", "depot.cellar", "shop", "shop.shelf"]
    kernel.run("import shop, depot; assert shop.shelf is s and s.depot is depot")
    kernel.run("from shop.later import value")
    assert kernel.value("value") == 7
    assert "unrelated" not in kernel.value(NAMES)
    kernel.run("import unrelated, sys")
    assert kernel.value("type(sys.meta_path[0]).__name__") != "Shelf"
    origins = kernel.value("[sys.modules[n].__spec__.origin for n in " + NAMES + "]")
    assert all(str(shop.folder) in origin for origin in origins)
    assert kernel.value("type(shop.__spec__.loader).__name__") == "SourceFileLoader"


@pytest.mark.parametrize("how", ["exec", "fork", "standby"])
def test_whoever_only_asks_for_a_module_is_answered_and_changes_nothing(
    shop: Kennel, how: str
) -> None:
    kernel = shop.start(how)
    kernel.run(
        "from importlib.util import find_spec\n"
        "found = [find_spec('shop'), find_spec('unrelated'), find_spec('nowhere')]"
    )
    assert kernel.value(NAMES) == []
    packages = shop.folder / "packages"
    assert kernel.value("[spec and (spec.origin, spec.has_location) for spec in found]") == [
        (str(packages / "shop" / "__init__.py"), True),
        (str(packages / "unrelated.py"), True),
        None,
    ]
    assert kernel.value("[spec and spec.submodule_search_locations for spec in found]") == [
        [str(packages / "shop")],
        None,
        None,
    ]
    kernel.run("import shop, unrelated")
    made = kernel.value("shop.made")
    kernel.run("import shop.shelf; assert shop.thing == ['wine']")
    assert kernel.value("shop.made") == made
    if how != "exec":
        assert made == shop.start("fork").value("__import__('shop').made")


def test_the_code_ran_once_for_all_kernels(shop: Kennel) -> None:
    expression = "(__import__('shop').made, __import__('depot').number)"
    one, other = (shop.start(how).value(expression) for how in ("fork", "standby"))
    assert one == other


def test_reload_and_a_second_import_run_it_again(shop: Kennel) -> None:
    kernel = shop.start("fork")
    kernel.run("import importlib, sys, shop; before = shop.made")
    kernel.run("importlib.reload(shop); assert shop.made > before")
    kernel.run("before = shop.made; del sys.modules['shop']; import shop")
    kernel.run("assert shop.made > before")


@pytest.mark.parametrize("name", ["shop.py", "depot"])
def test_what_the_working_folder_hides_is_not_preloaded(shop: Kennel, name: str) -> None:
    if name == "depot":
        (shop.cwd / name).mkdir()
        (shop.cwd / name / "__init__.py").write_text("")
        shop.pool.preload = ("shop", "depot")
        assert shop.warm_up()["state"] == "ready"
    else:
        (shop.cwd / name).write_text("made = 'mine'")
    assert shop.forked() is None
    assert shop.pool.to_json()[-1]["failures"] == 0
    request = shop.request(cwd="/")
    assert shop.forked(request) is not None
    until(lambda: shop.pool.to_json()[-1]["standby"], "a standby kernel")
    ports = shop.pool.reserve([*shop.argv, "/x.json"], shop.environment, "/x.json")
    with pytest.raises(WarmLost):
        shop.forked(shop.request(ports))


def test_the_key_between_processes_is_each_kernels_own(tmp_path: Path) -> None:
    """multiprocessing draws it once, when it is imported."""
    kennel = Kennel(tmp_path, preload=["multiprocessing.process"])
    key = "bytes(__import__('multiprocessing').current_process().authkey)"
    try:
        assert kennel.warm_up()["reason"] is None
        one, other = (kennel.start("fork").value(key) for _ in range(2))
        assert one != other
    finally:
        kennel.close()


def test_a_module_that_cannot_be_imported_is_reported_and_the_rest_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kennel = Kennel(tmp_path, preload=["no_such_module", "wave"])
    try:
        assert kennel.warm_up()["state"] == "ready"
        assert "no_such_module: ModuleNotFoundError" in caplog.text
        assert kennel.start("fork").value("'wave' in __import__('sys').modules") is False
    finally:
        kennel.close()
