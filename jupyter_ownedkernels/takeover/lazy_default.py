"""Wrapping the default of a server's trait, so that every explicit value is stronger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def wrap(serverapp: ServerApp, trait: str, choose: Callable[[ServerApp, Any], Any]) -> None:
    """``choose(app, default)`` gives the default instead, once somebody asks for it.

    Called by the server extension's link hook, when not all configuration is read.
    traitlets looks for a default's maker by the name ``_<trait>_default`` on the instance
    first; where a later version does not, the trait is set, if nobody has set it.
    """
    find_maker = getattr(serverapp, "_get_trait_default_generator", None)
    if find_maker is not None:
        original = find_maker(trait)
        maker = f"_{trait}_default"
        setattr(serverapp, maker, lambda app: choose(app, original(app)))
        if find_maker(trait) is not original:
            return
        delattr(serverapp, maker)
    if not serverapp.trait_has_value(trait) and trait not in serverapp.config.ServerApp:
        serverapp.set_trait(trait, choose(serverapp, getattr(serverapp, trait)))
