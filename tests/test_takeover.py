"""Who becomes the server's kernel manager, through real applications.

Each case starts an application in a process of its own, as far as its kernel manager,
with nothing but the configuration of the case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OURS = "jupyter_ownedkernels.manager.OwnedKernelManager"
USERS = "users_choice.UsersManager"
GATEWAY = "jupyter_server.gateway.managers.GatewayMappingKernelManager"
GATEWAY_URL = "http://127.0.0.1:9"

USERS_MODULE = """
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

class UsersManager(AsyncMappingKernelManager):
    pass

class Other(AsyncMappingKernelManager):
    pass
"""

# Prints what the application has come to, on the last line.
START = """
import json, sys
which, argv = sys.argv[1], sys.argv[2:]
if which == "lab":
    from jupyterlab.labapp import LabApp as App
elif which == "hub":
    from jupyterhub.singleuser.extension import JupyterHubSingleUser as App
    async def nothing(self): pass
    App.check_hub_version = App.keep_activity_updated = nothing
else:
    from jupyter_server.serverapp import ServerApp
if which == "server":
    app = ServerApp.instance()
    app.initialize(argv)
else:
    app = App.initialize_server(argv)
manager = app.kernel_manager
from jupyter_client.provisioning import KernelProvisionerFactory
mode = app.web_app.settings["jupyter_ownedkernels"]["mode"]
kernel_class = getattr(manager, "kernel_manager_class", "")
print(json.dumps({
    "manager": type(manager).__module__ + "." + type(manager).__name__,
    "provisioner": KernelProvisionerFactory.instance().default_provisioner_name,
    "mode": mode.name,
    "reason": mode.reason,
    "imported": "jupyter_ownedkernels.manager" in sys.modules,
    "kernel_class": kernel_class if isinstance(kernel_class, str) else kernel_class.__name__,
}))
"""


class Home:
    """Configuration folders of one imagined user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config"
        self.config.mkdir()
        (folder / "users_choice.py").write_text(USERS_MODULE)
        (folder / "work").mkdir()

    def start(self, which: str, *argv: str, **env: str) -> dict[str, Any]:
        """Start the application; what it has come to."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "JPY"))
        }
        environment.update(
            JUPYTER_CONFIG_DIR=str(self.config),
            JUPYTER_DATA_DIR=str(self.folder / "data"),
            JUPYTER_RUNTIME_DIR=str(self.folder / "runtime"),
            HOME=str(self.folder),
            PYTHONPATH=os.pathsep.join(
                filter(None, [str(self.folder), os.environ.get("PYTHONPATH")])
            ),
            **env,
        )
        fixed = [
            "--ServerApp.allow_root=True",
            "--ServerApp.open_browser=False",
            "--ServerApp.port=0",
            f"--ServerApp.root_dir={self.folder / 'work'}",
        ]
        done = subprocess.run(
            [sys.executable, "-c", START, which, *fixed, *argv],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("which", ["server", "lab"])
def test_nothing_configured_is_ours(home: Home, which: str) -> None:
    found = home.start(which)
    assert found["manager"] == OURS
    assert found["mode"] == "full"
    assert found["provisioner"] == "owned-provisioner"
    assert found["kernel_class"].endswith("OwnedServerKernelManager")


@pytest.mark.parametrize("which", ["server", "lab"])
def test_class_on_the_command_line_is_the_users(home: Home, which: str) -> None:
    found = home.start(which, f"--ServerApp.kernel_manager_class={USERS}")
    assert found["manager"] == USERS
    assert found["mode"] == "provisioner-only"
    assert "UsersManager" in found["reason"]
    assert not found["imported"]
    assert found["provisioner"] == "owned-provisioner"


def test_class_in_a_python_file_is_the_users(home: Home) -> None:
    line = f"c.ServerApp.kernel_manager_class = {USERS!r}\n"
    (home.config / "jupyter_server_config.py").write_text(line)
    assert home.start("lab")["manager"] == USERS


def test_class_in_a_json_file_is_the_users(home: Home) -> None:
    text = json.dumps({"ServerApp": {"kernel_manager_class": USERS}})
    (home.config / "jupyter_server_config.json").write_text(text)
    assert home.start("server")["manager"] == USERS


def test_class_in_the_labs_own_file_is_the_users(home: Home) -> None:
    # Read only after the link hooks have run: a value set there would be stronger.
    line = f"c.ServerApp.kernel_manager_class = {USERS!r}\n"
    (home.config / "jupyter_lab_config.py").write_text(line)
    assert home.start("lab")["manager"] == USERS


@pytest.mark.parametrize("which", ["server", "lab"])
def test_gateway_by_environment(home: Home, which: str) -> None:
    found = home.start(which, JUPYTER_GATEWAY_URL=GATEWAY_URL)
    assert found["manager"] == GATEWAY
    assert found["mode"] == "inactive"
    assert "Gateway" in found["reason"]
    assert found["provisioner"] == "local-provisioner"


def test_gateway_on_the_command_line(home: Home) -> None:
    assert home.start("lab", f"--gateway-url={GATEWAY_URL}")["manager"] == GATEWAY


def test_gateway_in_the_labs_own_file(home: Home) -> None:
    line = f"c.GatewayClient.url = {GATEWAY_URL!r}\n"
    (home.config / "jupyter_lab_config.py").write_text(line)
    found = home.start("lab")
    assert (found["manager"], found["mode"]) == (GATEWAY, "inactive")


def test_switched_off(home: Home) -> None:
    found = home.start("lab", "--OwnedKernels.enabled=False")
    assert found["manager"].endswith(".AsyncMappingKernelManager")
    assert found["mode"] == "inactive"
    assert "OwnedKernels.enabled" in found["reason"]
    assert found["provisioner"] == "local-provisioner"


def test_class_of_each_kernel_stays_the_users(home: Home) -> None:
    chosen = "jupyter_server.services.kernels.kernelmanager.ServerKernelManager"
    found = home.start("server", f"--AsyncMappingKernelManager.kernel_manager_class={chosen}")
    assert found["manager"] == OURS
    assert found["kernel_class"].endswith("ServerKernelManager")
    assert "Owned" not in found["kernel_class"]


@pytest.mark.parametrize("which", ["server", "lab"])
def test_provisioner_on_the_command_line_is_the_users(home: Home, which: str) -> None:
    option = "--KernelProvisionerFactory.default_provisioner_name=local-provisioner"
    found = home.start(which, option)
    assert found["provisioner"] == "local-provisioner"
    assert found["mode"] == "inactive"
    assert "local-provisioner" in found["reason"]


def test_provisioner_in_the_labs_own_file_is_the_users(home: Home) -> None:
    line = "c.KernelProvisionerFactory.default_provisioner_name = 'local-provisioner'\n"
    (home.config / "jupyter_lab_config.py").write_text(line)
    assert home.start("lab")["provisioner"] == "local-provisioner"


def test_provisioner_by_environment_is_the_users(home: Home) -> None:
    found = home.start("server", JUPYTER_DEFAULT_PROVISIONER_NAME="local-provisioner")
    assert (found["provisioner"], found["mode"]) == ("local-provisioner", "inactive")


def test_ours_by_name_against_another_choice(home: Home) -> None:
    line = f"c.ServerApp.kernel_manager_class = {USERS!r}\n"
    (home.config / "jupyter_server_config.py").write_text(line)
    found = home.start("lab", f"--ServerApp.kernel_manager_class={OURS}")
    assert (found["manager"], found["mode"]) == (OURS, "full")


def test_a_class_that_is_made_from_ours(home: Home) -> None:
    lines = [
        "from jupyter_ownedkernels.manager import OwnedKernelManager",
        "class More(OwnedKernelManager):",
        "    pass",
    ]
    (home.folder / "made_from_ours.py").write_text("\n".join(lines))
    found = home.start("server", "--ServerApp.kernel_manager_class=made_from_ours.More")
    assert (found["manager"], found["mode"]) == ("made_from_ours.More", "full")


def test_another_extension_with_the_same_idea_composes(home: Home) -> None:
    # It wraps the default after us and prefers its own class: then its wish stands.
    (home.folder / "z_other.py").write_text(
        """
