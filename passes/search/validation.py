"""Points of a front on inputs that no search has seen: do these stay inside all ranges?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atlasc.ir.module import Module
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.calibration.measure import input_count
from atlasc.passes.search.front import Front
from atlasc.passes.search.points import Point, Settings
from atlasc.passes.search.search_problem import error_weights, output_error
from atlasc.passes.simulation.row_programs import LOST
from atlasc.passes.simulation.simulate import PolynomialSimulator

MEMORY = 512 << 20
"""Bytes for values that settings with equal first layers share: enough for all values of MiniLM on
80 texts of 64 tokens."""

OfSettings = Callable[[Settings], Mapping[str, Approximation]]
"""From settings to approximations by result name."""


@dataclass(frozen=True)
class Validation:
    """What inputs do under one setting.

    Attributes:
        error: mean absolute error of the outputs; infinite where an input explodes.
        out_of_range: inputs that leave the range of a polynomial (see `excess`), or explode.
        exploded: inputs of which a value grows beyond bounds or is not finite.
    """

    error: float
    out_of_range: int
    exploded: int


class Validator:
    """Runs settings of one module on its inputs.

    It is the simulator of the search, which tells which inputs leave a range and which explode, and
    starts where a setting differs from those before.

    Args:
        module: an nn module; approximations that it carries are not looked at.
        arrays: inputs by name, [N, ...] each.
        threads: None for the number of processors.
        shares: weight of each input in the error; None for equal ones.
    """

    def __init__(
        self,
        module: Module,
        arrays: Mapping[str, np.ndarray],
        threads: int | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.inputs = input_count(module, arrays)
        self._simulator = PolynomialSimulator(module, threads=threads, memory=MEMORY)
        self._prepared = self._simulator.prepare(arrays, watched=True)
        self._reference = self._simulator.cleartext(self._prepared)
        self._weights = {
            name: error_weights(module, arrays, array, shares)
            for name, array in self._reference.items()
        }

    def prefix(self, approximations: Mapping[str, Approximation]) -> list[int]:
        """A sort key that puts settings with equal first layers next to each other."""
        return self._simulator.prefix(approximations)

    def measure(self, approximations: Mapping[str, Approximation]) -> Validation:
        """What the inputs do under approximations, given by result name."""
        simulated = self._simulator.run(self._prepared, approximations)
        assert simulated.faults is not None
        lost, error = simulated.faults[LOST], np.inf
        if not lost.any():
            error = output_error(simulated.outputs, self._reference, self._weights)
        return Validation(error, int(simulated.faults.any(axis=0).sum()), int(lost.sum()))


def validated(
    front: Front,
    validator: Validator,
    approximations: OfSettings,
    progress: Callable[[int, int], None] | None = None,
) -> Front:
    """The front with `held_back_error` and `out_of_range` at each of its points, and the expert's.

    Points with equal first layers are measured one after the other. An interrupt from the keyboard
    leaves the rest of the points as they are.

    Args:
        validator: on inputs that the search did not see.
        progress: called with (points done, all points).
    """
    points, expert, complete = list(front.points), front.expert, front.complete
    try:
        if expert is not None:
            expert = _measured(expert, validator, approximations)
        order = sorted(
            range(len(points)), key=lambda i: validator.prefix(approximations(points[i].settings))
        )
        for done, index in enumerate(order, 1):
            points[index] = _measured(points[index], validator, approximations)
            if progress is not None:
                progress(done, len(points))
    except KeyboardInterrupt:
        complete = False
    return replace(
        front, points=tuple(points), expert=expert, complete=complete, held_back=validator.inputs
    )


def validated_pick(
    front: Front,
    validator: Validator,
    approximations: OfSettings,
    pick: Callable[[Front], Point],
) -> tuple[Front, Point]:
    """The point that `pick` takes of a front, and the front with what was measured for it.

    A point is validated when it would be taken. Where inputs leave a range under it, another one
    may be taken, which is validated in turn.

    `pick` must pass points that were not validated.
    """
    front = replace(front, held_back=validator.inputs)
    while (point := pick(front)).out_of_range is None:
        found = _measured(point, validator, approximations)
        points = tuple(found if other == point else other for other in front.points)
        front = replace(front, points=points)
    return front, point


def _measured(point: Point, validator: Validator, approximations: OfSettings) -> Point:
    found = validator.measure(approximations(point.settings))
    return replace(point, held_back_error=found.error, out_of_range=found.out_of_range)
