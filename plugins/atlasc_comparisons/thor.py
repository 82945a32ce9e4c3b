"""The approximations of THOR (Moon et al., eprint 2024/1881; code: crypto-starlab/THOR).

The exponential is a polynomial of degree 15, followed by squarings. 1/x and 1/sqrt(x) are
Goldschmidt iterations, each step with a factor for the interval that is still left. The activation
is two polynomials one after the other, of degrees 31 and 27.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import function as scalar_function
from atlasc.polynomials.arithmetic import Term
from atlasc.polynomials.description import NORM_DEPTH, Activation, Norm, Softmax
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum, Interval

NORM_PRECISION = 0.001
SOFTMAX_PRECISION = 0.01
FINAL_PRECISION = 0.001
INNER_DEGREE, OUTER_DEGREE = 31, 27
"""Degrees of a composite activation."""


@dataclass(frozen=True)
class AdaptiveSoftmax(Softmax):
    """softmax(x / 2^r), then r rounds of squaring and normalising. Depth 41 with the published
    settings.

    Attributes:
        score_range: range of the scores; the published (-27.2493, 21.72692) is that of all BERT
            layers but one.
        rounds: r. Scores are halved r times, and probabilities squared r times.
        squarings: number of squarings of the exponential.
        epsilon: least row sum of exp(x / 2^r), as a share of `width` times its greatest value.
        width: number of keys in a row; the sums lie in (0, width].
    """

    algorithm = "adaptive_goldschmidt"

    score_range: Interval = (-27.2493, 21.72692)
    rounds: int = 1
    squarings: int = 1
    epsilon: float = 2.0**-11
    width: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.epsilon < 1 or self.rounds < 1 or self.squarings < 0 or self.width < 1:
            raise AtlasError("an adaptive softmax has an entry out of range", why=repr(self))

    @property
    def mask_fill(self) -> float:
        """The score of a masked key; see `Softmax.mask_fill`."""
        return sum(self.score_range) / 2

    @property
    def temperature(self) -> float:
        """2^r: the first sum is that of exp(score / 2^r)."""
        return 2.0**self.rounds

    def apply(self, scores: Term) -> Term:
        """Probabilities of the scores."""
        low, high = self.score_range
        powers = 2.0**self.squarings
        reach = (high - low) / (2.0**self.rounds * powers)
        # 1 / width goes into the polynomial, so that the first row sums lie in (0, 1].
        share = self.width ** (-1 / powers)
        total = ChebyshevSum(15, lambda: fit("exp", 15, (-reach, 0.0)) * share, (low, high))
        y = scores.chebyshev(total)
        for _ in range(self.squarings):
            y = y.square()
        y = y.masked(total.middle**powers)
        epsilon = self.epsilon
        for round_ in range(self.rounds + 1):
            alpha = FINAL_PRECISION if round_ == self.rounds else SOFTMAX_PRECISION
            y = y * _inverse(y.row_sum(), epsilon, alpha)
            if round_ < self.rounds:
                y = y.square()
                # Squares of probabilities with sum p add up to at least p^2 / width; the code
                # halves that for safety.
                epsilon = (1 - alpha) / self.width / 2
        return y


def _inverse(x: Term, epsilon: float, alpha: float) -> Term:
    """1/x on [epsilon, 1] by the adaptive Goldschmidt iteration, two levels per step: a = a k
    (2 - k b), b = b k (2 - k b). x times the result is in [1 - alpha, 1].

    Source: THOR, section on softmax.
    """
    factors: list[float] = []
    while not factors or epsilon < 1 - alpha:
        k = 2 / (epsilon + 1)
        epsilon = k * epsilon * (2 - k * epsilon)
        factors.append(k)
    k = factors[0]
    result, b = x * (-k * k) + 2 * k, x
    for previous, k in pairwise(factors):
        correction = b * -previous + 2.0
        b = b * previous * correction
        result = result * (b * (-k * k) + 2 * k)
    return result


@dataclass(frozen=True)
class AdaptiveNorm(Norm):
    """Adaptive Goldschmidt 1/sqrt. Depth 7 + 2 d for d steps: 5 for a range of (0.15, 10), 6 for
    (0.2, 150).

    The depth is that of THOR's code, which starts from an encryption of ones. Atlasc leaves this
    product out, so an op takes one level less. The square of the result times the argument is in
    [1 - 0.001, 1].

    Attributes:
        range: range of the variance (or mean square) plus epsilon.
    """

    algorithm = "adaptive_goldschmidt"
    positive = ("range",)

    range: Interval

    @property
    def unit(self) -> float:
        """The factor of the argument that `inverse_sqrt` needs."""
        return 1 / self.range[1]

    @property
    def factors(self) -> list[float]:
        """The factor k of each step. It solves f(k epsilon) = f(k) for f(t) = t (3 - t)^2 / 4.

        Source: THOR, section on LayerNorm.
        """
        factors: list[float] = []
        epsilon = self.range[0] / self.range[1]
        while not factors or epsilon < 1 - NORM_PRECISION:
            k = 3 / (1 + math.sqrt(epsilon) + epsilon)
            epsilon = k * epsilon * (3 - k * epsilon) ** 2 / 4
            factors.append(k)
        return factors

    def inverse_sqrt(self, v: Term) -> Term:
        """1/sqrt(v / unit) by b = b k^1.5 (3/k - a) / 2, a = a k^3 (3/k - a)^2 / 4."""
        factors = self.factors
        k = factors[0]
        result, a = v * (-(k**1.5) / 2) + 1.5 * k**0.5, v
        for previous, k in pairwise(factors):
            square = (a + -3 / previous).square()
            a = a * (previous**3 / 4) * square
            cubic = result * (k**1.5 / 2) * a
            result = result * (1.5 * k**0.5) - cubic
        return result

    def depth_of(self, op_name: str) -> int:
        """Depth of an op in the paper's convention."""
        return NORM_DEPTH[op_name] + 2 * len(self.factors)


