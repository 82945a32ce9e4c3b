"""The targets that lowered programs run on, by name; a target is imported when it is asked for.

Another package registers a target by an entry point of the group ``atlasc.targets``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from atlasc.ir.errors import AtlasError
from atlasc.ir.plugins import loaded, misnamed, plugins, require_own

if TYPE_CHECKING:
    from atlasc.targets.base import Target

OWN = ("cpu", "cuda", "sim", "phantom", "count")
"""Modules beside this file; the attribute ``TARGET`` of each is its target."""
DEFAULT = "cpu"
GROUP = "atlasc.targets"


def target_names() -> tuple[str, ...]:
    """The names of all targets, those of installed packages included."""
    return (*OWN, *(name for name in plugins(GROUP) if name not in OWN))


def find_target(name: str) -> Target:
    """The target of a name.

    Raises:
        AtlasError: there is no such target; the target of an installed package cannot be used, or
            has the name of one of ours.
    """
    if name in OWN:
        require_own(GROUP, name)
        return cast("Target", importlib.import_module(f"{__name__}.{name}").TARGET)
    if name not in plugins(GROUP):
        raise AtlasError(
            f"there is no target {name!r}",
            remedy=f"choose one of: {', '.join(target_names())}",
        )
    return cast("Target", loaded(plugins(GROUP)[name], lambda one: _fault(one, name)))


def _fault(found: object, name: str) -> str:
    """Why the object of a plug-in is no target of a name; empty if it is. A bundle names its target
    by the target's own name, and is opened by the name of the entry point.
    """
    from atlasc.targets.base import Target

    if not isinstance(found, Target):
        return "its object is no atlasc.targets.base.Target"
    if found.name != name:
        return f"its entry point is named {name!r}, and the target {found.name!r}"
    return misnamed(name)
