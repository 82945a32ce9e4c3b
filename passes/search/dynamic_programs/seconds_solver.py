"""The front that a model of the errors implies where the cost is the predicted seconds.

Seconds are no sum over choices: what a choice takes depends on the level that the ones before it
leave. So degrees and bootstraps are chosen together (`latency_front`); e^q adds up there, as in
`surrogate.solve`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from atlasc.passes.approximation.description import Approximation
from atlasc.passes.latency import LatencyModel
from atlasc.passes.search.dynamic_programs import latency_front
from atlasc.passes.search.dynamic_programs.min_plus import Path
from atlasc.passes.search.error_model.groups import Choice, Group
from atlasc.passes.search.error_model.local import Candidate
from atlasc.passes.search.error_model.surrogate import ErrorModel, Predicted
from atlasc.passes.search.space import Settings

STEPS = 200
"""Points of a front at most, as many as a front of levels has about."""


class SecondsSolver:
    """Solves for the front of predicted seconds against predicted error.

    Args:
        latency: of the module.
        approximations: of the ops of a group under a choice.
        fixed: approximations of the ops that are in no group.
    """

    def __init__(
        self,
        latency: LatencyModel,
        approximations: Callable[[Group, Choice], Mapping[str, Approximation]],
        fixed: Mapping[str, Approximation],
    ) -> None:
        self._latency, self._approximations, self._fixed = latency, approximations, fixed

    def __call__(
        self, model: ErrorModel, options: Sequence[Sequence[Candidate]], template: Settings
    ) -> list[Predicted]:
        """As `surrogate.solve`."""
        groups = [
            [
                latency_front.Candidate(
                    self._approximations(group, candidate.choice),
                    math.exp(model.exponent * model.log_error(index, candidate.choice)),
                )
                for candidate in candidates
            ]
            for index, (group, candidates) in enumerate(zip(model.groups, options, strict=True))
        ]
        front = []
        for point in evenly(latency_front.latency_front(self._latency, groups, self._fixed)):
            settings = template
            for group, candidates, index in zip(model.groups, options, point.choices, strict=True):
                settings = group.put(settings, candidates[index].choice)
            front.append(Predicted(point.seconds, point.error ** (1 / model.exponent), settings))
        return front


def evenly(front: Sequence[Path]) -> list[Path]:
    """The most accurate point of each of `STEPS` equal spans of seconds. Where many choices trade
    little for little a front is dense, and would be sampled there alone.
    """
    if not front:
        return []
    first, last = front[0].seconds, front[-1].seconds
    step = max(last - first, 1e-9) / (STEPS - 1)
    return list({int((point.seconds - first) / step): point for point in front}.values())
