"""CoeffsToSlots and SlotsToCoeffs as products of a few sparse matrices, given by their diagonals.

A polynomial m of degree N has the slots z_j = m(zeta^(5^j)), zeta = exp(i pi / N), j < n = N/2.
With the complex coefficients c_k = m_k + i m_(k + n) that is z = U c, because zeta^n = i and 5^j =
1 modulo 4: U_jk = zeta^(5^j k), a matrix of n rows with U U^H = n I. U is a fast Fourier transform:
a bit reversal and log2(n) butterflies of two or three diagonals each.

SlotsToCoeffs (StC) is the product of the butterflies, CoeffsToSlots (CtS) that of their inverses.
Neither does the bit reversal. Between the two, the slots hold c in bit-reversed order, which does
not matter to the modular reduction, because it is the same in every slot. Neighbouring butterflies
are multiplied together, so that a transform takes few levels. Every entry of such a product is a
power of zeta, or zero; so a diagonal is a sum of lookups of powers.

Slots that repeat after p slots belong to a polynomial in a power of X, in which one of n/p
coefficients is not zero. The butterflies on blocks of at most p slots are then enough. A stage
without such butterflies is a number.

Sources: Cheon, Han, Kim, Kim, Song, EUROCRYPT 2018 (transforms by diagonals, on encrypted slots);
Chen, Chillotti, Song, EUROCRYPT 2019 (butterflies, grouped); Bossuat, Mouchet, Troncoso-Pastoriza,
Hubaux, EUROCRYPT 2021 (no bit reversal, scaling in equal parts).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from atlasc.program.engine import TransformTerm
from atlasc.program.plaintexts import (
    NOWHERE,
    Lookup,
    Root,
    Slots,
    Table,
    TableRotation,
    Term,
)

Diagonals: TypeAlias = dict[int, Slots]
"""A matrix M as offset d >= 0 -> diagonal_d ``[slots]``: (M z)_p = sum_d diagonal_d[p] z_(p +
d).
"""


class Stage(NamedTuple):
    """One level of a transform.

    Attributes:
        diagonals: diagonals of its matrix.
        babies: number of baby steps, the rotation by 0 included; a power of two.
    """

    diagonals: Diagonals
    babies: int

    def times(self, factor: Slots) -> Stage:
        """The stage whose result is also multiplied by ``factor``, slot by slot."""
        return Stage({at: one * factor for at, one in self.diagonals.items()}, self.babies)


Paths: TypeAlias = list[tuple[int, tuple[TableRotation, ...]]]
"""Offset -> tables whose sum is the exponent of the entry, one sum for each path through the
butterflies of a stage."""


def coeffs_to_slots(slots: int, stages: int, factor: float, period: int) -> list[Stage | float]:
    """Stages of ``factor`` times CtS, to be applied in order: matrices, one level each, or numbers.

    If slots repeat, the stages take the sum of all blocks of ``period`` slots: the number of blocks
    and the halves of the omitted butterflies cancel.

    Args:
        slots: n, a power of two.
        stages: 1 to log2(slots).
        factor: spread evenly over the stages, which keeps the sizes of the plaintexts alike, and so
            their rounding errors.
        period: p, a power of two up to n.
    """
    each = factor ** (1 / stages)
    return [
        _stage(slots, blocks, period, True, each * 0.5 ** len(blocks))
        for blocks in _blocks(slots, stages)
    ]


def slots_to_coeffs(slots: int, stages: int, factor: float, period: int) -> list[Stage | float]:
    """Stages of ``factor`` times StC: those of CtS in reverse.

    The first stage works on each block of ``period`` slots separately.
    """
    each = factor ** (1 / stages)
    first, *others = reversed(_blocks(slots, stages))
    return [
        _stage(slots, first[::-1], period, False, each, alone=True),
        *(_stage(slots, blocks[::-1], period, False, each) for blocks in others),
    ]


def _blocks(slots: int, stages: int) -> list[list[int]]:
    """The block sizes, in slots, of the butterflies in each stage of CtS. The first stages have
    most
    butterflies: the very first butterfly wraps around the slots, so that g of them have 2^g
    diagonals there, and 2^(g + 1) - 1 elsewhere."""
    numbers = np.array_split(np.arange(slots.bit_length() - 1), stages)
    return [[slots >> int(number) for number in group] for group in numbers]


def _butterfly(slots: int, block: int, inverse: bool) -> Paths:
    """The butterfly on blocks of slots, or twice its inverse."""
    half, order = block // 2, 4 * slots
    top = np.array([pow(5, j, 4 * block) for j in range(half)]) * (slots // block)
    zero, nothing = np.zeros(half, int), np.full(half, NOWHERE)
    # [[1, t], [1, -t]], and for the inverse [[1, 1], [conj t, -conj t]].
    right, below = (zero, -top % order) if inverse else (top, zero)
    minus = (order // 2 + (-top if inverse else top)) % order

    def table(name: str, *halves: np.ndarray) -> Table:
        name = f"{name}{block}{'inverse' if inverse else ''}"
        return Table(name, lambda: np.concatenate(halves), slots // block)

    return [
        (0, ((table("same", zero, minus), 0),)),
        (half, ((table("right", right, nothing), 0),)),
        (-half, ((table("left", nothing, below), 0),)),
    ]


def _stage(
    slots: int, blocks: list[int], period: int, inverse: bool, factor: float, alone: bool = False
) -> Stage | float:
    """``factor`` times the product of the butterflies whose blocks fit the period, the first block
    applied first. ``alone``: whether every block of a period is separate.
    """
    # A narrow bootstrap uses the baby steps, and so the rotation keys, of a whole stage.
    babies = _babies(_offsets(slots, blocks), slots)
    used = [block for block in blocks if block <= period]
    if not used:
        return factor
    paths: Paths = [(0, ())]
    for block in used:
        paths = [
            (first + then, (*places, *((table, r + first) for table, r in before)))
            for first, places in _butterfly(slots, block, inverse)
            for then, before in paths
        ]
    wraps = max(used) == period and not alone
    found: Diagonals = {}
    for offset, places in paths:
        at = offset % (period if wraps else slots)
        entry = Slots((Term(factor, (Lookup(Root(4 * slots), places),)),))
        found[at] = found[at] + entry if at in found else entry
    return Stage(dict(sorted(found.items())), babies)


def _offsets(slots: int, blocks: list[int]) -> list[int]:
    """The offsets of the diagonals of a product of butterflies."""
    found = {0}
    for block in blocks:
        found = {(one + by) % slots for one in found for by in (-block // 2, 0, block // 2)}
    return sorted(found)


def _babies(offsets: list[int], slots: int) -> int:
    """The number of baby steps, a power of two, with the fewest rotations. Of two such numbers it
    is the larger one, because its rotations share one decomposition (hoisting).
    """

    def rotations(babies: int) -> int:
        parts = zip(*(_split(offset, babies, offsets) for offset in offsets), strict=True)
        return sum(len(set(steps) - {0}) for steps in parts)

    counts = [1 << power for power in range(slots.bit_length())]
    return min(reversed(counts), key=rotations)


def _split(offset: int, babies: int, offsets: Iterable[int]) -> tuple[int, int]:
    """The baby step and the giant step of an offset. All offsets are multiples of one step; baby
    steps are step · (0 .. babies - 1), giant steps multiples of step · babies."""
    step = math.gcd(*offsets) or 1
    baby = (offset // step & (babies - 1)) * step
    return baby, offset - baby


def baby_giant(stage: Stage) -> list[TransformTerm]:
    """A term for each diagonal: M z is the sum over giant steps of rotate(sum over baby steps of
    plaintext · rotate(z, baby), giant). The plaintexts are rotated back by the giant step.
    """
    diagonals, babies = stage
    steps = [_split(offset, babies, diagonals) for offset in diagonals]
    terms = [
        TransformTerm(baby, giant, plaintext.rolled(giant))
        for (baby, giant), plaintext in zip(steps, diagonals.values(), strict=True)
    ]
    return sorted(terms, key=lambda term: (term.giant, term.baby))
