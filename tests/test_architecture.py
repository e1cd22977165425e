"""The rules of the house that a parser can check: layers, sizes, words that must not stay."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jupyter_ownedkernels"
NAME = PACKAGE.name

# From the base up, by module or package. A module may import its own layer and those before it.
LAYERS: dict[str, list[str]] = {
    "runtime": ["runtime"],
    "base": [
        "_version",
        "errors",
        "identity",
        "imports",
        "marks",
        "models",
        "redaction",
        "redaction_known",
        "settings",
        "sharing",
    ],
    "store": ["connections", "journal"],
    "mechanism": ["launching", "processes"],
    "service": ["doctor", "owned_kernel", "owners", "ownership", "recovery"],
    "jupyter": [
        "config",
        "kernel_manager",
        "manager",
        "other_kernels",
        "provisioner",
        "provisioning",
        "prompt",
        "restarter",
        "takeover",
        "telemetry",
        "views",
        "wishes",
    ],
    "surface": ["cli", "extension", "handlers"],
}

# The package itself is at both ends: anybody may read its version, and it reaches the extension.
TOP = "__init__"

# Whoever may send a signal: to own children, and to everything else with proof of identity. The
# rehearsal ends its own child before it reaps it.
SIGNALLERS = {"launching.spawners", "runtime.retire", "runtime.warm.rehearsal", "processes.tree"}
SIGNALS = {"kill", "killpg", "pidfd_send_signal", "send_signal", "terminate", "tgkill"}

# A warm spawner runs where ipykernel is installed; it imports these late, inside functions.
KERNEL_STACK = {"ipykernel", "tornado", "zmq"}

MAX_LINES = 400


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] == "labextension":
            continue
        parts = list(relative.with_suffix("").parts)
        if parts[-1] == TOP and len(parts) > 1:
            parts.pop()
        found[".".join(parts)] = path
    return found


MODULES = modules()
RUNTIME = [name for name in MODULES if name.split(".")[0] == "runtime"]


def layer_of(name: str) -> str | None:
    for layer, members in LAYERS.items():
        if name.split(".")[0] in members:
            return layer
    return None


def imported(name: str, path: Path, *, for_types: bool = True) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import, lazy ones included."""
    is_package = path.name == f"{TOP}.py"
    package = [NAME, *([] if name == TOP else name.split("."))]
    if not is_package:
        package.pop()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not for_types:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = package[: len(package) - node.level + 1] + base
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name])


def own(target: str) -> str | None:
    """The module of this package that an import names; None for anything else.

    ``from .journal import Journal`` names an attribute: the longest prefix that is a module counts.
    """
    parts = target.split(".")
    if parts[0] != NAME:
        return None
    for end in range(len(parts), 1, -1):
        candidate = ".".join(parts[1:end])
        if candidate in MODULES:
            return candidate
    return TOP


def graph() -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        targets = {own(target) for _, target in imported(name, path, for_types=False)}
        edges[name] = {target for target in targets if target and target not in (name, TOP)}
    return edges


def tracked() -> list[Path]:
    """Files under version control; all that an archive without git files would hold."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:  # a picture
        return []


def found(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(lines_of(path), 1)
        if pattern.search(line)
    ]


def test_the_package_is_found() -> None:
    assert {TOP, "identity", "imports", "runtime", "runtime.procfs"} <= set(MODULES)


@pytest.mark.parametrize("name", [name for name in MODULES if name != TOP])
def test_every_module_has_a_layer(name: str) -> None:
    assert layer_of(name), f"{name} is in no layer: name it in LAYERS, above all it imports"


@pytest.mark.parametrize("name", [name for name in MODULES if name != TOP])
def test_imports_point_down(name: str) -> None:
    order = list(LAYERS)
    layer = layer_of(name)
    if layer is None:
        pytest.skip("test_every_module_has_a_layer says so")
    allowed = order[: order.index(layer) + 1]
    for line, target in imported(name, MODULES[name]):
        module = own(target)
        if module in (None, TOP):
            continue
        below = layer_of(module)
        assert below is None or below in allowed, (
            f"{name}:{line}: a module of the layer {layer} imports {module} of {below}"
        )


def of_packages(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between packages: what lies in one folder counts as one."""
    whole: dict[str, set[str]] = {}
    for name, targets in edges.items():
        package = name.split(".")[0]
        tops = {target.split(".")[0] for target in targets}
        whole.setdefault(package, set()).update(tops - {package})
    return whole


