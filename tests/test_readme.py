"""What the README says of options is what the options are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jupyter_ownedkernels.config import OwnedKernels

README = Path(__file__).resolve().parents[1] / "README.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \|", re.MULTILINE)
# Not the value itself, but what it means.
MEANT = {"journal_dir": "`ownedkernels` in the runtime folder", "warm_preload": "none"}


def shown(name: str, value: Any) -> str:
    if name in MEANT:
        return MEANT[name]
    if value is None:
        return "off"
    if isinstance(value, float):
        return f"{value / 3600:g} h" if value >= 3600 else f"{value:g} s"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value}`" if isinstance(value, bool) else str(value)


def test_every_option_with_its_default() -> None:
    text = README.read_text(encoding="utf-8")
    section = text.partition("## Configuration")[2].partition("\n## ")[0]
    traits = OwnedKernels.class_own_traits(config=True)
    defaults = {name: shown(name, trait.default_value) for name, trait in traits.items()}
    assert dict(ROW.findall(section)) == defaults
