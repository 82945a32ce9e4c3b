"""Points of a front on inputs that no search has seen: do these stay inside all ranges?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import with_approximations
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.calibration.measure import chunk_size, input_count, kept_tokens
from atlasc.passes.framework.pass_base import Report
from atlasc.passes.search.front import Front
from atlasc.passes.search.points import Point, Settings
from atlasc.passes.search.search_problem import output_error
from atlasc.passes.simulation.poly_values import DomainWatch, interpret_poly
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

    The simulator of the search tells which inputs leave a range, and starts where a setting differs
    from those before. Where a value explodes it stops; then the inputs of that chunk run op by op,
    as `expand` writes it, to see which are lost.

    Args:
        module: an nn module; approximations that it carries are not looked at.
        arrays: inputs by name, [N, ...] each.
        threads: None for the number of processors.
    """

    def __init__(
        self,
        module: Module,
        arrays: Mapping[str, np.ndarray],
        threads: int | None = None,
    ) -> None:
        self.module = module
        self.inputs, size = input_count(module, arrays), chunk_size(module)
        self._chunks = [
            {name: array[start : start + size] for name, array in arrays.items()}
            for start in range(0, self.inputs, size)
        ]
        self._simulator = PolynomialSimulator(
            module, threads=threads, memory=MEMORY // len(self._chunks)
        )
        self._prepared = [self._simulator.prepare(chunk, watched=True) for chunk in self._chunks]
        self._reference = _joined([self._simulator.cleartext(part) for part in self._prepared])
        self._weights = {
            name: kept_tokens(module, arrays, array) for name, array in self._reference.items()
        }

    def prefix(self, approximations: Mapping[str, Approximation]) -> list[int]:
        """A sort key that puts settings with equal first layers next to each other."""
        return self._simulator.prefix(approximations)

    def measure(self, approximations: Mapping[str, Approximation]) -> Validation:
        """What the inputs do under approximations, given by result name."""
        outputs, out_of_range, exploded = [], 0, 0
        poly: Module | None = None
        for chunk, part in zip(self._chunks, self._prepared, strict=True):
            simulated = self._simulator.run(part, approximations)
            results, left, lost = simulated.outputs, simulated.left, np.zeros(0, dtype=bool)
            if left is None or not all(np.isfinite(array).all() for array in results.values()):
                if poly is None:
                    chosen = with_approximations(self.module, dict(approximations))
                    poly = Expand().run(chosen, Report())
                results, left, lost = self._op_by_op(poly, chunk)
            outputs.append(results)
            out_of_range += int(left.sum())
            exploded += int(lost.sum())
        error = np.inf
        if not exploded:
            error = output_error(_joined(outputs), self._reference, self._weights)
        return Validation(error, out_of_range, exploded)

    def _op_by_op(
        self, poly: Module, chunk: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Outputs, which inputs leave a range or explode, and which explode."""
        public = {op.value: op.attributes["name"] for op in self.module.inputs}
        values = self._simulator.server_inputs(chunk)
        inputs = {public.get(value, value.name): array for value, array in values.items()}
        names = [str(row) for row in range(len(next(iter(inputs.values()))))]
        watch = DomainWatch(poly, names)
        with np.errstate(all="ignore"):
            results = interpret_poly(poly, inputs, self._simulator.dtype, observe=watch)
        exploded = np.array(watch.exploded)
        for array in results.values():
            exploded |= ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        left = {excess.input for _, excess in watch.found}
        return results, exploded | [name in left for name in names], exploded


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


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
