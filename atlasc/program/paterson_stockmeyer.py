"""Depth-optimal evaluation of a Chebyshev sum on a ciphertext, by baby steps and giant steps.

A sum of degree d is P = Q T_g + R with g the largest power of two up to d, so Q may use half the
depth and R has at least one level of slack. Only the chain of leading quotients has no slack and is
split down to degree 1; every other piece of degree below 2^b is a linear combination of baby steps
T_1 .. T_{2^b - 1}. For an argument in [-1, 1], degree d takes ceil(log2(d + 1)) levels, products
by scalars included.

A dense sum of degree 2^p - 1 takes 2^b + 2^(p-b) + p - 4 products of ciphertexts: 13 for degree 31,
18 for 63, 53 for 511 and the best b. The products of one sum are relinearized together, which
leaves 10, 15 and 38 relinearizations. Sources: Paterson and Stockmeyer 1973; Han and Ki 2020 (the
Chebyshev basis); Bossuat et al. 2021, section 3 (the leading quotients).

The argument may repeat in 2^k copies. Split k times, P is the sum of 2^k parts: each is a piece of
degree below g = 2^(p-k), times some of the factors T_g, T_2g, T_4g, ... Every copy evaluates one
part. The coefficients of the pieces become vectors over the copies, and so do factors: T in the
copies whose part has it, 1 in the others. The sum over the copies is P. This takes k rotations, and
one level more, because a factor is masked. Degree 511 takes 17 relinearizations with 32 copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.program.engine import Ct, Engine

Coefficient: TypeAlias = float | NDArray[np.float64]
"""A coefficient: a number, or one number for each channel or for each copy of the argument."""


class Sum(NamedTuple):
    """The sum of all factor · T_index, of all quotient · T_giant, and of a constant, at one depth.

    Attributes:
        depth: levels between the argument and the value; its products happen one level above.
        constant: the coefficient of T_0.
        terms: (factor, index) pairs, each one product with a plaintext.
        products: (quotient, giant) pairs, each one product of ciphertexts; quotient is the position
            of an earlier Sum.
    """

    depth: int
    constant: Coefficient
    terms: list[tuple[Coefficient, int]]
    products: list[tuple[int, int]]


class Factor(NamedTuple):
    """T_giant in the copies where ``chosen`` is 1, and 1 in those where it is 0."""

    giant: int
    chosen: NDArray[np.float64]


@dataclass(frozen=True)
class ChebyshevPlan:
    """A plan to evaluate one Chebyshev sum: powers, then sums; the last sum is the result, or in
    each copy of the argument the first factor of one part.

    Attributes:
        powers: index -> (left, right) in order of computation, with index = left + right and
            left >= right: T_index = 2 T_left T_right - T_(left - right).
        sums: see `Sum`.
        factors: the other factors of the parts; empty where every copy evaluates all of the sum.
    """

    powers: dict[int, tuple[int, int]]
    sums: list[Sum]
    factors: tuple[Factor, ...] = ()

    @property
    def levels(self) -> int:
        """Levels from the argument to the result."""
        return self.sums[-1].depth + len(self.factors)

    @property
    def ciphertext_products(self) -> int:
        """Number of products of two ciphertexts."""
        return len(self.powers) + sum(len(s.products) for s in self.sums) + len(self.factors)

    @property
    def relinearisations(self) -> int:
        """Number of relinearizations: one for each power, each sum with products, and each
        factor.
        """
        return len(self.powers) + sum(bool(s.products) for s in self.sums) + len(self.factors)

    @property
    def scalar_products(self) -> int:
        """Number of products of a ciphertext and a coefficient."""
        return sum(len(s.terms) for s in self.sums) + len(self.factors)


def depth_of_power(index: int) -> int:
    """Levels between the argument and T_index: ceil(log2(index))."""
    return (index - 1).bit_length() if index > 1 else 0


def plan_chebyshev(
    coefficients: Sequence[float] | NDArray[np.float64], copies: int = 1
) -> ChebyshevPlan:
    """The cheapest plan over all numbers of baby steps.

    Its cost counts products, and relinearizations as about three products each. Coefficients that
    are exactly zero are free, so odd and even polynomials are cheaper. The number of levels is that
    of the nominal degree, even if leading coefficients vanish.

    Args:
        coefficients: [degree + 1], or [channels, degree + 1]: one plan serves all channels, with
            vectors as coefficients.
        copies: number of copies of the argument that share the sum, a power of two of at most half
            of the least one above the degree. The coefficients are then one vector.

    Raises:
        ValueError: there are no coefficients, one is not finite, or the copies are too many.
    """
    values = np.asarray(coefficients, dtype=np.float64).T
    if values.ndim not in (1, 2) or values.size == 0 or not np.isfinite(values).all():
        raise ValueError("coefficients must be non-empty vectors of finite numbers")
    levels, factors = (len(values) - 1).bit_length(), tuple[Factor, ...]()
    if copies > 1:
        values = parts(values, copies).T
        giant, levels = len(values), levels - copies.bit_length() + 2
        factors = tuple(
            Factor(giant << bit, (np.arange(copies) >> bit & 1).astype(np.float64))
            for bit in range(copies.bit_length() - 1)
        )
    plans = [_plan(values, levels, 2**baby - 1, factors) for baby in range(1, max(levels, 1) + 1)]
    return min(
        plans, key=lambda p: (3 * p.relinearisations + p.ciphertext_products, p.scalar_products)
    )


def parts(coefficients: NDArray[np.float64], copies: int) -> NDArray[np.float64]:
    """The pieces of the parts of a sum, ``[copies, g]``. Bit i of the number of a part says whether
    T_(g 2^i) is a factor of it.

    Raises:
        ValueError: the coefficients are no vector, or the copies are too many or no power of two.
    """
    length = 1 << (len(coefficients) - 1).bit_length()
    if coefficients.ndim != 1 or copies & (copies - 1) or not 1 <= copies <= length // 2:
        raise ValueError(f"{copies} copies cannot share a sum of shape {coefficients.shape}")
    found = np.pad(coefficients, (0, length - len(coefficients)))[None]
    while len(found) < copies:
        giant = found.shape[1] // 2
        quotient, rest = _divided(found.T, giant)
        found = np.stack([rest.T, quotient.T], 1).reshape(-1, giant)
    return found


def _plan(
    coefficients: NDArray[np.float64],
    levels: int,
    largest_baby: int,
    factors: tuple[Factor, ...] = (),
) -> ChebyshevPlan:
    """The plan for coefficients [degree + 1, ...] with baby steps up to ``largest_baby``."""
    sums: list[Sum] = []
    needed = {factor.giant for factor in factors}

    def split(c: NDArray[np.float64], depth: int) -> int:
        """Add the sums for these coefficients, available at `depth`; return the position of the
        last.
        """
        products: list[tuple[int, int]] = []
        lone: list[tuple[Coefficient, int]] = []
        while (top := max(_present(c), default=0)) > 0:
            if top <= largest_baby and depth_of_power(top) < depth:
                break
            giant = 1 << (top.bit_length() - 1)
            quotient, c = _divided(c[: top + 1], giant)
            if top == giant:  # a quotient that is a number adds a term, not a product
                lone.append((_coefficient(quotient, 0), giant))
                continue
            products.append((split(quotient, depth - 1), giant))
            needed.add(giant)
        terms = [(_coefficient(c, j), j) for j in _present(c) if j > 0] + lone
        needed.update(index for _, index in terms)
        sums.append(Sum(depth, _coefficient(c, 0), terms, products))
        return len(sums) - 1

    split(coefficients, levels)
    return ChebyshevPlan(_powers(needed), sums, factors)


def _divided(c: NDArray[np.float64], giant: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Quotient and remainder by T_giant of the sums with coefficients [up to 2 giant, ...]: T_(g+j)
    = 2 T_g T_j - T_(g-j).
    """
    quotient, rest = 2.0 * c[giant:], c[:giant].copy()
    quotient[0] = c[giant]
    rest[giant - len(quotient) + 1 :] -= quotient[:0:-1] / 2.0
    return quotient, rest


