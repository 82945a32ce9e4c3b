"""Plug-ins: passes, targets, recipes and algorithms of other installed packages, by entry points.

A package declares them in its ``pyproject.toml``::

    [project.entry-points."atlasc.targets"]
    mine = "my_package.target:TARGET"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from atlasc.ir.errors import AtlasError, printable

NAME = r"[a-z][a-z0-9_]{0,30}"
"""The names of targets and recipes, which stand in bundles and in commands."""


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Name -> entry point that installed packages declare in a group; nothing is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=group))}


def misnamed(name: object, spelling: str = NAME) -> str:
    """Why a plug-in cannot have a name, which must match ``spelling``; empty if it can."""
    if isinstance(name, str) and re.fullmatch(spelling, name):
        return ""
    return f"its name is {printable(str(name)[:80])!r}; names match {spelling}"


def require_own(group: str, name: str) -> None:
    """Refuse a name of atlasc's own that an installed package declares, too: neither part may stand
    silently for the other.

    Raises:
        AtlasError: a package declares it.
    """
    if (entry := plugins(group).get(name)) is not None:
        raise _unusable(entry, f"atlasc itself has one of the name {name}")


def loaded(entry: EntryPoint, fault: Callable[[Any], str]) -> Any:
    """The object of an entry point.

    Args:
        entry: an entry point from ``plugins``.
        fault: says why an object does not fit the group; empty if it fits.

    Raises:
        AtlasError: the object cannot be imported or does not fit, or another package has one of
            its name.
    """
    try:
        found = entry.load()
        values = {one.value for one in entry_points(group=entry.group, name=entry.name)}
        why = fault(found) if len(values) < 2 else f"packages differ: {', '.join(sorted(values))}"
    except Exception as error:  # whatever the package raises
        why = f"{type(error).__name__}: {error}"
    if why:
        raise _unusable(entry, why)
    return found


def _unusable(entry: EntryPoint, why: str) -> AtlasError:
    return AtlasError(
        f"{printable(entry.name)} of an installed package cannot be used",
        where=f"{entry.group}: {entry.value}",
        why=why,
        remedy="repair the package, or uninstall it",
    )
