"""Distance: how far the ranges of a setting's polynomials reach beyond the data.

A search takes the cheapest setting within an error, and its polynomials end where the calibrated
ranges do. Inputs of another kind go further. Often a setting that costs little more errs much less.
Then wider ranges of the same degrees, which cost nothing but accuracy, still keep the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from atlasc.search.front import Front, Wanted
from atlasc.search.points import Point
from atlasc.search.search_problem import SearchProblem
from atlasc.search.validation import Validation, Validator

PRICE = 0.05
"""Share of the cost that distance may add."""
ROOMS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
"""How much further a range may reach at each end, as shares of its width, one after the other. With
1.2 and 1.6 too, polynomials became so coarse that more inputs of other kinds were unsafe again."""
SPENT = 0.5
"""Share of the allowed error that room may use up, for the same reason."""
MOST = 100
"""Greatest number of evaluations."""
FAMILIES = ("norm", "softmax", "activation")
"""Families of ops in the order in which they get room: a norm is left first, and costs least."""


@dataclass(frozen=True)
class Distant:
    """A setting, and how much further its ranges reach.

    Attributes:
        point: the setting, with its costs and errors on these ranges.
        room: for the name of an op's result, the share of the width by which its ranges reach
            further; ops without room are left out.
        price: share by which it costs more than the setting that was picked.
    """

    point: Point
    room: dict[str, float] = field(default_factory=dict)
    price: float = 0.0


@dataclass
class Distances:
    """Gives the ranges of a setting as much room as the limits and `PRICE` allow.

    Args:
        problem: the search problem.
        front: its front.
        wanted: the limits, with a greatest error.
        report: called with the number of evaluations that are done.
    """

    problem: SearchProblem
    front: Front
    wanted: Wanted
    report: Callable[[int], object] = lambda done: None

    def __post_init__(self) -> None:
        self._objective, self._done = self.problem.objective(), 0

    def best(self, picked: Point, held_back: Mapping[str, np.ndarray]) -> Distant:
        """The setting that reaches furthest, under which held-back inputs fare no worse.

        Args:
            picked: the setting that would be taken otherwise.
            held_back: inputs by name, ``[N, ...]``; N may be 0.
        """
        count = len(next(iter(held_back.values())))
        validator = None
        if count:
            validator = Validator(
                self.problem.module, held_back, self.problem.threads,
                measure=self.front.measure, varying=self.front.variation,
            )  # fmt: skip
        before = self._tried(validator, Distant(picked))
        for found in self._candidates(picked):
            after = self._tried(validator, found)
            if before is None or after is None:
                return found
            if after.unsafe <= before.unsafe and after.agreement >= before.agreement:
                own = replace(
                    found.point, held_back_error=after.error, unsafe=after.unsafe,
                    agreement=after.agreement,
                )  # fmt: skip
                return replace(found, point=own)
        return Distant(picked)

    def _tried(self, validator: Validator | None, found: Distant) -> Validation | None:
        if validator is None:
            return None
        approximations = self._objective.with_room(found.room).approximations(found.point.settings)
        return validator.measure(approximations, found.point.error)

    def _candidates(self, picked: Point) -> Iterator[Distant]:
        """The most accurate setting within the price, with room and without; then the one that was
        picked, with room.
        """
        cost = picked.cost(self.front.cost)
        most = (1 + PRICE) * cost
        near = [
            point
            for point in self.front.points
            if point.cost(self.front.cost) <= most
            and self.wanted.allows(point)
            and point.trusted(self.front.measure)
        ]
        start = min([picked, *near], key=lambda point: (point.error, point.cost(self.front.cost)))
        for point in dict.fromkeys([start, picked]):
            for found in (self.widened(point, most), Distant(point)):
                yield replace(found, price=found.point.cost(self.front.cost) / cost - 1)

    def widened(self, point: Point, most: float) -> Distant:
        """The setting with room: each range as far as `ROOMS` go, until no op can have more.

        All ops are tried together. If that is too much, each half of them is tried alone.

        Args:
            point: the setting.
            most: greatest cost.
        """
        found, names = Distant(point), self._names()
        error = max(SPENT * (self.wanted.error or 0.0), point.error)
        within = replace(self.wanted, error=error)
        for room in ROOMS:
            found = self._raised(found, names, room, within, most)
            names = [name for name in names if found.room.get(name) == room]
        return found

    def _names(self) -> list[str]:
        ops = [place.op for place in self._objective.places]
        known = [op for op in ops if op.definition.family in FAMILIES]
        return [op.value.name for op in sorted(known, key=lambda op: _order(op.definition.family))]

    def _raised(
        self, found: Distant, names: Sequence[str], room: float, within: Wanted, most: float
    ) -> Distant:
        if not names or self._done >= MOST:
            return found
        self._done += 1
        self.report(self._done)
        tried = {**found.room, **dict.fromkeys(names, room)}
        point = self._objective.with_room(tried).evaluate(found.point.settings)
        if within.allows(point) and point.cost(self.front.cost) <= most:
            return Distant(point, tried)
        if len(names) > 1:
            for half in (names[: len(names) // 2], names[len(names) // 2 :]):
                found = self._raised(found, half, room, within, most)
        return found


def _order(family: str | None) -> int:
    return FAMILIES.index(family or "")
