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
coefficients is not zero. The butterflies on blocks of at most p slots are then enough
(:mod:`atlasc.program.bootstrap.narrow` chooses their stages).

Sources: Cheon, Han, Kim, Kim, Song, EUROCRYPT 2018 (transforms by diagonals, on encrypted slots);
Chen, Chillotti, Song, EUROCRYPT 2019 (butterflies, grouped); Bossuat, Mouchet, Troncoso-Pastoriza,
Hubaux, EUROCRYPT 2021 (no bit reversal, scaling in equal parts).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from atlasc.program.plaintexts import (
    NOWHERE,
    Lookup,
    Root,
    Slots,
    Table,
    TableRotation,
    Term,
)
from atlasc.program.transform_work import TransformTerm, chain_amounts

Diagonals: TypeAlias = dict[int, Slots]
"""A matrix M as offset d >= 0 -> diagonal_d ``[slots]``: (M z)_p = sum_d diagonal_d[p] z_(p +
d).
"""


Steps: TypeAlias = dict[int, tuple[int, int]]
"""Offset -> baby step and giant step of a diagonal. Their sum is the offset, up to the number of
slots after which the operand repeats."""


class Stage(NamedTuple):
    """One level of a transform.

    Attributes:
        diagonals: diagonals of its matrix.
        steps: how they are applied; of a chained stage in the order of the chain.
        chained: see `Engine.transform`.
    """

    diagonals: Diagonals
    steps: Steps
    chained: bool = False

    def times(self, factor: Slots) -> Stage:
        """The stage whose result is also multiplied by ``factor``, slot by slot."""
        return self._replace(diagonals={at: one * factor for at, one in self.diagonals.items()})


class Group(NamedTuple):
    """The butterflies of one stage.

    Attributes:
        blocks: slots in a block of each butterfly, in the order of CtS: largest first.
        wraps: number of slots that offsets are counted modulo.
        steps: baby and giant steps of all offsets.
        chained: see `Stage`.
    """

    blocks: tuple[int, ...]
    wraps: int
    steps: Steps
    chained: bool = False

    def amounts(self, slots: int) -> set[int]:
        """What it rotates by, 0 < amount < slots."""
        babies, giants = ([*dict.fromkeys(some)] for some in zip(*self.steps.values(), strict=True))
        turns = chain_amounts(giants, slots) if self.chained else giants
        return {amount % slots for amount in (*babies, *turns)} - {0}


Paths: TypeAlias = list[tuple[int, tuple[TableRotation, ...]]]
"""Offset -> tables whose sum is the exponent of the entry, one sum for each path through the
butterflies of a stage."""


def coeffs_to_slots(slots: int, groups: Sequence[Group], factor: float) -> list[Stage]:
    """Stages of ``factor`` times CtS, to be applied in order, one level each. Of slots that repeat,
    the groups are those of the butterflies on one period.

    Args:
        slots: n, a power of two.
        groups: the butterflies of each stage.
        factor: spread over the stages, with the halves of all butterflies. All plaintexts have
            about one scale, and what is rounded are as many coefficients as there are different
            slots. So sizes in proportion to the square root of their number keep the rounding
            errors of all stages alike, in proportion to the sizes.
    """
    sizes = [math.sqrt(max(group.blocks, default=1)) for group in groups]
    halves = sum(len(group.blocks) for group in groups)
    each = (factor * 0.5**halves / math.prod(sizes)) ** (1 / len(groups))
    pairs = zip(groups, sizes, strict=True)
    return [_stage(slots, group, True, each * size) for group, size in pairs]


def slots_to_coeffs(slots: int, groups: Sequence[Group], factor: float) -> list[Stage]:
    """Stages of ``factor`` times StC: those of CtS in reverse, and so are the ``groups``."""
    each = factor ** (1 / len(groups))
    return [_stage(slots, group, False, each) for group in groups]