def _jupyter_server_extension_points():
    return [{"module": "z_other"}]

def _link_jupyter_server_extension(app):
    original = app._get_trait_default_generator("kernel_manager_class")
    def choose(app):
        assert original(app).__name__ == "OwnedKernelManager"
        from users_choice import Other
        return Other
    app._kernel_manager_class_default = choose

def _load_jupyter_server_extension(app):
    pass
"""
    )
    enabled = home.config / "jupyter_server_config.d"
    enabled.mkdir()
    extensions = {"ServerApp": {"jpserver_extensions": {"z_other": True}}}
    (enabled / "z_other.json").write_text(json.dumps(extensions))
    found = home.start("server")
    assert (found["manager"], found["mode"]) == ("users_choice.Other", "provisioner-only")


HUB = {
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/user/u/",
    "JUPYTERHUB_SERVICE_PREFIX": "/user/u/",
    "JUPYTERHUB_API_TOKEN": "not-a-real-token",
    "JUPYTERHUB_API_URL": "http://127.0.0.1:9/hub/api",
    "JUPYTERHUB_BASE_URL": "/",
    "JUPYTERHUB_USER": "u",
    "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-u",
}


def test_jupyterhub_single_user_is_ours(home: Home) -> None:
    pytest.importorskip("jupyterhub")
    found = home.start("hub", **HUB)
    assert (found["manager"], found["mode"]) == (OURS, "full")


def test_jupyterhub_single_user_with_a_class_on_the_command_line(home: Home) -> None:
    pytest.importorskip("jupyterhub")
    option = f"--ServerApp.kernel_manager_class={USERS}"
    assert home.start("hub", option, **HUB)["manager"] == USERS
