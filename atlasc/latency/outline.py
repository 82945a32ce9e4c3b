"""The outline of an approximation: its steps and Chebyshev sums, as far as the lowering sees them.

Approximations with the same steps give the same program, except for the degrees of their sums. So
one lowering serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from atlasc.ir.module import Op
from atlasc.polynomials.arithmetic import StepRecorder
from atlasc.polynomials.description import Approximation, applied
from atlasc.program.costs import Polynomial


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
