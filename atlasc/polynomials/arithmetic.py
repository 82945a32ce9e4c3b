"""The arithmetic that approximation algorithms are written against.

An algorithm only adds, multiplies, sums rows and evaluates Chebyshev sums. So one algorithm serves
many interpretations: on NumPy arrays it is the polynomial simulation, on IR values the expansion
into poly ops, on depths the paper's count; recorded, it gives row programs and levels.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from atlasc.ir.ops.masks import log_hidden
from atlasc.polynomials.fits.chebyshev import evaluate, levels_of_degree
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.polynomials.linear_system import LinearSystem

Constant = Any
"""A number, or a plaintext tensor in the form of the interpretation (an array, a symbol)."""


class Arithmetic(ABC):
    """The meaning of the steps of an algorithm."""

    @abstractmethod
    def step(self, name: str, *operands: Any, constant: Any = None) -> Any:
        """The result of one operation; for the names see `Term`."""

    def run(self, algorithm: Callable[..., Term], x: Any, *others: Any) -> Any:
        """The result of an algorithm for an argument x in the form of the interpretation."""
        return algorithm(Term(self, x), *others).value

    def centred(self, a: Any, features: int) -> Any:
        """A tensor of [..., features] minus its mean over the last axis."""
        return self.step(
            "add", a, self.step("scale", self.step("row_sum", a), constant=-1 / features)
        )


@dataclass(frozen=True)
class Term:
    """A tensor in an algorithm, with the operations that CKKS has. Operands broadcast as in NumPy.

    Sums and products are the steps `add` and `mul`. With a `Constant` on the right they are
    `add_const` and `scale`. A difference of two terms is `sub`. The other steps have the names of
    the methods.

    Attributes:
        value: the tensor in the form of the interpretation.
    """

    arithmetic: Arithmetic
    value: Any

    def _step(self, name: str, *others: Term, constant: Any = None) -> Term:
        values = (self.value, *(other.value for other in others))
        return Term(self.arithmetic, self.arithmetic.step(name, *values, constant=constant))

    def __add__(self, other: Term | Constant) -> Term:
        if isinstance(other, Term):
            return self._step("add", other)
        return self._step("add_const", constant=other)

    def __sub__(self, other: Term) -> Term:
        return self._step("sub", other)

    def __mul__(self, other: Term | Constant) -> Term:
        if isinstance(other, Term):
            return self._step("mul", other)
        return self._step("scale", constant=other)

    def square(self) -> Term:
        """The product with itself."""
        return self._step("square")

    def row_sum(self) -> Term:
        """The sum over the last axis, which is kept with length 1."""
        return self._step("row_sum")

    def chebyshev(self, total: ChebyshevSum) -> Term:
        """The value of a Chebyshev sum."""
        return self._step("chebyshev", constant=total)

    def centred(self, features: int) -> Term:
        """[..., features] minus its mean over the last axis."""
        return Term(self.arithmetic, self.arithmetic.centred(self.value, features))

    def filled(self, value: float, log_keys: float) -> Term:
        """[..., queries, keys] with ``value`` for masked keys, and log_keys * log(keys / visible
        keys) added to the others; without a mask nothing changes.
        """
        return self._step("filled", constant=(value, log_keys))

    def masked(self, value: float) -> Term:
        """[..., queries, keys] with 0 for masked keys, which all hold `value` before.

        This is an addition, so it takes no level. Without a mask nothing changes.
        """
        return self._step("masked", constant=value)


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "add_const": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "scale": operator.mul,
    "square": lambda a: a * a,
}
"""Name of a step -> NumPy function; a constant is the second operand."""


@dataclass(frozen=True)
class NumpyArithmetic(Arithmetic):
    """Evaluation in the clear. Rows are summed in float64.

    Attributes:
        dtype: float32 or float64; every result has it.
        threads: threads of the Chebyshev kernel; None for the number of processors.
        keep: softmax only: the keys that each query may see, broadcast to the scores; None for all.
    """

    dtype: Any = np.float64
    threads: int | None = None
    keep: np.ndarray | None = None

    def step(self, name: str, *operands: Any, constant: Any = None) -> Any:
        """The result of an operation."""
        a = np.asarray(operands[0], self.dtype)
        match name:
            case "row_sum":
                return a.sum(axis=-1, keepdims=True, dtype=np.float64).astype(self.dtype)
            case "chebyshev":
                return evaluate(a, constant.coefficients, constant.domain, self.threads)
            case "filled" | "masked" if self.keep is None:
                return a
            case "filled":
                assert self.keep is not None
                value, log_keys = map(np.dtype(self.dtype).type, constant)
                return np.where(self.keep, a + log_keys * log_hidden(a, self.keep), value)
            case "masked":
                assert self.keep is not None
                return np.where(self.keep, a, np.zeros((), self.dtype))
            case "add_const" | "scale":
                operands = *operands, np.asarray(constant, self.dtype)
        return OPERATORS[name](*operands)


class DepthArithmetic(Arithmetic):
    """Multiplicative depth in the paper's convention; a value is represented by its depth.

    Every product takes one level, also a product with a plaintext, and nothing is folded. A row sum
    takes one (its mask). A Chebyshev sum of degree d takes ceil(log2(d + 1)), and one more for the
    map of its domain unless the algorithm itself brings the argument into [-1, 1].
    """

    COSTS: ClassVar[dict[str, int]] = {"mul": 1, "square": 1, "scale": 1, "row_sum": 1}

    def step(self, name: str, *operands: int, constant: Any = None) -> int:
        """The depth after an operation."""
        cost = self.COSTS.get(name, 0)
        if name == "chebyshev":
            cost = levels_of_degree(constant.degree) + (not constant.normalised)
        return max(operands) + cost


class RecordedStep(NamedTuple):
    """One recorded operation.

    Attributes:
        name: see `Term`.
        operands: numbers of earlier steps; 0 is the argument, 1 the first step.
        constant: the plaintext or the Chebyshev sum, if it has one.
    """

    name: str
    operands: tuple[int, ...]
    constant: Any = None


@dataclass
class StepRecorder(Arithmetic):
    """Records the steps of an algorithm; the argument is value 0."""

    steps: list[RecordedStep] = field(default_factory=list)

    def step(self, name: str, *operands: int, constant: Any = None) -> int:
        """The number of the new step."""
        self.steps.append(RecordedStep(name, operands, constant))
        return len(self.steps)


def levels_of_steps(steps: Sequence[RecordedStep]) -> int:
    """Levels from the argument to the last step in a lowered program.

    A ciphertext may hold f v instead of v, so a positive factor takes no level unless other readers
    of its operand need another factor. With L = log f every step gives a linear equation. The
    lowering solves the equations of the whole program (`assign-scales`); this function does so for
    one algorithm, in the same order: products and sums of rows, then factors and domain maps, then
    additions. A factor for each channel is folded into the linear layer before the op.
    """
    system: LinearSystem[int] = LinearSystem()
    factors: list[tuple[int, Mapping[int, float], float]] = []
    products: set[tuple[int, int]] = set()
    """Operands, as (step, position), that are multiplied with a plaintext."""
    for number, (name, operands, constant) in enumerate(steps, 1):
        first = operands[0]
        row = {number: 1.0, first: -1.0}
        match name:
            case "add" | "sub":
                continue
            case "mul" | "square":
                same = operands[-1] == first
                row = {number: 1.0, first: -2.0} if same else {**row, operands[-1]: -1.0}
            case "chebyshev":
                low, high = constant.calibrated or (-1.0, 1.0)
                row = {first: 1.0}
                if high - low != 2.0:
                    factors.append((number, row, math.log(2.0 / (high - low))))
                    continue
            case "scale":
                channels = np.ndim(constant) > 0
                if not channels and constant > 0:
                    factors.append((number, row, -math.log(constant)))
                elif not channels or first != 0:
                    products.add((number, 0))
                continue
        system.add(row, 0.0)
    products |= {(n, 0) for n, row, constant in factors if not system.add(row, constant)}
    unfolded = _levels(steps, {(number, 0) for number, *_ in factors} | products)
    for number, (name, operands, _) in enumerate(steps, 1):
        if name in ("add", "sub"):
            for place in sorted(range(2), key=lambda place: -unfolded[operands[place]]):
                if not system.add({number: 1.0, operands[place]: -1.0}, 0.0):
                    products.add((number, place))
    return _levels(steps, products)[-1]


def _levels(steps: Sequence[RecordedStep], products: set[tuple[int, int]]) -> list[int]:
    """Levels of every value if these operands of steps are first multiplied with a plaintext."""
    levels = [0]
    for number, step in enumerate(steps, 1):
        entries = [levels[v] + ((number, i) in products) for i, v in enumerate(step.operands)]
        cost = int(step.name in ("mul", "square"))
        if step.name == "chebyshev":
            cost = step.constant.levels
        levels.append(max(entries) + cost)
    return levels
