"""The search strategies by name; all have one interface and return the same kind of front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.front import Front
from atlasc.passes.search.problem import SearchProblem
from atlasc.passes.search.session import ProgressCallback
from atlasc.passes.search.strategies import (
    atlas,
    grid,
    hybrid,
    random_search,
    sequential,
    single_stage,
)

MODEST_EVALUATIONS = 936
"""At most, of the search inside ``compile``, where the user says nothing."""


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

        A strategy whose budget is a number of generations takes ``evaluations`` too: as many as fit
        into them, by its ``within``.

        Raises:
            AtlasError: an unknown option, or a value out of bounds.
        """
        known = [option.name for option in fields(self.options)]
        if "evaluations" in values and "evaluations" not in known:
            rest = {name: value for name, value in values.items() if name != "evaluations"}
            values = {**self.options.within(values["evaluations"]), **rest}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise AtlasError(
                f"the strategy {self.name} has no option {unknown[0]!r}",
                remedy=f"its options: {', '.join(known)}",
            )
        return self.options(**values)

    def modest(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """These options, with a modest number of evaluations where they name none."""
        usual = self.options().evaluations
        if usual is None:
            return dict(values)  # it follows the model's size already
        return {"evaluations": min(usual, MODEST_EVALUATIONS), **values}

    def filled(self, options: Any, problem: SearchProblem) -> Any:
        """Options of which what depends on the problem is filled in, by their `filled`."""
        return options.filled(problem) if hasattr(options, "filled") else options


STRATEGIES: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy(
            "hybrid",
            "measured sensitivities, a dynamic program over cost and error, NSGA-II from its front",
            hybrid.HybridOptions,
            hybrid.search,
        ),
        Strategy(
            "atlas",
            "the paper's: NSGA-II on one setting for all layers, then on a setting for each",
            atlas.AtlasOptions,
            atlas.search,
        ),
        Strategy(
            "nsga2",
            "NSGA-II on a setting for each layer from the start",
            single_stage.SingleStageOptions,
            single_stage.search,
        ),
        Strategy(
            "sequential",
            "layer after layer, greedily, for several error targets",
            sequential.SequentialOptions,
            sequential.search,
        ),
        Strategy(
            "grid",
            "softmax, norms and activation on grids of their own, then combined",
            grid.GridOptions,
            grid.search,
        ),
        Strategy(
            "random",
            "uniform random settings",
            random_search.RandomOptions,
            random_search.search,
        ),
    )
}


DEFAULT = "hybrid"
"""The strategy where the user names none."""


def strategy(name: str) -> Strategy:
    """The strategy of that name; raises AtlasError with the known names otherwise."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise AtlasError(
            f"there is no search strategy {name!r}", remedy=f"use one of {', '.join(STRATEGIES)}"
        ) from None
