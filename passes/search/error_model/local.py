"""What a choice does to the output of its own op, on activations of the cleartext model.

Thousands of choices are compared here in the time of a few evaluations of the whole model. The
numbers order the choices of one group; what they mean for the model's output is measured later.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.passes.approximation.description import Approximation
from atlasc.passes.search.error_model.captured import Captured
from atlasc.passes.search.error_model.groups import Choice, Group
from atlasc.passes.simulation.blockwise import Blockwise
from atlasc.passes.simulation.poly_values import EXPLODED

GREATEST_PROBABILITY = 4.0
"""A probability beyond this, on scores within their calibrated ranges, starts an explosion."""


class LocalErrors:
    """Errors of choices at their own ops.

    Args:
        captured: what `capture` gave.
        approximations: the approximation of an op of a group under a choice.
        dtype: as in `capture`.
    """

    def __init__(
        self,
        captured: Mapping[str, Captured],
        approximations: Callable[[Group, Choice], Mapping[str, Approximation]],
        dtype: Any = np.float32,
    ) -> None:
        self._captured, self._approximations = captured, approximations
        self._blockwise = Blockwise(dtype, 1, EXPLODED)
        self._known: dict[tuple[Group, Choice], float] = {}

    def error(self, group: Group, choice: Choice) -> float:
        """Mean absolute error of the group's ops; infinite where a value explodes, for a softmax
        also on the scores that are stretched to the ends of its ranges.
        """
        key = group, choice
        if key not in self._known:
            chosen = self._approximations(group, choice)
            self._known[key] = sum(self._of_op(name, a) for name, a in chosen.items())
        return self._known[key]

    def _of_op(self, name: str, approximation: Approximation) -> float:
        captured = self._captured[name]

        def result(x: np.ndarray) -> np.ndarray | None:
            return self._blockwise.on_rows(
                captured.op, captured.site, x, approximation, captured.keep
            )

        y = result(captured.x)
        if y is None:
            return float("inf")
        if captured.stretched is not None:
            beyond = result(captured.stretched)
            if beyond is None or not np.abs(beyond).max() <= GREATEST_PROBABILITY:
                return float("inf")
        return captured.error(y if captured.values is None else y @ captured.values)


@dataclass(frozen=True, order=True)
class Candidate:
    """A choice of a group.

    Attributes:
        cost: depth or levels.
        local: error at its own op.
        choice: the integers.
        degrees: their sum, where they count beside the levels; otherwise 0.
    """

    cost: int
    local: float
    choice: Choice
    degrees: int = 0

    def covers(self, other: Candidate) -> bool:
        """Whether it is nowhere worse."""
        return (
            self.cost <= other.cost and self.local <= other.local and self.degrees <= other.degrees
        )


def candidates(
    starts: Sequence[Choice],
    lower: Choice,
    upper: Choice,
    canonical: Callable[[Choice], Choice],
    look: Callable[[Choice], Candidate],
) -> list[Candidate]:
    """Choices that are locally non-dominated, from cheap to accurate, by Pareto local search.

    From the starts, every choice on the front so far has its neighbours (one integer changed by
    one) evaluated, until the front has no unvisited neighbours.

    Args:
        starts: choices to start from.
        lower, upper: bounds of the integers.
        canonical: the canonical form of a choice; equal forms are evaluated once.
        look: makes a candidate of a choice.
    """
    known: dict[Choice, Candidate] = {}
    expanded: set[Choice] = set()
    queue: list[Candidate] = []

    def visit(choice: Choice) -> None:
        if choice not in expanded:
            if choice not in known:
                known[choice] = look(choice)
            heapq.heappush(queue, known[choice])

    for start in starts:
        visit(canonical(start))
    while queue:
        current = heapq.heappop(queue)
        if current.choice in expanded or any(
            other.covers(current) and not current.covers(other) for other in known.values()
        ):
            continue
        expanded.add(current.choice)
        for position, value in enumerate(current.choice):
            for moved in (value - 1, value + 1):
                if lower[position] <= moved <= upper[position]:
                    choice = current.choice
                    visit(canonical((*choice[:position], moved, *choice[position + 1 :])))
    finite = [c for c in known.values() if np.isfinite(c.local)]
    front: list[Candidate] = []
    for candidate in sorted(finite, key=lambda c: (c.cost, c.local, c.degrees, c.choice)):
        if not any(other.covers(candidate) for other in front):
            front.append(candidate)
    return front