def whole_groups(slots: int, stages: int, babies: int = 0) -> list[Group]:
    """The groups of CtS where slots do not repeat. The first stages have most butterflies: the
    very first butterfly wraps around the slots, so that g of them have 2^g diagonals there, and
    2^(g + 1) - 1 elsewhere.

    Args:
        slots: n, a power of two.
        stages: 1 to log2(slots).
        babies: baby steps of chained stages, a power of two; 0 chains nothing, and takes as many as
            make the fewest rotations.
    """
    numbers = np.array_split(np.arange(slots.bit_length() - 1), stages)
    groups = []
    for at, some in enumerate(numbers):
        blocks = tuple(slots >> int(number) for number in some)
        if babies:
            # A stage ends its chain by the smallest step of the stage before, the other way round.
            steps = chained_steps(blocks, slots, babies, 1 if at % 2 else -1)
        else:
            found = offsets(blocks, slots)
            steps = steps_of(found, _babies(found, slots))
        groups.append(Group(blocks, slots, steps, babies > 0))
    return groups


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


def _stage(slots: int, group: Group, inverse: bool, factor: float) -> Stage:
    """``factor`` times the product of the butterflies of a group."""
    paths: Paths = [(0, ())]
    for block in group.blocks if inverse else group.blocks[::-1]:
        paths = [
            (first + then, (*places, *((table, r + first) for table, r in before)))
            for first, places in _butterfly(slots, block, inverse)
            for then, before in paths
        ]
    found: Diagonals = {}
    for offset, places in paths:
        lookups = (Lookup(Root(4 * slots), places),) if places else ()
        entry, at = Slots((Term(factor, lookups),)), offset % group.wraps
        found[at] = found[at] + entry if at in found else entry
    return Stage(dict(sorted(found.items())), group.steps, group.chained)


def offsets(blocks: Iterable[int], wraps: int) -> list[int]:
    """The offsets of the diagonals of a product of butterflies, modulo ``wraps``."""
    found = {0}
    for block in blocks:
        found = {(one + by) % wraps for one in found for by in (-block // 2, 0, block // 2)}
    return sorted(found)


def _babies(found: Sequence[int], slots: int) -> int:
    """The number of baby steps, a power of two, with the fewest rotations. Of two such numbers it
    is the larger one, because its rotations share one decomposition (hoisting).
    """

    def rotations(babies: int) -> int:
        parts = zip(*steps_of(found, babies).values(), strict=True)
        return sum(len(set(steps) - {0}) for steps in parts)

    counts = [1 << power for power in range(slots.bit_length())]
    return min(reversed(counts), key=rotations)


def steps_of(found: Sequence[int], babies: int) -> Steps:
    """The steps of offsets. All offsets are multiples of one step; baby steps are step · (0 ..
    babies - 1), giant steps multiples of step · babies."""
    step = math.gcd(*found) or 1
    parts = {offset: (offset // step & (babies - 1)) * step for offset in found}
    return {offset: (baby, offset - baby) for offset, baby in parts.items()}


def chained_steps(blocks: Sequence[int], wraps: int, babies: int, sign: int) -> Steps:
    """The steps of a chained stage, in the order of the chain. All babies and all steps of the
    chain go one way, to the left with a ``sign`` of 1. Where offsets do not wrap around, the chain
    begins at the outermost block.
    """
    if not blocks:
        return {0: (0, 0)}
    step, known = blocks[-1] // 2, set(offsets(blocks, wraps))
    start = 0 if blocks[0] == wraps else -sign * blocks[0]
    found: Steps = {}
    for at in range((1 if start == 0 else 2) * blocks[0] // step):
        offset, baby = (start + sign * at * step) % wraps, at % babies
        if offset in known:
            found[offset] = (sign * baby * step, start + sign * (at - baby) * step)
    return found


def baby_giant(stage: Stage) -> list[TransformTerm]:
    """A term for each diagonal: M z is the sum over giant steps of rotate(sum over baby steps of
    plaintext · rotate(z, baby), giant). The plaintexts are rotated back by the giant step.
    """
    terms = [
        TransformTerm(baby, giant, stage.diagonals[offset].rolled(giant))
        for offset, (baby, giant) in stage.steps.items()
    ]
    return terms if stage.chained else sorted(terms, key=lambda term: (term.giant, term.baby))
