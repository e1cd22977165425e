"""What a user gets: the contents of wheel and sdist, and an installation without Node.

The archives are those of ``OWNEDKERNELS_DIST`` (a folder; ``make test`` builds it from scratch
first), or else built here from a copy of the working tree, with the bundle as it is there.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import jupyter_ownedkernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE_JSON = json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))
VERSION = PACKAGE_JSON["version"]
LABEXTENSION = "share/jupyter/labextensions/jupyter-ownedkernels"
DATA = f"jupyter_ownedkernels-{VERSION}.data/data"
ENTRY_POINTS = {
    "console_scripts": ("jupyter-ownedkernels", "jupyter_ownedkernels.cli.main:main"),
    "jupyter_client.kernel_provisioners": (
        "owned-provisioner",
        "jupyter_ownedkernels.provisioner:OwnedProvisioner",
    ),
}


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run to the end; both streams as text, colours removed. A failure shows them."""
    done = subprocess.run(
        [str(part) for part in command],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{text}"
    return text


def without_node(bin_folder: Path, home: Path) -> dict[str, str]:
    """An environment in which neither Node nor the user's Jupyter folders can be found."""
    keep = {name: os.environ[name] for name in ("LANG", "SSL_CERT_FILE") if name in os.environ}
    env = {**keep, "HOME": str(home), "PATH": str(bin_folder), "PYTHONDONTWRITEBYTECODE": "1"}
    assert shutil.which("node", path=env["PATH"]) is None
    assert shutil.which("nodejs", path=env["PATH"]) is None
    return env


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one wheel and one sdist."""
    if given := os.environ.get("OWNEDKERNELS_DIST"):
        return Path(given)
    bundle = ROOT / "jupyter_ownedkernels" / "labextension"
    if not (bundle / "static" / "style.js").exists():
        pytest.skip("the JupyterLab extension is not built: make install")
    copy = tmp_path_factory.mktemp("source") / "tree"
    # What git would hand out, changes that are not committed included.
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    # Left by a development build; a release starts from nothing.
    ignore = shutil.ignore_patterns("build_log.json")
    shutil.copytree(bundle, copy / "jupyter_ownedkernels" / "labextension", ignore=ignore)
    # Folders that must not get into the archives, whatever is in them.
    for name in ("labextension/node_modules", "labextension/.yarn", "ui-tests/node_modules"):
        (copy / name).mkdir()
        (copy / name / "junk.js").write_text("junk")
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, copy)
    return target


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("jupyter_ownedkernels-*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    (path,) = dist.glob("jupyter_ownedkernels-*.tar.gz")
    return path


@pytest.fixture(scope="session")
def wheel_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="session")
def sdist_names(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        return [member.name.partition("/")[2] for member in archive if member.isfile()]


@pytest.fixture(scope="session")
def read(wheel: Path) -> Callable[[str], str]:
    def read(name: str) -> str:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(name).decode()

    return read


def test_versions_are_one(wheel: Path, sdist: Path) -> None:
    assert jupyter_ownedkernels.__version__ == VERSION
    assert wheel.name.split("-")[1] == VERSION
    assert sdist.name == f"jupyter_ownedkernels-{VERSION}.tar.gz"


def test_the_bundle_is_there_once(wheel_names: list[str]) -> None:
    entries = [name for name in wheel_names if re.search(r"/remoteEntry\.\w+\.js$", name)]
    (entry,) = entries
    assert entry.startswith(f"{DATA}/{LABEXTENSION}/static/")
    assert [name for name in wheel_names if name.endswith("/style.js")] == [
        f"{DATA}/{LABEXTENSION}/static/style.js"
    ]
    assert not [n for n in wheel_names if n.startswith("jupyter_ownedkernels/labextension/")]


def test_the_bundle_is_of_this_version(read: Callable[[str], str]) -> None:
    built = json.loads(read(f"{DATA}/{LABEXTENSION}/package.json"))
    assert built["name"] == "jupyter-ownedkernels"
    assert built["version"] == VERSION
    assert built["jupyterlab"]["_build"]["load"].startswith("static/remoteEntry.")


def test_settings_schema_is_shipped(wheel_names: list[str]) -> None:
    assert f"{DATA}/{LABEXTENSION}/schemas/jupyter-ownedkernels/plugin.json" in wheel_names


def test_install_json_names_the_python_package(read: Callable[[str], str]) -> None:
    install = json.loads(read(f"{DATA}/{LABEXTENSION}/install.json"))
    assert install["packageManager"] == "python"
    assert install["packageName"] == "jupyter_ownedkernels"


def test_the_server_extension_is_enabled(read: Callable[[str], str]) -> None:
    text = read(f"{DATA}/etc/jupyter/jupyter_server_config.d/jupyter_ownedkernels.json")
    assert json.loads(text) == {
        "ServerApp": {"jpserver_extensions": {"jupyter_ownedkernels": True}}
    }


def test_entry_points(read: Callable[[str], str]) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(read(f"jupyter_ownedkernels-{VERSION}.dist-info/entry_points.txt"))
    assert {group: tuple(parser.items(group)) for group in parser.sections()} == {
        group: (entry,) for group, entry in ENTRY_POINTS.items()
    }


def test_every_source_is_shipped(wheel_names: list[str]) -> None:
    package = ROOT / "jupyter_ownedkernels"
    wanted = {
        str(path.relative_to(ROOT))
        for suffix in ("py", "yaml", "typed")
        for path in package.rglob(f"*.{suffix}")
        if path.relative_to(package).parts[0] != "labextension"
    }
    assert "jupyter_ownedkernels/runtime/spawner.py" in wanted
    assert wanted - set(wheel_names) == set()


def test_the_wheel_holds_nothing_else(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    dist_info = f"jupyter_ownedkernels-{VERSION}.dist-info"
    assert tops == {"jupyter_ownedkernels", DATA.split("/")[0], dist_info}
    unwanted = ("/__pycache__/", "/tests/", "/build_log.json")
    assert not [name for name in wheel_names if any(word in name for word in unwanted)]


def test_the_sdist_is_small_and_whole(sdist: Path, sdist_names: list[str]) -> None:
    assert sdist.stat().st_size < 1_000_000
    wanted = {
        ".gitignore",
        "LICENSE",
        "README.md",
        "jupyter_ownedkernels/labextension/static/style.js",
        "labextension/schema/plugin.json",
        "labextension/src/index.ts",
        "labextension/yarn.lock",
        "pyproject.toml",
        "tests/test_packaging.py",
    }
    assert wanted - set(sdist_names) == set()


def test_the_sdist_holds_no_leftovers(sdist_names: list[str]) -> None:
    leftovers = re.compile(
        r"(^|/)(node_modules|\.yarn|\.venv|__pycache__|\.make|\.jupyter|coverage|test-results)/"
        r"|^(dist|labextension/lib)/|\.tsbuildinfo$"
    )
    assert [name for name in sdist_names if leftovers.search(name)] == []


def test_the_sdist_builds_without_node(sdist: Path, wheel_names: list[str], tmp_path: Path) -> None:
    # The build tools are on the path of this Python; the folder of scripts may hold a node.
    env = without_node(tmp_path, tmp_path)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run(*pip, "--no-index", "--wheel-dir", tmp_path / "wheels", sdist, env=env)
    (path,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == sorted(wheel_names)


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The wheel in a fresh environment without Node; runs its Python with the given arguments.

    The dependencies are those of the environment of the tests, put on the path behind the new
    one, so that nothing is downloaded. An editable installation there is not found this way.
    """
    folder = tmp_path_factory.mktemp("fresh")
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", code).strip())
    (site / "dependencies.pth").write_text(
        "\n".join(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    )
    env = without_node(venv / "bin", folder)
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    # Without --force-reinstall pip takes the editable installation of the tests for this one.
    run(*pip, "--no-deps", "--no-index", "--force-reinstall", "--ignore-installed", wheel, env=env)
    return lambda *arguments: run(python, *arguments, env=env, cwd=folder)


def test_the_wheel_is_what_is_imported(installed: Callable[..., str]) -> None:
    code = "import sys, jupyter_ownedkernels as p; print(p.__file__.startswith(sys.prefix))"
    assert installed("-c", code).strip() == "True"


def test_jupyterlab_lists_the_extension(installed: Callable[..., str]) -> None:
    text = installed("-m", "jupyterlab.labextensions", "list")
    pattern = (
        rf"jupyter-ownedkernels v{re.escape(VERSION)} enabled OK \(python, jupyter_ownedkernels\)"
    )
    assert re.search(pattern, text), text


def test_the_server_lists_the_extension(installed: Callable[..., str]) -> None:
    text = installed("-m", "jupyter_server.extension.serverextension", "list")
    assert re.search(r"jupyter_ownedkernels enabled", text), text
    assert re.search(rf"jupyter_ownedkernels {re.escape(VERSION)} OK", text), text


def test_the_server_finds_the_extension_under_its_name(installed: Callable[..., str]) -> None:
    code = (
        "from jupyter_server.extension.manager import ExtensionPackage\n"
        "package = ExtensionPackage(name='jupyter_ownedkernels', enabled=True)\n"
        "print(package.validate(), package.version, *package.extension_points)"
    )
    assert installed("-c", code).split() == ["True", VERSION, "jupyter_ownedkernels"]


@pytest.mark.parametrize("group", ENTRY_POINTS)
def test_entry_points_load(installed: Callable[..., str], group: str) -> None:
    name, target = ENTRY_POINTS[group]
    code = (
        "from importlib.metadata import entry_points\n"
        f"(found,) = entry_points(group={group!r}, name={name!r})\n"
        "print(found.value, callable(found.load()))"
    )
    assert installed("-c", code).split() == [target, "True"]
