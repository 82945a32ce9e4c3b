"""The outline of an approximation: its steps and Chebyshev sums, as far as the lowering sees them.

Approximations with the same steps give the same program, except for the degrees of their sums. So
one lowering serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.module import Op
from atlasc.polynomials.arithmetic import StepRecorder
from atlasc.polynomials.description import Approximation, applied
from atlasc.polynomials.fits.chebyshev import levels_of_degree
from atlasc.program.costs import Profile
from atlasc.program.counting_engine import Counted, CountingEngine
from atlasc.program.paterson_stockmeyer import evaluate_plan, plan_chebyshev


@dataclass(frozen=True)
class Polynomial:
    """A Chebyshev sum, as far as it affects costs: ``pattern`` has a 1 for each non-zero
    coefficient; ``channels`` says whether coefficients are vectors with one element per channel.
    """

    pattern: bytes
    channels: bool = False

    @staticmethod
    def of(coefficients: NDArray[np.float64]) -> Polynomial:
        """The polynomial of coefficients [degree + 1], or [C, degree + 1] if channels differ."""
        present = np.atleast_2d(np.asarray(coefficients) != 0.0).any(axis=0)
        return Polynomial(present.tobytes(), np.ndim(coefficients) > 1)

    @property
    def depth(self) -> int:
        """Number of levels that the polynomial takes."""
        return levels_of_degree(len(self.pattern) - 1)

    @property
    def profile(self) -> Profile:
        """Primitives by levels below the entry, for one ciphertext."""
        return _profile(self)


@lru_cache(maxsize=4096)
def _profile(polynomial: Polynomial) -> Profile:
    # No two coefficients are equal, as in real sums, so that no difference vanishes.
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
    """Steps of an approximation, by name and operands (numbers of earlier steps), and the
    polynomials of its Chebyshev steps, in order.
    """

    steps: tuple[tuple[str | int, ...], ...]
    polynomials: tuple[Polynomial, ...]

    @property
    def degrees(self) -> int:
        """Sum of the degrees of the polynomials."""
        return sum(len(polynomial.pattern) - 1 for polynomial in self.polynomials)


def outline(op: Op, approximation: Approximation) -> Outline:
    """The outline of an approximation of a nonlinear op."""
    recorder = StepRecorder()
    recorder.run(partial(applied, op, approximation), 0)
    sums = [step.constant for step in recorder.steps if step.name == "chebyshev"]
    return Outline(
        tuple((step.name, *step.operands) for step in recorder.steps),
        tuple(Polynomial.of(total.coefficients) for total in sums),
    )
