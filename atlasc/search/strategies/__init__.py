"""The search strategies of the compiler, by name."""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.search.strategies.atlas import Atlas
from atlasc.search.strategies.hybrid import Hybrid
from atlasc.search.strategy import Strategy

STRATEGIES: dict[str, type[Strategy]] = {chosen.name: chosen for chosen in (Hybrid, Atlas)}
DEFAULT = Hybrid.name
"""The strategy where the user names none."""
COMPARED = ("nsga2", "sequential", "grid", "random")
"""Strategies of the paper's ablation, which only the benchmark has."""


def find_strategy(name: str) -> type[Strategy]:
    """The strategy of that name; raises AtlasError with the known names otherwise."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    known = f"use one of {', '.join(STRATEGIES)}"
    if name in COMPARED:
        raise AtlasError(
            f"the strategy {name!r} is not part of the compiler",
            why="it is one to compare with, in the benchmark of the search strategies",
            remedy=f"{known}; in the repository, python -m benchmarks.search --strategies {name}",
        )
    raise AtlasError(f"there is no search strategy {name!r}", remedy=known)
