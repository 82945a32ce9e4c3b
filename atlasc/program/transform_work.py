"""What an engine does, and holds in memory, for one ``transform``.

The engine ``cpu`` (``transform`` in ``runtime_cuda/ckks/engine_rotations.cpp``) makes all baby
steps of its operands for up to ``MOST_STEPS`` giant steps at a time, and divides each result once.
Where all plaintexts repeat, the rotated operands are never in memory, and every plaintext is
multiplied by every baby step, zeros included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from atlasc.program.engine import TransformTerm, results_of
from atlasc.program.plaintexts import Slots

TransformKind = Literal[
    "transform_baby", "transform_giant", "transform_product", "transform_dense", "transform_result"
]
"""Kinds of costs: a baby step of one operand; a giant step of one result; a product with a
plaintext that repeats, its encoding included; with another plaintext; the division of one result.
"""
MOST_STEPS = 32
"""Sums, one for each giant step of each result, that an engine holds at once."""
LEAST_REPEATS = 16
"""How often plaintexts must repeat for rotated operands to be multiplied where they are made."""
SHORT_REPEATS = 8
"""How often slots must repeat for an encoded plaintext to be kept once instead of for each copy."""


@dataclass(frozen=True)
class TransformWork:
    """The work of a ``transform``.

    Attributes:
        level: the lowest level of the operands.
        operands: operands that are rotated.
        babies: rotations of operands.
        steps: sums: giant steps of all results, steps by 0 included.
        giants: giant steps that rotate.
        results: ciphertexts that are made.
        products: products with plaintexts that repeat, those by zero included.
        dense: products with other plaintexts.
        plaintexts: size of the encoded plaintexts that are in memory at once, in dense ones.
    """

    level: int
    operands: int
    babies: int
    steps: int
    giants: int
    results: int
    products: int
    dense: int
    plaintexts: float

    @classmethod
    def of(cls, level: int, terms: Sequence[TransformTerm], slots: int) -> TransformWork:
        """The work for terms whose values are descriptors; other values count as dense."""
        repeats = {id(one.value): repeats_of(one.value) for one in terms}
        places = {(term.operand, term.baby % slots) for term in terms}
        rotated = {place for place in places if place[1]}
        steps = [
            (giant, [repeats[id(term.value)] for term in group])
            for (_, giant), group in groupby(terms, lambda term: (term.result, term.giant % slots))
        ]
        dense = sum(repeats[id(term.value)] < LEAST_REPEATS for term in terms)
        sizes = [sum(_size(times) for times in step) for _, step in steps]
        return cls(
            level,
            operands=len({operand for operand, _ in rotated}),
            babies=len(rotated),
            steps=len(steps),
            giants=sum(giant != 0 for giant, _ in steps),
            results=results_of(terms),
            products=len(terms) - dense if dense else len(places) * len(steps),
            dense=dense,
            plaintexts=max(
                sum(sizes[at : at + MOST_STEPS]) for at in range(0, len(sizes), MOST_STEPS)
            ),
        )

    @property
    def calls(self) -> dict[TransformKind, int]:
        """Number of each kind. Baby steps are made anew for every ``MOST_STEPS`` giant steps."""
        return {
            "transform_baby": self.babies * -(-self.steps // MOST_STEPS),
            "transform_giant": self.giants,
            "transform_product": self.products,
            "transform_dense": self.dense,
            "transform_result": self.results,
        }

    @property
    def sums(self) -> int:
        """Sums and results, not divided by the special primes, that are in memory at once."""
        return max(min(self.steps, MOST_STEPS), self.results) + self.results


def repeats_of(value: object) -> int:
    """How often the slots of a plaintext repeat, as far as is known."""
    return value.repeats if isinstance(value, Slots) else 1


def _size(repeats: int) -> float:
    """Size of an encoded plaintext, in dense ones."""
    return 1 / repeats if repeats >= SHORT_REPEATS else 1.0
