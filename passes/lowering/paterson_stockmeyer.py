"""Depth-optimal evaluation of a Chebyshev sum on a ciphertext, by baby steps and giant steps.

A sum of degree d is P = Q T_g + R with g the largest power of two up to d, so Q has half the depth
to spend and R at least one level of slack. Only the chain of leading quotients has no slack and is
split down to degree 1; every other piece of degree below 2^b is a linear combination of baby steps
T_1 .. T_{2^b - 1}. The argument being in [-1, 1], degree d takes ceil(log2(d + 1)) levels, products
by scalars included.

A dense sum of degree 2^p - 1 takes 2^b + 2^(p-b) + p - 4 products of ciphertexts for the best b: 13
for degree 31, 18 for 63, 53 for 511. Sources: Paterson and Stockmeyer 1973; Han and Ki 2020 (the
Chebyshev basis); Bossuat et al. 2021, section 3 (the leading quotients).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.lowering.engine import Engine

Ct = TypeVar("Ct")


@dataclass(frozen=True)
class Power:
    """T_index = 2 T_left T_right - T_(left - right), with left >= right and index = left +
    right.
    """

    index: int
    left: int
    right: int


@dataclass(frozen=True)
class Sum:
    """sum of factor T_index, of quotient T_giant, and of a constant, all available at one depth.

    Attributes:
        depth: levels below the argument at which the value is; its products happen one level above.
        constant: the coefficient of T_0.
        terms: (factor, index) pairs, each one product by a scalar.
        products: (quotient, giant) pairs, each one product of ciphertexts; quotient is the position
            of an earlier Sum.
    """

    depth: int
    constant: float
    terms: tuple[tuple[float, int], ...]
    products: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """How to evaluate one Chebyshev sum: powers in order of computation, then sums; the last sum is
    the result.
    """

    powers: tuple[Power, ...]
    sums: tuple[Sum, ...]

    @property
    def levels(self) -> int:
        """Levels from the argument to the result."""
        return self.sums[-1].depth

    @property
    def ciphertext_products(self) -> int:
        """Products of two ciphertexts, each with a relinearisation."""
        return len(self.powers) + sum(len(s.products) for s in self.sums)

    @property
    def scalar_products(self) -> int:
        """Products of a ciphertext and a number."""
        return sum(len(s.terms) for s in self.sums)


def depth_of_power(index: int) -> int:
    """Levels below its argument at which T_index is: ceil(log2(index))."""
    return (index - 1).bit_length() if index > 1 else 0


def plan_chebyshev(coefficients: Sequence[float] | NDArray[np.float64]) -> Plan:
    """The plan with the fewest products of ciphertexts over all baby-step counts.

    Coefficients that are exactly zero cost nothing, so odd and even polynomials are cheaper. The
    number of levels is that of the nominal degree, len(coefficients) - 1, even where leading
    coefficients vanish.

    Raises:
        ValueError: no coefficients, or one that is not finite.
    """
    values = np.asarray(coefficients, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError("coefficients must be a non-empty vector of finite numbers")
    levels = (values.size - 1).bit_length()
    candidates = [_Builder(values, baby).build(levels) for baby in range(1, max(levels, 1) + 1)]
    return min(candidates, key=lambda plan: (plan.ciphertext_products, plan.scalar_products))


class _Builder:
    """Splits one coefficient vector for one baby-step count 2^baby - 1."""

    def __init__(self, coefficients: NDArray[np.float64], baby: int) -> None:
        self.coefficients = coefficients
        self.largest_baby = 2**baby - 1
        self.sums: list[Sum] = []
        self.needed: set[int] = set()

    def build(self, levels: int) -> Plan:
        self._sum(self.coefficients, levels)
        return Plan(tuple(_powers(self.needed)), tuple(self.sums))

    def _sum(self, coefficients: NDArray[np.float64], depth: int) -> int:
        """Appends the sums for these coefficients, available at `depth`; returns the position of
        the last.
        """
        c = coefficients.copy()
        products: list[tuple[int, int]] = []
        lone: list[tuple[float, int]] = []
        while (top := _degree(c)) > 0:
            if top <= self.largest_baby and depth_of_power(top) < depth:
                break
            giant = 1 << (top.bit_length() - 1)
            if top == giant:  # its quotient is a number: one more term, not a product
                lone.append((float(c[giant]), giant))
                c[giant] = 0.0
                continue
            c, quotient = _divide(c, giant, top)
            products.append((self._sum(quotient, depth - 1), giant))
            self.needed.add(giant)
        terms = tuple((float(c[j]), int(j)) for j in np.flatnonzero(c) if j > 0) + tuple(lone)
        self.needed.update(index for _, index in terms)
        self.sums.append(Sum(depth, float(c[0]), terms, tuple(products)))
        return len(self.sums) - 1


def _degree(c: NDArray[np.float64]) -> int:
    nonzero = np.flatnonzero(c)
    return int(nonzero[-1]) if nonzero.size else 0


def _divide(
    c: NDArray[np.float64], giant: int, top: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(remainder, quotient) with c = quotient T_giant + remainder, for giant < top < 2 giant.

    From T_(g+j) = 2 T_g T_j - T_(g-j).
    """
    remainder, quotient = c.copy(), np.zeros(top - giant + 1)
    high = c[giant + 1 : top + 1]
    quotient[0], quotient[1:] = c[giant], 2.0 * high
    remainder[giant - len(high) : giant] -= high[::-1]
    remainder[giant:] = 0.0
    return remainder, quotient


