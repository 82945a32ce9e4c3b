"""The arithmetic that approximation algorithms are written against, once.

An algorithm in this package only ever adds, multiplies, sums rows and evaluates Chebyshev sums.
Interpreting it over numpy arrays gives the polynomial simulation, over IR values the expansion into
poly ops, over depths the count of levels in the paper's convention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.approximation.fits import chebyshev as _chebyshev
from atlasc.passes.approximation.fits.validity import Meaning

T = TypeVar("T")

#: A scalar, or whatever the interpretation takes for a plaintext tensor (an array, an IR symbol).
Constant = Any
Interval = tuple[float, float]


class Arithmetic(Protocol[T]):
    """What CKKS offers on a tensor. Operands broadcast as in numpy; all methods are pure."""

    def add(self, a: T, b: T) -> T:
        """a + b."""
        ...

    def sub(self, a: T, b: T) -> T:
        """a - b."""
        ...

    def add_const(self, a: T, c: Constant) -> T:
        """a + c, with a plaintext c."""
        ...

    def mul(self, a: T, b: T) -> T:
        """a * b, elementwise."""
        ...

    def square(self, a: T) -> T:
        """a * a."""
        ...

    def scale(self, a: T, c: Constant) -> T:
        """a * c, with a plaintext c."""
        ...

    def row_sum(self, a: T) -> T:
        """The sum over the last axis, which is kept with length 1."""
        ...

    def chebyshev(
        self,
        a: T,
        coefficients: NDArray[np.float64],
        domain: Interval,
        meaning: Meaning | None = None,
    ) -> T:
        """sum_k coefficients[..., k] T_k(t) with t the affine map of `domain` onto [-1, 1].

        The coefficients are [degree + 1], or [C, degree + 1] for the C places of the last axis.
        `meaning` says which function that is, for who wants to know where the sum is right; None
        where it is none.
        """
        ...

    def masked(self, a: T, value: float) -> T:
        """a [..., queries, keys] with 0 for masked keys, which all hold `value` before: an
        addition, so it costs no level. Without a mask, a itself.
        """
        ...


@dataclass(frozen=True)
class NumpyArithmetic:
    """Evaluation in the clear.

    Attributes:
        dtype: float32 or float64; every result has it.
        threads: of the Chebyshev kernel; None for the number of processors.
        keep: of a softmax, which keys a query may see, broadcast to the scores; None for all.
    """

    dtype: Any = np.float64
    threads: int | None = None
    keep: NDArray[np.bool_] | None = None

    def add(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """a + b."""
        return a + b

    def sub(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """a - b."""
        return a - b

    def add_const(self, a: NDArray[Any], c: Constant) -> NDArray[Any]:
        """a + c."""
        return a + np.asarray(c, dtype=self.dtype)

    def mul(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """a b."""
        return a * b

    def square(self, a: NDArray[Any]) -> NDArray[Any]:
        """a a."""
        return a * a

    def scale(self, a: NDArray[Any], c: Constant) -> NDArray[Any]:
        """c a."""
        return a * np.asarray(c, dtype=self.dtype)

    def row_sum(self, a: NDArray[Any]) -> NDArray[Any]:
        """The sum over the last axis, kept."""
        # float32 rows are summed in float64: n sum(x^2) - sum(x)^2 cancels.
        return a.sum(axis=-1, keepdims=True, dtype=np.float64).astype(self.dtype)

    def chebyshev(
        self,
        a: NDArray[Any],
        coefficients: NDArray[np.float64],
        domain: Interval,
        meaning: Meaning | None = None,
    ) -> NDArray[Any]:
        """The Chebyshev sum."""
        return _chebyshev.evaluate(np.asarray(a, self.dtype), coefficients, domain, self.threads)

    def masked(self, a: NDArray[Any], value: float) -> NDArray[Any]:
        """a with 0 for masked keys."""
        return a if self.keep is None else np.where(self.keep, a, np.asarray(0, self.dtype))


@dataclass(frozen=True)
class DepthArithmetic:
    """Multiplicative depth in the paper's convention; a value is the depth at which it is
    available.

    Every product costs one level, by a plaintext too, and nothing is folded: a row sum costs one
    (its mask), a Chebyshev sum of degree d costs ceil(log2(d + 1)) and one more for its domain map,
    unless the domain is [-1, 1].
    """

    def add(self, a: int, b: int) -> int:
        """The later of the two."""
        return max(a, b)

    def sub(self, a: int, b: int) -> int:
        """The later of the two."""
        return max(a, b)

    def add_const(self, a: int, c: Constant) -> int:
        """No level."""
        return a

    def mul(self, a: int, b: int) -> int:
        """One level below the later."""
        return max(a, b) + 1

    def square(self, a: int) -> int:
        """One level."""
        return a + 1

    def scale(self, a: int, c: Constant) -> int:
        """One level."""
        return a + 1

    def row_sum(self, a: int) -> int:
        """One level, for the mask."""
        return a + 1

    def chebyshev(
        self,
        a: int,
        coefficients: NDArray[np.float64],
        domain: Interval,
        meaning: Meaning | None = None,
    ) -> int:
        """The levels of the degree, and one for the domain map."""
        domain_map = 0 if tuple(domain) == (-1.0, 1.0) else 1
        return a + domain_map + _chebyshev.levels_of_degree(np.shape(coefficients)[-1] - 1)

    def masked(self, a: int, value: float) -> int:
        """No level."""
        return a
