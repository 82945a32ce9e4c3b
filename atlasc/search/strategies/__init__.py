"""The search strategies of the compiler, by name."""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.search.strategies.atlas import Atlas
from atlasc.search.strategies.hybrid import Hybrid
from atlasc.search.strategy import Strategy

STRATEGIES: dict[str, type[Strategy]] = {chosen.name: chosen for chosen in (Hybrid, Atlas)}
DEFAULT = Hybrid.name
"""The strategy that is used if the user names none."""
COMPARED = ("nsga2", "sequential", "grid", "random")
"""Strategies of the paper's ablation, which exist only in the benchmark."""


def find_strategy(name: str) -> type[Strategy]:
    """The strategy of a name; raises AtlasError with the known names if there is none."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    known = f"use one of {', '.join(STRATEGIES)}"
    if name in COMPARED:
        raise AtlasError(
            f"the strategy {name!r} is not part of the compiler",
            why="it only serves for comparison, in the benchmark of search strategies",
            remedy=f"{known}; in the repository, python -m benchmarks.search --strategies {name}",
        )
    raise AtlasError(f"there is no search strategy {name!r}", remedy=known)
