"""The arithmetic that approximation algorithms are written against.

An algorithm only adds, multiplies, sums rows and evaluates Chebyshev sums, so one text serves many
interpretations: over NumPy arrays it gives the polynomial simulation, over IR values the expansion
into poly ops, over depths the paper's count, and recorded it gives row programs and levels.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.approximation.fits.chebyshev import evaluate, levels_of_degree
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum
from atlasc.passes.framework.linear_system import LinearSystem

T = TypeVar("T")

Constant = Any
"""A number, or whatever the interpretation takes for a plaintext tensor (an array, a symbol)."""


class Arithmetic(ABC, Generic[T]):
    """What CKKS offers on a tensor. Operands broadcast as in NumPy; nothing is changed in place."""

    @abstractmethod
    def step(self, name: str, *operands: T, constant: Any = None) -> T:
        """The result of one operation; `name` is that of a method below."""

    def add(self, a: T, b: T) -> T:
        """a + b."""
        return self.step("add", a, b)

    def sub(self, a: T, b: T) -> T:
        """a - b."""
        return self.step("sub", a, b)

    def mul(self, a: T, b: T) -> T:
        """a * b, elementwise."""
        return self.step("mul", a, b)

    def square(self, a: T) -> T:
        """a * a."""
        return self.step("square", a)

    def add_const(self, a: T, c: Constant) -> T:
        """a + c, with a plaintext c."""
        return self.step("add_const", a, constant=c)

    def scale(self, a: T, c: Constant) -> T:
        """a * c, with a plaintext c."""
        return self.step("scale", a, constant=c)

    def row_sum(self, a: T) -> T:
        """The sum over the last axis, which is kept with length 1."""
        return self.step("row_sum", a)

    def chebyshev(self, a: T, total: ChebyshevSum) -> T:
        """The value of a Chebyshev sum at a."""
        return self.step("chebyshev", a, constant=total)

    def masked(self, a: T, value: float) -> T:
        """a [..., queries, keys] with 0 for masked keys, all of which hold `value` before.

        This is an addition, so it costs no level. Without a mask the result is a itself.
        """
        return self.step("masked", a, constant=value)


class ArrayArithmetic(Arithmetic[Any]):
    """Evaluation on arrays with Python's operators, as NumPy and torch share it."""

    OPERATORS: ClassVar[dict[str, Callable[..., Any]]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "square": lambda a: a * a,
    }

    @abstractmethod
    def constant(self, c: Constant) -> Any:
        """A plaintext of the arrays' dtype."""

    def step(self, name: str, *operands: Any, constant: Any = None) -> Any:
        """The result of an elementwise operation; the others have methods of their own."""
        return self.OPERATORS[name](*operands)

    def add_const(self, a: Any, c: Constant) -> Any:
        """a + c."""
        return a + self.constant(c)

    def scale(self, a: Any, c: Constant) -> Any:
        """c a."""
        return a * self.constant(c)


@dataclass(frozen=True)
class NumpyArithmetic(ArrayArithmetic):
    """Evaluation in the clear.

    Attributes:
        dtype: float32 or float64; every result has it.
        threads: of the Chebyshev kernel; None for the number of processors.
        keep: of a softmax, which keys a query may see, broadcast to the scores; None for all.
    """

    dtype: Any = np.float64
    threads: int | None = None
    keep: NDArray[np.bool_] | None = None

    def constant(self, c: Constant) -> Any:
        """The constant in the dtype."""
        return np.asarray(c, dtype=self.dtype)

    def row_sum(self, a: NDArray[Any]) -> NDArray[Any]:
        """The sum over the last axis, kept; float32 rows are summed in float64."""
        return a.sum(axis=-1, keepdims=True, dtype=np.float64).astype(self.dtype)

    def chebyshev(self, a: NDArray[Any], total: ChebyshevSum) -> NDArray[Any]:
        """The Chebyshev sum."""
        x = np.asarray(a, self.dtype)
        return evaluate(x, total.coefficients, total.domain, self.threads)

    def masked(self, a: NDArray[Any], value: float) -> NDArray[Any]:
        """a with 0 for masked keys."""
        return a if self.keep is None else np.where(self.keep, a, np.asarray(0, self.dtype))


class DepthArithmetic(Arithmetic[int]):
    """Multiplicative depth in the paper's convention; a value is the depth at which it is known.

    Every product costs one level, also one by a plaintext, and nothing is folded. A row sum costs
    one (its mask). A Chebyshev sum of degree d costs ceil(log2(d + 1)), and one more for the map of
    its domain unless the algorithm itself brings the argument into [-1, 1].
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
        name: of the method of `Arithmetic`.
        operands: numbers of earlier steps; 0 is the argument, the first step has number 1.
        constant: the plaintext or the Chebyshev sum, if it has one.
    """

    name: str
    operands: tuple[int, ...]
    constant: Any = None


@dataclass
class Recorder(Arithmetic[int]):
    """Writes down what an algorithm does to its argument, which is value 0."""

    steps: list[RecordedStep] = field(default_factory=list)

    def step(self, name: str, *operands: int, constant: Any = None) -> int:
        """The number of the new step."""
        self.steps.append(RecordedStep(name, operands, constant))
        return len(self.steps)


def levels_of_steps(steps: Sequence[RecordedStep]) -> int:
    """Levels from the argument to the last step in a lowered program.

    A ciphertext may hold f v instead of v, so that a positive factor costs no level unless other
    readers of its operand want another one. With L = log f every step gives a linear equation; the
    lowering solves them for the whole program (`assign-scales`), this does for one algorithm, in
    the same order: products and sums of rows, then factors and domain maps, then additions. A
    factor for each channel is folded into the linear layer before the op.
    """
    system: LinearSystem[int] = LinearSystem()
    factors: list[tuple[int, Mapping[int, float], float]] = []
    products: set[tuple[int, int]] = set()
    """Operands, as (step, position), that stay a product by a plaintext."""
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
    """Levels of every value where these operands of steps are multiplied by a plaintext first."""
    levels = [0]
    for number, step in enumerate(steps, 1):
        entries = [levels[v] + ((number, i) in products) for i, v in enumerate(step.operands)]
        cost = int(step.name in ("mul", "square"))
        if step.name == "chebyshev":
            cost = levels_of_degree(step.constant.degree)
        levels.append(max(entries) + cost)
    return levels
