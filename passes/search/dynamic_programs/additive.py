"""The front where the cost is depth or levels.

Costs and the powers of errors are sums over choices, so a dynamic program over the cost gives the
least error for every cost at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.passes.search.error_model.local import Candidate
from atlasc.passes.search.error_model.surrogate import ErrorModel
from atlasc.passes.search.space import Settings


@dataclass(frozen=True)
class Predicted:
    """A setting of the predicted front; its cost is depth, levels or seconds."""

    cost: float
    error: float
    settings: Settings


Solver = Callable[[ErrorModel, Sequence[Sequence[Candidate]], Settings], list[Predicted]]
"""A model, the candidates of each group and a setting of the right shape to a predicted front."""


def solve(
    model: ErrorModel, options: Sequence[Sequence[Candidate]], template: Settings
) -> list[Predicted]:
    """The predicted front: for every cost the setting of least error, where it is an improvement.

    The program goes over the groups: F_g[c] = min over candidates of F_(g-1)[c - cost] + e^q. Its
    time is the number of candidates times the greatest cost.

    Args:
        model: of the errors.
        options: for each group its candidates.
        template: a setting that has the right shape.
    """
    most = sum(max(c.cost for c in candidates) for candidates in options)
    best = np.full(most + 1, np.inf)
    best[0] = 0.0
    chosen: list[np.ndarray] = []
    for index, candidates in enumerate(options):
        after, arg = np.full(most + 1, np.inf), np.full(most + 1, -1)
        for position, candidate in enumerate(candidates):
            value = np.exp(model.exponent * model.log_error(index, candidate.choice))
            shifted = np.full(most + 1, np.inf)
            shifted[candidate.cost :] = best[: most + 1 - candidate.cost] + value
            better = shifted < after
            after[better], arg[better] = shifted[better], position
        best = after
        chosen.append(arg)

    def track_back(cost: int) -> Settings:
        settings = template
        for group, candidates, arg in zip(model.groups[::-1], options[::-1], chosen[::-1]):
            candidate = candidates[arg[cost]]
            settings = group.put(settings, candidate.choice)
            cost -= candidate.cost
        return settings

    front: list[Predicted] = []
    least = np.inf
    for cost in map(int, np.flatnonzero(np.isfinite(best))):
        if best[cost] < least:
            least = float(best[cost])
            front.append(Predicted(cost, least ** (1 / model.exponent), track_back(cost)))
    return front