def _coefficient(c: NDArray[np.float64], index: int) -> Coefficient:
    return float(c[index]) if c.ndim == 1 else c[index].copy()


def _present(c: NDArray[np.float64]) -> list[int]:
    """Indices of the terms that are nonzero in some channel."""
    found: list[int] = np.flatnonzero(c.reshape(len(c), -1).any(axis=1)).tolist()
    return found


def _powers(needed: set[int]) -> dict[int, tuple[int, int]]:
    """Index -> (left, right) of each needed T_j and of the powers it is made of, at least depth."""
    made: dict[int, tuple[int, int]] = {}

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
        made[index] = left, right

    for index in sorted(needed):
        make(index)
    return made


def evaluate_plan(
    engine: Engine[Ct],
    ct: Ct,
    plan: ChebyshevPlan,
    plaintext: Callable[[Coefficient], Any] = lambda coefficient: coefficient,
) -> Ct:
    """The Chebyshev sum of a ciphertext whose slots are in [-1, 1].

    Each operation is done at the lowest level that its result allows, because it is cheapest there.

    Args:
        engine: evaluates the primitives.
        ct: the argument.
        plan: the plan of the sum.
        plaintext: turns a coefficient into the engine's plaintext.

    Returns:
        A ciphertext `plan.levels` levels below `ct`; with factors, the parts of the sum
        (`sum_of_parts`).

    Raises:
        AtlasError: the ciphertext has fewer levels than the plan takes (from the engine).
    """
    top, powers, sums = engine.level(ct), {1: ct}, list[Ct]()
    dropped: dict[tuple[int, int], Ct] = {}

    def at(index: int, level: int) -> Ct:
        """A power, dropped to a level."""
        if (index, level) not in dropped:
            power = powers[index]
            same = engine.level(power) == level
            dropped[index, level] = power if same else engine.drop_to(power, level)
        return dropped[index, level]

    def power(left: int, right: int) -> Ct:
        one, other = powers[left], powers[right]
        product = engine.square(one) if left == right else engine.mul(one, other)
        doubled = engine.add(product, product)
        if left == right:
            return engine.add_plain(doubled, -1.0)
        return engine.sub(doubled, powers[left - right])

    def total(step: Sum) -> Ct:
        level = top - step.depth
        parts = []
        if step.terms:
            operands = [at(index, level + 1) for _, index in step.terms]
            factors = [plaintext(factor) for factor, _ in step.terms]
            parts.append(engine.dot_plain(operands, factors))
        if step.products:
            quotients = [sums[quotient] for quotient, _ in step.products]
            giants = [at(giant, level + 1) for _, giant in step.products]
            parts.append(engine.dot(quotients, giants))
        if not parts:
            argument = at(1, level)
            parts.append(engine.sub(argument, argument))
        result = reduce(engine.add, parts)
        if not np.any(step.constant):
            return result
        return engine.add_plain(result, plaintext(step.constant))

    for index, parts in plan.powers.items():
        powers[index] = power(*parts)
    for step in plan.sums:
        sums.append(total(step))
    result = sums[-1]
    for giant, chosen in plan.factors:
        masked = engine.mul_plain(powers[giant], plaintext(chosen))
        result = engine.mul(result, engine.add_plain(masked, plaintext(1.0 - chosen)))
    return result


def sum_of_parts(engine: Engine[Ct], parts: Ct, copies: int, period: int) -> Ct:
    """Σ over the copies of an argument, which lie ``period`` slots apart, in every copy: the sum
    whose parts they evaluated.
    """
    for bit in range(copies.bit_length() - 1):
        parts = engine.add(parts, engine.rotate(parts, period << bit))
    return parts