def _powers(needed: set[int]) -> list[Power]:
    """The needed T_j and what they are made of, each at its least depth, in order of
    computation.
    """
    made: dict[int, Power] = {}

    def missing(index: int) -> bool:
        return index > 1 and index not in made

    def make(index: int) -> None:
        if not missing(index):
            return
        splits = [
            (left, index - left)
            for left in range((index + 1) // 2, index)
            if max(depth_of_power(left), depth_of_power(index - left)) < depth_of_power(index)
        ]
        left, right = min(
            splits,
            key=lambda s: (missing(s[0]) + missing(s[1]) + missing(s[0] - s[1]), s[0] - s[1]),
        )
        for part in (left - right, right, left):
            make(part)
        made[index] = Power(index, left, right)

    for index in sorted(needed):
        make(index)
    return list(made.values())


def evaluate_plan(
    engine: Engine[Ct], ct: Ct, plan: Plan | Sequence[float] | NDArray[np.float64]
) -> Ct:
    """The Chebyshev sum of a ciphertext whose slots are in [-1, 1].

    Each operation is done at the lowest level that its result allows, where it is cheapest.

    Args:
        plan: a plan, or the coefficients of T_0, T_1, ... to plan for.

    Returns:
        a ciphertext `plan.levels` levels below `ct`.

    Raises:
        AtlasError: the ciphertext has fewer levels than the plan takes (from the engine).
    """
    steps = plan if isinstance(plan, Plan) else plan_chebyshev(plan)
    return _Evaluation(engine, ct).run(steps)


class _Evaluation(Generic[Ct]):
    """One run of a plan: powers and sums by position, each also kept at the levels that it was
    dropped to.
    """

    def __init__(self, engine: Engine[Ct], ct: Ct) -> None:
        self.engine = engine
        self.top = engine.level(ct)
        self.powers: dict[int, Ct] = {1: ct}
        self.dropped: dict[tuple[int, int], Ct] = {}

    def run(self, plan: Plan) -> Ct:
        for power in plan.powers:
            self.powers[power.index] = self._power(power)
        sums: list[Ct] = []
        for step in plan.sums:
            sums.append(self._sum(step, sums))
        return sums[-1]

    def _power(self, power: Power) -> Ct:
        engine, left, right = self.engine, self.powers[power.left], self.powers[power.right]
        product = engine.square(left) if power.left == power.right else engine.mul(left, right)
        doubled = engine.add(product, product)
        if power.left == power.right:
            return engine.add_plain(doubled, -1.0)
        return engine.sub(doubled, self.powers[power.left - power.right])

    def _sum(self, step: Sum, sums: list[Ct]) -> Ct:
        engine, level = self.engine, self.top - step.depth
        parts = [engine.mul_plain(self._at(index, level + 1), f) for f, index in step.terms]
        for quotient, giant in step.products:
            parts.append(engine.mul(sums[quotient], self._at(giant, level + 1)))
        if not parts:
            argument = self._at(1, level)
            parts.append(engine.sub(argument, argument))
        total = parts[0]
        for part in parts[1:]:
            total = engine.add(total, part)
        return engine.add_plain(total, step.constant) if step.constant != 0.0 else total

    def _at(self, index: int, level: int) -> Ct:
        key = (index, level)
        if key not in self.dropped:
            ct = self.powers[index]
            same = self.engine.level(ct) == level
            self.dropped[key] = ct if same else self.engine.drop_to(ct, level)
        return self.dropped[key]
