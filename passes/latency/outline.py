"""What an approximation looks like to the lowering: its steps, and its Chebyshev sums.

Approximations with the same steps make the same program up to the degrees of their sums, so one
lowering serves them all. An algorithm is written against an abstract arithmetic; here it is
interpreted over numbers of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.module import Op
from atlasc.passes.approximation.arithmetic import Constant, Interval
from atlasc.passes.approximation.description import Activation, Approximation, Norm, Softmax
from atlasc.passes.approximation.expand import activation_function
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.approximation.fits.validity import Meaning
from atlasc.passes.costs.op_costs import Profile
from atlasc.passes.execution.counting_engine import Counted, CountingEngine
from atlasc.passes.execution.paterson_stockmeyer import evaluate_plan, plan_chebyshev

Step = tuple[str | int, ...]
"""Name and operands: numbers of earlier steps."""


@dataclass(frozen=True)
class Polynomial:
    """A Chebyshev sum, as far as its cost goes.

    Attributes:
        pattern: for each coefficient 1 where it is not zero.
        channels: whether coefficients are vectors, not numbers.
    """

    pattern: bytes
    channels: bool = False

    @staticmethod
    def of(coefficients: NDArray[np.float64]) -> Polynomial:
        """Of coefficients [degree + 1], or [C, degree + 1] where channels differ."""
        present = np.atleast_2d(np.asarray(coefficients) != 0.0).any(axis=0)
        return Polynomial(present.tobytes(), np.ndim(coefficients) > 1)

    @property
    def depth(self) -> int:
        """Levels that it consumes."""
        return levels_of_degree(len(self.pattern) - 1)

    @property
    def profile(self) -> Profile:
        """Primitives by levels below the entry, on one ciphertext."""
        return _profile(self)


@lru_cache(maxsize=4096)
def _profile(polynomial: Polynomial) -> Profile:
    # No two coefficients are equal, as in real ones: differences vanish nowhere.
    kept = np.frombuffer(polynomial.pattern, dtype=np.bool_)
    coefficients = kept / np.arange(1, len(kept) + 1)
    plan = plan_chebyshev(coefficients[None] if polynomial.channels else coefficients)
    engine = CountingEngine(2, plan.levels)
    evaluate_plan(engine, Counted(plan.levels), plan)
    counted = engine.counts[engine.scope].primitives
    return frozenset(
        ((primitive, plan.levels - level), calls) for (primitive, level), calls in counted.items()
    )


@dataclass(frozen=True)
class Outline:
    """Steps and polynomials of an approximation.

    Attributes:
        steps: name and operands (numbers of earlier steps) of every step.
        polynomials: of the Chebyshev steps, in order.
    """

    steps: tuple[Step, ...]
    polynomials: tuple[Polynomial, ...]

    @property
    def degrees(self) -> int:
        """Sum of the degrees of the polynomials."""
        return sum(len(polynomial.pattern) - 1 for polynomial in self.polynomials)


def outline(op: Op, approximation: Approximation) -> Outline:
    """The outline of an approximation of a nonlinear op."""
    record = _Record()
    if isinstance(approximation, Softmax):
        approximation.apply(record, 0)
    elif isinstance(approximation, Norm):
        features = op.operands[0].tensor.shape[-1]
        approximation.apply(record, 0, "nn.rms_norm", features, op.attributes["epsilon"])
    else:
        assert isinstance(approximation, Activation)
        approximation.apply(record, 0, activation_function(op))
    return Outline(tuple(record.steps), tuple(record.polynomials))


class _Record:
    """The arithmetic; a value is the number of the step that makes it, 0 the argument."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.polynomials: list[Polynomial] = []

    def _step(self, name: str, *operands: int) -> int:
        self.steps.append((name, *operands))
        return len(self.steps)

    def add(self, a: int, b: int) -> int:
        """A step, as all that follow."""
        return self._step("add", a, b)

    def sub(self, a: int, b: int) -> int:
        """A difference."""
        return self._step("sub", a, b)

    def mul(self, a: int, b: int) -> int:
        """A product."""
        return self._step("mul", a, b)

    def square(self, a: int) -> int:
        """A square."""
        return self._step("square", a)

    def row_sum(self, a: int) -> int:
        """A sum over the last axis."""
        return self._step("row_sum", a)

    def add_const(self, a: int, c: Constant) -> int:
        """A constant, whose value does not matter."""
        return self._step("add_const", a)

    def scale(self, a: int, c: Constant) -> int:
        """A factor, whose value does not matter: folding removes it or leaves a product."""
        return self._step("scale", a)

    def masked(self, a: int, value: float) -> int:
        """A masking."""
        return self._step("masked", a)

    def chebyshev(
        self,
        a: int,
        coefficients: NDArray[np.float64],
        domain: Interval,
        meaning: Meaning | None = None,
    ) -> int:
        """A step whose polynomial is kept apart."""
        self.polynomials.append(Polynomial.of(coefficients))
        return self._step("chebyshev", a)
