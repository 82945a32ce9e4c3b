"""Plug-ins: passes, targets, recipes and algorithms of other installed packages, by entry points.

A package declares them in its ``pyproject.toml``::

    [project.entry-points."atlasc.targets"]
    mine = "my_package.target:TARGET"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from atlasc.ir.errors import AtlasError


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Name -> entry point that installed packages declare in a group; nothing is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=group))}


def loaded(entry: EntryPoint, fault: Callable[[Any], str]) -> Any:
    """The object of an entry point.

    Args:
        entry: an entry point from ``plugins``.
        fault: says why an object does not fit the group; empty if it fits.

    Raises:
        AtlasError: the object cannot be imported, or does not fit.
    """
    try:
        found = entry.load()
        why = fault(found)
    except Exception as error:  # whatever the package raises
        why = f"{type(error).__name__}: {error}"
    if why:
        raise AtlasError(
            f"{entry.name} of an installed package cannot be used",
            where=f"{entry.group}: {entry.value}",
            why=why,
            remedy="repair the package, or uninstall it",
        )
    return found
