"""Depth-optimal evaluation of a Chebyshev sum on a ciphertext, by baby steps and giant steps.

A sum of degree d is P = Q T_g + R with g the largest power of two up to d, so Q has half the depth
to spend and R at least one level of slack. Only the chain of leading quotients has no slack and is
split down to degree 1; every other piece of degree below 2^b is a linear combination of baby steps
T_1 .. T_{2^b - 1}. The argument being in [-1, 1], degree d takes ceil(log2(d + 1)) levels, products
by scalars included.

A dense sum of degree 2^p - 1 takes 2^b + 2^(p-b) + p - 4 products of ciphertexts: 13 for degree 31,
18 for 63, 53 for 511 and the best b. The products of one sum are relinearised together, which
leaves 10, 15 and 38 relinearisations. Sources: Paterson and Stockmeyer 1973; Han and Ki 2020 (the
Chebyshev basis); Bossuat et al. 2021, section 3 (the leading quotients).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.execution.engine import Engine

Ct = TypeVar("Ct")
Coefficient: TypeAlias = float | NDArray[np.float64]
"""A number, or one for each channel."""


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
        terms: (factor, index) pairs, each one product by a plaintext.
        products: (quotient, giant) pairs, each one product of ciphertexts; quotient is the position
            of an earlier Sum.
    """

    depth: int
    constant: Coefficient
    terms: tuple[tuple[Coefficient, int], ...]
    products: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ChebyshevPlan:
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
        """Products of two ciphertexts."""
        return len(self.powers) + sum(len(s.products) for s in self.sums)

    @property
    def relinearisations(self) -> int:
        """One for each power, and one for each sum that has products."""
        return len(self.powers) + sum(bool(s.products) for s in self.sums)

    @property
    def scalar_products(self) -> int:
        """Products of a ciphertext and a coefficient."""
        return sum(len(s.terms) for s in self.sums)


def depth_of_power(index: int) -> int:
    """Levels below its argument at which T_index is: ceil(log2(index))."""
    return (index - 1).bit_length() if index > 1 else 0


def plan_chebyshev(coefficients: Sequence[float] | NDArray[np.float64]) -> ChebyshevPlan:
    """The cheapest plan over all baby-step counts: the one with the fewest relinearisations, each
    worth about three products, and products.

    Coefficients that are exactly zero cost nothing, so odd and even polynomials are cheaper. The
    number of levels is that of the nominal degree, even where leading coefficients vanish.

    Args:
        coefficients: [degree + 1], or [channels, degree + 1]: one plan serves all channels, its
            coefficients being vectors.

    Raises:
        ValueError: no coefficients, or one that is not finite.
    """
    values = np.asarray(coefficients, dtype=np.float64).T
    if values.ndim not in (1, 2) or values.size == 0 or not np.isfinite(values).all():
        raise ValueError("coefficients must be non-empty vectors of finite numbers")
    levels = (len(values) - 1).bit_length()
    candidates = [_Builder(values, baby).build(levels) for baby in range(1, max(levels, 1) + 1)]
    return min(
        candidates,
        key=lambda plan: (
            3 * plan.relinearisations + plan.ciphertext_products,
            plan.scalar_products,
        ),
    )


class _Builder:
    """Splits coefficients [degree + 1, ...] for one baby-step count 2^baby - 1."""

    def __init__(self, coefficients: NDArray[np.float64], baby: int) -> None:
        self.coefficients = coefficients
        self.largest_baby = 2**baby - 1
        self.sums: list[Sum] = []
        self.needed: set[int] = set()

    def build(self, levels: int) -> ChebyshevPlan:
        self._sum(self.coefficients, levels)
        return ChebyshevPlan(tuple(_powers(self.needed)), tuple(self.sums))

    def _sum(self, coefficients: NDArray[np.float64], depth: int) -> int:
        """Appends the sums for these coefficients, available at `depth`; returns the position of
        the last.
        """
        c = coefficients.copy()
        products: list[tuple[int, int]] = []
        lone: list[tuple[Coefficient, int]] = []
        while (top := _degree(c)) > 0:
            if top <= self.largest_baby and depth_of_power(top) < depth:
                break
            giant = 1 << (top.bit_length() - 1)
            if top == giant:  # its quotient is a number: one more term, not a product
                lone.append((_coefficient(c, giant), giant))
                c[giant] = 0.0
                continue
            c, quotient = _divide(c, giant, top)
            products.append((self._sum(quotient, depth - 1), giant))
            self.needed.add(giant)
        terms = tuple((_coefficient(c, j), j) for j in _present(c) if j > 0) + tuple(lone)
        self.needed.update(index for _, index in terms)
        self.sums.append(Sum(depth, _coefficient(c, 0), terms, tuple(products)))
        return len(self.sums) - 1