@dataclass(frozen=True)
class CompositeActivation(Activation):
    """x (1 + s(x)) / 2, where s is an odd polynomial of degree 27 of one of degree 31. Depth 12.

    s is the gate of the function: erf for GELU, tanh for SiLU. The published coefficients are for
    |x| <= 32. Here they are a least-squares fit on the measured range.

    Attributes:
        range: range of the argument.
    """

    algorithm = "composite"

    range: Interval = (-32.0, 32.0)

    @staticmethod
    def covers(function: str) -> bool:
        """Whether the function is x (1 + s(x)) / 2."""
        return scalar_function(function).gate is not None

    def apply(self, x: Term, function: str) -> Term:
        """The function of x."""
        if not self.covers(function):
            raise AtlasError(
                f"the composite approximation does not cover {function}",
                remedy="use a Chebyshev approximation for this op",
            )
        reach = max(abs(end) for end in self.range)
        inner, outer = _composite(function, reach)
        inside = x.chebyshev(ChebyshevSum.of(inner, (-reach, reach)))
        return x * inside.chebyshev(ChebyshevSum.of(outer))


@lru_cache(maxsize=256)
def _composite(function: str, reach: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients (inner, outer) with (1 + s(x)) / 2 = outer(inner(x / reach)) for |x| <= reach.

    The inner polynomial is a least-squares fit of tanh(c x), scaled into [-1, 1]. The outer
    polynomial fits s over the values of the inner one, weighted by |x|. Of 16 slopes c, the one
    with the least error of x s(x) is taken.
    """
    near_zero = np.linspace(0, min(1, 8 / reach), 600)
    t = np.concatenate([np.cos(np.linspace(0, np.pi / 2, 900)), near_zero])
    x = reach * t
    target, weight = scalar_function(function).gate_numpy(x), x + 0.05
    inner_basis = chebvander(t, INNER_DEGREE)[:, 1::2]
    tried: list[tuple[float, NDArray[Any], NDArray[Any]]] = []
    for slope in np.geomspace(1.0, 0.6 * reach + 2.0, 16):
        inner = np.linalg.lstsq(inner_basis, np.tanh(slope * t), rcond=None)[0]
        inner /= np.abs(inner_basis @ inner).max()
        outer_basis = chebvander(inner_basis @ inner, OUTER_DEGREE)[:, 1::2]
        outer = np.linalg.lstsq(outer_basis * weight[:, None], target * weight, rcond=1e-13)[0]
        error = float(np.abs(x * (outer_basis @ outer - target)).max())
        tried.append((error, inner, outer))
    _, inner, outer = min(tried, key=lambda one: one[0])
    first, second = np.zeros(INNER_DEGREE + 1), np.zeros(OUTER_DEGREE + 1)
    first[1::2], second[1::2] = inner, outer / 2
    second[0] = 0.5
    return first, second
