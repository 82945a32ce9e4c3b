"""The search strategies by name; all have one interface and return the same kind of front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.passes.search import atlas
from atlasc.passes.search.front import Front
from atlasc.passes.search.problem import SearchProblem
from atlasc.passes.search.session import ProgressCallback


@dataclass(frozen=True)
class Strategy:
    """A way to search.

    Attributes:
        name: what the command line calls it.
        summary: one line.
        options: dataclass of its options; all have defaults.
        search: (problem, options, progress) to the front.
    """

    name: str
    summary: str
    options: type[Any]
    search: Callable[[SearchProblem, Any, ProgressCallback | None], Front]

    def make_options(self, values: Mapping[str, Any]) -> Any:
        """Options from names and values.

        Raises:
            AtlasError: an unknown option, or a value out of bounds.
        """
        known = [option.name for option in fields(self.options)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise AtlasError(
                f"the strategy {self.name} has no option {unknown[0]!r}",
                remedy=f"its options: {', '.join(known)}",
            )
        return self.options(**values)


STRATEGIES: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy(
            "atlas",
            "the paper's: NSGA-II on one setting for all layers, then on a setting for each",
            atlas.AtlasOptions,
            atlas.search,
        ),
    )
}


def strategy(name: str) -> Strategy:
    """The strategy of that name; raises AtlasError with the known names otherwise."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise AtlasError(
            f"there is no search strategy {name!r}", remedy=f"use one of {', '.join(STRATEGIES)}"
        ) from None
