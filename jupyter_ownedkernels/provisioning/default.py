"""Making our provisioner the one that kernels get when their kernelspec names none."""

from __future__ import annotations

import os
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory

from ..config import OwnedKernels
from ..launching.spawners import unsupported_reason

PROVISIONER_NAME = "owned-provisioner"
_STOCK_PROVISIONER = "local-provisioner"


def offer(parent: Any) -> bool:
    """Make ours the default provisioner, unless the user named one.

    Kernelspecs with a provisioner of their own keep it, and where kernels cannot be
    watched at all the stock one stays. Answers whether ours is the default now.

    Called by our kernel manager when it is made, and by the load hook for the sake of a
    manager that the user chose.
    """
    factory = KernelProvisionerFactory.instance(parent=parent)
    wanted = OwnedKernels(parent=parent).enabled and unsupported_reason() is None
    if wanted and not _was_chosen(factory, parent):
        factory.default_provisioner_name = PROVISIONER_NAME
    return bool(factory.default_provisioner_name == PROVISIONER_NAME)


def _was_chosen(factory: KernelProvisionerFactory, parent: Any) -> bool:
    # By configuration of either, by the environment, or by assignment. That the trait has
    # a value says nothing: its own default is kept once somebody has asked for it.
    if os.environ.get(factory.default_provisioner_name_env):
        return True
    configs = [factory.config, getattr(parent, "config", {})]
    if any("default_provisioner_name" in c.get(type(factory).__name__, {}) for c in configs):
        return True
    return factory.default_provisioner_name not in (_STOCK_PROVISIONER, PROVISIONER_NAME)