@pytest.mark.parametrize("edges", [graph(), of_packages(graph())], ids=["modules", "packages"])
def test_no_import_cycles(edges: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, "cycle: " + " > ".join([*way[way.index(name) :], name])
        if name in done:
            return
        for target in sorted(edges[name]):
            visit(target, (*way, name))
        done.add(name)

    for name in edges:
        visit(name, ())


@pytest.mark.parametrize("name", RUNTIME)
def test_runtime_needs_only_the_standard_library(name: str) -> None:
    path = MODULES[name]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_import = {node.lineno for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    for line, target in imported(name, path):
        top = target.split(".")[0]
        is_late = name.startswith("runtime.warm") and line not in at_import
        # start.py is run by path, where the folder is a package of its own.
        is_runtime = own(target) in RUNTIME or top == "runtime"
        assert is_runtime or top in sys.stdlib_module_names or (is_late and top in KERNEL_STACK), (
            f"{name}:{line}: imports {target}"
        )


@pytest.mark.parametrize("name", RUNTIME)
def test_runtime_is_python_39(name: str) -> None:
    """It runs in the interpreters of kernels, which may be older than the server's."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"), feature_version=(3, 9))
    for node in ast.walk(tree):
        assert type(node).__name__ != "Match", f"{name}:{node.lineno}: match"
        if isinstance(node, ast.Call):
            words = {keyword.arg for keyword in node.keywords}
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            assert called != "dataclass" or not words & {"slots", "kw_only"}, (
                f"{name}:{node.lineno}"
            )
            assert called != "zip" or "strict" not in words, f"{name}:{node.lineno}"


@pytest.mark.parametrize("name", RUNTIME)
def test_annotations_of_runtime_are_lazy(name: str) -> None:
    """Without the future import a hint such as ``int | None`` fails at import in Python 3.9."""
    text = MODULES[name].read_text(encoding="utf-8")
    hints = [
        hint
        for node in ast.walk(ast.parse(text))
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if hint is not None
    ]
    unions = [hint for hint in hints if any(isinstance(n, ast.BitOr) for n in ast.walk(hint))]
    assert not unions or "from __future__ import annotations" in text


@pytest.mark.parametrize("name", [name for name in MODULES if name not in SIGNALLERS])
def test_signals_are_sent_in_one_place(name: str) -> None:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("os", "signal", "psutil")
        ):
            assert node.func.attr not in SIGNALS, f"{name}:{node.lineno}: sends a signal"


def test_modules_are_short() -> None:
    sources = [*MODULES.values(), *(ROOT / "labextension" / "src").rglob("*.ts*")]
    sizes = {str(path.relative_to(ROOT)): len(lines_of(path)) for path in sources}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


# Put together from pieces, or this file would find itself.
UNFINISHED = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b")
MACHINE = re.compile(
    r"/(wor" + "k|far" + "m|roo" + "t|tm" + r"p/lab)/|/home/(?!(jovyan|me|user)\b)\w+/"
)
REGISTRY = re.compile(r"registry\.(npm" + "js|yarn" + "pkg)|python" + r"hosted|pypi\.org/simple")


def test_nothing_is_left_for_later() -> None:
    code = [path for path in tracked() if path.name != "yarn.lock"]
    assert found(code, UNFINISHED) == []


def test_no_paths_of_a_machine_and_no_registries() -> None:
    paths = tracked()
    assert found(paths, MACHINE) == []
    assert found(paths, REGISTRY) == []


def test_import_is_light() -> None:
    """Each server imports the package at its start, each kernel client by the provisioner."""
    code = (
        "import sys, typing, importlib.util; before = set(sys.modules); "
        f"import {NAME}; print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert set(run.stdout.split()) <= {"__future__", NAME, f"{NAME}._version"}
