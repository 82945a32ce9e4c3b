"""Parts that other installed packages bring, by entry points: passes, targets, recipes, algorithms.

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
    """What installed packages declare in a group, by name; nothing of it is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=group))}


def loaded(entry: EntryPoint, fault: Callable[[Any], str]) -> Any:
    """What an entry point stands for.

    Args:
        entry: of ``plugins``.
        fault: why an object is not what the group has; empty where it is.

    Raises:
        AtlasError: it cannot be imported, or is something else.
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
