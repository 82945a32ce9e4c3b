"""The bootstrap of the C++ runtime as it looks from outside: moduli, rotation keys, memory.

``runtime_cuda/bootstrap`` computes it; here it is run dry, step by step as
``Bootstrap::operator()`` does it, and what it asks of an engine is counted. A test holds the two
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from atlasc.passes.execution.counting_engine import Counted, LiveEngine
from atlasc.passes.execution.paterson_stockmeyer import evaluate_plan, plan_chebyshev


@dataclass(frozen=True)
class BootstrapSet:
    """A set of ``runtime_cuda/bootstrap/parameters.hpp``; sizes of primes in bits.

    Attributes:
        base_bits: what is left at level 0.
        scale_bits: the program's scale and its primes.
        levels_left: products after a bootstrap.
        stc_stages, stc_bits: SlotsToCoeffs, one prime a stage.
        degree: of the modular reduction's Chebyshev sum, which is odd.
        eval_bits: its primes.
        cts_stages, cts_bits: CoeffsToSlots.
        special_primes, special_bits: of key switching.
        secret_weight: of the sparse secret around the raising of the modulus.
    """

    base_bits: int
    scale_bits: int
    levels_left: int
    stc_stages: int
    stc_bits: int
    degree: int
    eval_bits: int
    cts_stages: int
    cts_bits: int
    special_primes: int
    special_bits: int
    secret_weight: int

    @property
    def prime_bits(self) -> tuple[int, ...]:
        """Sizes of the primes of Q in bits, from level 0 upwards."""
        return (
            self.base_bits,
            *[self.scale_bits] * self.levels_left,
            *[self.stc_bits] * self.stc_stages,
            *[self.eval_bits] * self.degree.bit_length(),
            *[self.cts_bits] * self.cts_stages,
        )


SETS = {
    "fourteen_levels": BootstrapSet(57, 46, 14, 3, 42, 127, 60, 3, 57, 5, 60, 32),
    "fourteen_levels_40": BootstrapSet(50, 40, 14, 3, 40, 127, 60, 3, 50, 7, 50, 32),
}
"""By the name that the runtime knows them by."""


@lru_cache(maxsize=8)
def dry_run(name: str, slots: int, one: bool = False) -> LiveEngine:
    """The engine after a bootstrap by a set of ``SETS``: it knows the calls, the keys and the live
    ciphertexts.

    Args:
        name: of the set.
        slots: half the ring degree, a power of two, from 8 on.
        one: of a ciphertext without a partner, which takes one modular reduction.
    """
    chosen = SETS[name]
    engine = LiveEngine(slots, len(chosen.prime_bits) - 1)
    x = engine.encrypt(None)
    for offsets in _cts_offsets(slots, chosen.cts_stages):
        x = _stage(engine, x, offsets)
    conjugate = engine.conjugate(x)
    parts = [engine.add(x, conjugate)]
    if not one:
        parts.append(engine.times_i(engine.sub(conjugate, x)))
    del x, conjugate
    # The plan depends on which coefficients are zero, and none of these cancel.
    odd = np.where(np.arange(chosen.degree + 1) % 2, 1 / (1 + np.arange(chosen.degree + 1.0)), 0)
    plan = plan_chebyshev(odd)
    factor, reduced = _DIAGONAL if one else 0.5, list[Counted]()
    while parts:
        reduced.append(evaluate_plan(engine, parts.pop(0), plan, lambda _: factor))
    x = reduced[0] if one else engine.add(reduced[0], engine.times_i(reduced[1]))
    del reduced
    for offsets in reversed(_cts_offsets(slots, chosen.stc_stages)):
        x = _stage(engine, x, offsets)
    return engine


def diagonals(name: str, slots: int) -> list[tuple[int, int, int]]:
    """Level, number, and period in slots of the diagonals of each stage of CtS and StC."""
    chosen = SETS[name]
    stages = []
    for offsets, butterflies in zip(
        _cts_offsets(slots, chosen.cts_stages), _butterflies(slots, chosen.cts_stages), strict=True
    ):
        stages.append((len(offsets), slots >> int(butterflies[0])))
    top = len(chosen.prime_bits) - 1
    result = [(top - at, *stage) for at, stage in enumerate(stages)]
    bottom = chosen.levels_left + chosen.stc_stages
    return result + [(bottom - at, *stage) for at, stage in enumerate(reversed(stages))]


def _butterflies(slots: int, stages: int) -> list[np.ndarray]:
    """The butterflies of each stage of CtS: number k has blocks of slots/2^k."""
    return np.array_split(np.arange(slots.bit_length() - 1), stages)


def _cts_offsets(slots: int, stages: int) -> list[list[int]]:
    """Offsets of the diagonals of CoeffsToSlots by stage, the nearest way round, ascending.

    A stage multiplies neighbouring butterflies, whose blocks halve from all slots on. SlotsToCoeffs
    has the same stages in reverse.
    """
    half, result = slots // 2, []
    for stage in _butterflies(slots, stages):
        offsets = np.zeros(1, np.int64)
        for butterfly in stage:
            block = half >> int(butterfly)
            offsets = np.add.outer(offsets, (0, block, -block)).ravel()
        result.append(np.unique((offsets + half) % slots - half).tolist())
    return result


def _stage(engine: LiveEngine, x: Counted, offsets: list[int]) -> Counted:
    """One stage by baby and giant steps, as ``CkksEngine::transform`` of the runtime: the division
    by the level's primes is the last step, so that all keys reach the operand's level."""
    steps: dict[int, list[int]] = {}
    for baby, giant in _baby_giant(offsets, engine.slots):
        steps.setdefault(giant, []).append(baby % engine.slots)
    amounts = sorted({baby for babies in steps.values() for baby in babies} - {0})
    rotated = {0: x, **dict(zip(amounts, engine.rotate_many(x, amounts), strict=True))}

    def part(giant: int, babies: list[int]) -> Counted:
        if giant:
            engine.rotate(x, giant)
        return _sum(engine, (engine.mul_plain(rotated[baby], _DIAGONAL) for baby in babies))

    return _sum(engine, (part(giant, babies) for giant, babies in sorted(steps.items())))


def _sum(engine: LiveEngine, terms: Iterator[Counted]) -> Counted:
    total = next(terms)
    for term in terms:
        total = engine.add(total, term)
    return total


_DIAGONAL: Any = ()
"""Stands for a vector; a number would be counted as another primitive."""


def _baby_giant(offsets: list[int], slots: int) -> list[tuple[int, int]]:
    """(baby, giant) of each offset, for the power of two of babies that has the fewest rotations,
    of two such the larger."""
    step = math.gcd(*offsets) or 1

    def split(count: int) -> list[tuple[int, int]]:
        babies = [(offset // step & (count - 1)) * step for offset in offsets]
        return [(baby, offset - baby) for baby, offset in zip(babies, offsets, strict=True)]

    def rotations(count: int) -> int:
        return sum(len(set(parts) - {0}) for parts in zip(*split(count), strict=True))

    counts = [1 << power for power in range(slots.bit_length())]
    return split(min(reversed(counts), key=rotations))