def _coefficient(c: NDArray[np.float64], index: int) -> Coefficient:
    return float(c[index]) if c.ndim == 1 else c[index].copy()


def _present(c: NDArray[np.float64]) -> list[int]:
    """Terms that are not zero in all channels."""
    found: list[int] = np.flatnonzero(c.reshape(len(c), -1).any(axis=1)).tolist()
    return found


def _degree(c: NDArray[np.float64]) -> int:
    return max(_present(c), default=0)


def _divide(
    c: NDArray[np.float64], giant: int, top: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(remainder, quotient) with c = quotient T_giant + remainder, for giant < top < 2 giant.

    From T_(g+j) = 2 T_g T_j - T_(g-j).
    """
    remainder, quotient = c.copy(), np.zeros((top - giant + 1, *c.shape[1:]))
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
    engine: Engine[Ct],
    ct: Ct,
    plan: ChebyshevPlan | Sequence[float] | NDArray[np.float64],
    plaintext: Callable[[Coefficient], Coefficient] | None = None,
) -> Ct:
    """The Chebyshev sum of a ciphertext whose slots are in [-1, 1].

    Each operation is done at the lowest level that its result allows, where it is cheapest.

    Args:
        plan: a plan, or the coefficients of T_0, T_1, ... to plan for.
        plaintext: slots of a coefficient; None for numbers, and vectors of slots.

    Returns:
        a ciphertext `plan.levels` levels below `ct`.

    Raises:
        AtlasError: the ciphertext has fewer levels than the plan takes (from the engine).
    """
    steps = plan if isinstance(plan, ChebyshevPlan) else plan_chebyshev(plan)
    return _Evaluation(engine, ct, plaintext or (lambda coefficient: coefficient)).run(steps)


class _Evaluation(Generic[Ct]):
    """One run of a plan: powers and sums by position, each also kept at the levels that it was
    dropped to.
    """

    def __init__(
        self, engine: Engine[Ct], ct: Ct, plaintext: Callable[[Coefficient], Coefficient]
    ) -> None:
        self.engine, self.plaintext = engine, plaintext
        self.top = engine.level(ct)
        self.powers: dict[int, Ct] = {1: ct}
        self.dropped: dict[tuple[int, int], Ct] = {}

    def run(self, plan: ChebyshevPlan) -> Ct:
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
        parts = [
            engine.mul_plain(self._at(index, level + 1), self.plaintext(factor))
            for factor, index in step.terms
        ]
        if step.products:
            quotients = [sums[quotient] for quotient, _ in step.products]
            giants = [self._at(giant, level + 1) for _, giant in step.products]
            parts.append(engine.dot(quotients, giants))
        if not parts:
            argument = self._at(1, level)
            parts.append(engine.sub(argument, argument))
        total = parts[0]
        for part in parts[1:]:
            total = engine.add(total, part)
        if not np.any(step.constant):
            return total
        return engine.add_plain(total, self.plaintext(step.constant))

    def _at(self, index: int, level: int) -> Ct:
        key = (index, level)
        if key not in self.dropped:
            ct = self.powers[index]
            same = self.engine.level(ct) == level
            self.dropped[key] = ct if same else self.engine.drop_to(ct, level)
        return self.dropped[key]
