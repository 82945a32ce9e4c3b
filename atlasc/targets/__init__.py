"""The targets that a lowered program runs on, by name; each is imported only when asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from atlasc.targets.base import Target

TARGETS = ("cpu", "cuda", "sim", "desilo", "phantom", "count")
"""Modules beside this file; ``TARGET`` of each is the object."""
DEFAULT = "cpu"


def find_target(name: str) -> Target:
    """The target of that name; AtlasError with the known names if there is none."""
    if name not in TARGETS:
        raise AtlasError(
            f"there is no target {name!r}", remedy=f"choose one of: {', '.join(TARGETS)}"
        )
    return cast("Target", importlib.import_module(f"{__name__}.{name}").TARGET)
