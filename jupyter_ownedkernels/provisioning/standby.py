"""Giving a new kernel the ports of a booted one, before its connection file is written."""

from __future__ import annotations

import os
from string import Template
from typing import TYPE_CHECKING, Any

from ..runtime import PORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_client.kernelspec import KernelSpec

    from ..ownership import Ownership


def environment_of(spec: KernelSpec, base: Mapping[str, str]) -> dict[str, str]:
    """The environment that a provisioner gives to kernels of this kernelspec."""
    environment = dict(base)
    filled = {k: Template(v).safe_substitute(environment) for k, v in spec.env.items()}
    environment.update(filled)
    if spec.language and spec.language.lower().startswith("python"):
        environment.pop("PYTHONEXECUTABLE", None)
    return environment


def reserve(ownership: Ownership, manager: Any, kwargs: Mapping[str, Any]) -> bool:
    """Reserve a standby kernel for this launch, if one fits, and take over its ports.

    Called before ``LocalProvisioner.pre_launch`` looks for free ports and writes them down.
    A kernel that had ports before keeps them: its clients know no others.
    """
    encryption = kwargs.get(
        "transport_encryption", getattr(manager, "transport_encryption", "disabled")
    )
    plain = (
        manager.transport == "tcp"
        and manager.ip in ("", "127.0.0.1")
        and manager.cache_ports
        and encryption in (None, False, "disabled")
        and not any(getattr(manager, name) for name in PORT_NAMES)
    )
    if not plain or kwargs.get("independent"):
        return False
    ownership.warm.expect()
    argv = manager.format_kernel_cmd(extra_arguments=list(kwargs.get("extra_arguments") or []))
    base = kwargs["env"] if kwargs.get("env") is not None else os.environ
    environment = environment_of(manager.kernel_spec, base)
    connection_file = os.path.realpath(manager.connection_file)
    argv = [os.path.expanduser(part) for part in argv]
    ports = ownership.warm.reserve(argv, environment, connection_file)
    if ports is None:
        return False
    for name, port in ports.items():
        setattr(manager, name, port)
    return True
