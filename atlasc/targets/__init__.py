"""The targets that a lowered program runs on, by name; each is imported only when asked for.

Another package registers a target by an entry point of the group ``atlasc.targets``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from atlasc.ir.errors import AtlasError
from atlasc.ir.plugins import loaded, plugins

if TYPE_CHECKING:
    from atlasc.targets.base import Target

OWN = ("cpu", "cuda", "sim", "phantom", "count")
"""Modules beside this file; ``TARGET`` of each is the object."""
DEFAULT = "cpu"
GROUP = "atlasc.targets"


def target_names() -> tuple[str, ...]:
    """The targets that there are here."""
    return (*OWN, *(name for name in plugins(GROUP) if name not in OWN))


def find_target(name: str) -> Target:
    """The target of that name.

    Raises:
        AtlasError: there is none, with the names of all; an installed package's cannot be used.
    """
    if name in OWN:
        return cast("Target", importlib.import_module(f"{__name__}.{name}").TARGET)
    if name not in plugins(GROUP):
        raise AtlasError(
            f"there is no target {name!r}",
            remedy=f"choose one of: {', '.join(target_names())}",
        )
    from atlasc.targets.base import Target

    found = loaded(
        plugins(GROUP)[name],
        lambda one: "" if isinstance(one, Target) else "it is no atlasc.targets.base.Target",
    )
    return cast("Target", found)
