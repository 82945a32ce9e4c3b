"""The terms of a ``transform``, and what an engine does, and holds in memory, for it.

An engine (``transform`` in ``runtime_cuda/ckks/engine_rotations.cpp``) makes all baby steps of its
operands for up to ``most_sums`` giant steps at a time, and divides each result once.
Where all plaintexts repeat, the rotated operands are never in memory, and every plaintext is
multiplied by every baby step, zeros included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.program.plaintexts import Slots

TransformKind = Literal[
    "transform_baby", "transform_giant", "transform_product", "transform_dense", "transform_result"
]
"""Kinds of costs: a baby step of one operand; a giant step of one result; a product with a
plaintext that repeats, its encoding included; with another plaintext; the division of one result.
"""
TRANSFORMS: tuple[Literal["transform"], Literal["chained_transform"]] = (
    "transform",
    "chained_transform",
)
"""The primitives, by ``chained``."""
MOST_SUMS = 32
"""Sums, one for each giant step of each result, that an engine holds at once, where its device does
not hold more."""
LEAST_REPEATS = 16
"""How often plaintexts must repeat for rotated operands to be multiplied where they are made."""
SHORT_REPEATS = 8
"""How often slots must repeat for an encoded plaintext to be kept once instead of for each copy."""


class TransformTerm(NamedTuple):
    """A product of a :meth:`Engine.transform`, ``rotate(rotate(operand, baby) · value, giant)``.

    Attributes:
        value: a vector; of an engine that plays nothing, its descriptor.
        operand: number of the ciphertext.
        result: number of the sum that the product belongs to.
    """

    baby: int
    giant: int
    value: Any
    operand: int = 0
    result: int = 0

    def places(self, slots: int) -> tuple[int, int]:
        """Where slot 0 comes from and goes to, in the slots of all operands and of all results, one
        after another.
        """
        return self.operand * slots + self.baby % slots, self.result * slots + self.giant % slots

    @classmethod
    def recorded(
        cls, numbers: Sequence[int], values: Sequence[Any], slots: int
    ) -> list[TransformTerm]:
        """The terms of an instruction, whose numbers are the places of its values."""
        terms = []
        for source, target, value in zip(numbers[::2], numbers[1::2], values, strict=True):
            (operand, baby), (result, giant) = divmod(source, slots), divmod(target, slots)
            terms.append(cls(baby, giant, value, operand, result))
        return terms


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
        amounts: the amounts of all rotations, 0 < amount < slots; each takes a key of its own.
        most_sums: sums that the engine holds at once.
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
    amounts: frozenset[int]
    most_sums: int = MOST_SUMS

    @classmethod
    def of(
        cls,
        level: int,
        terms: Sequence[TransformTerm],
        slots: int,
        most_sums: int = MOST_SUMS,
        chained: bool = False,
    ) -> TransformWork:
        """The work for terms whose values are descriptors; other values count as dense."""
        places = np.array([(one.result, one.giant, one.operand, one.baby) for one in terms])
        repeats = np.array([repeats_of(one.value) for one in terms])
        return cls.at(level, places, repeats, slots, most_sums, chained)

    @classmethod
    def at(
        cls,
        level: int,
        places: NDArray[Any],
        repeats: NDArray[Any] | int,
        slots: int,
        most_sums: int = MOST_SUMS,
        chained: bool = False,
    ) -> TransformWork:
        """The work for terms without values.

        Args:
            level: the lowest level of the operands.
            places: result, giant step, operand and baby step of each term, ``[terms, 4]``.
            repeats: how often the slots of each value repeat, a power of two.
            slots: slots of a ciphertext.
            most_sums: sums that the engine holds at once.
            chained: see `Engine.transform`.
        """
        result, giant, operand, baby = places.T
        giant, baby = giant % slots, baby % slots
        used = np.unique(operand * slots + baby)
        rotated = used[used % slots > 0]
        # Neighbours with one result and one giant step are one sum.
        starts = np.flatnonzero(np.diff(result * slots + giant, prepend=-1))
        repeats = np.broadcast_to(repeats, len(places))
        dense = int((repeats < LEAST_REPEATS).sum())
        sizes = np.where(repeats >= SHORT_REPEATS, 1.0 / repeats, 1.0)
        held = np.add.reduceat(sizes, starts[::most_sums])
        turns = giant[starts]
        if chained:
            firsts = np.diff(result[starts], prepend=-1) != 0
            turns = (turns - np.where(firsts, 0, np.roll(turns, 1))) % slots
        return cls(
            level,
            operands=len(np.unique(rotated // slots)),
            babies=len(rotated),
            steps=len(starts),
            giants=int((turns > 0).sum()),
            results=1 + int(result.max()),
            products=len(places) - dense if dense else len(used) * len(starts),
            dense=dense,
            plaintexts=float(held.max()),
            amounts=frozenset({*turns.tolist(), *(rotated % slots).tolist()} - {0}),
            most_sums=most_sums,
        )

    @property
    def calls(self) -> dict[TransformKind, int]:
        """Number of each kind. Baby steps are made anew for every ``most_sums`` giant steps."""
        return {
            "transform_baby": self.babies * -(-self.steps // self.most_sums),
            "transform_giant": self.giants,
            "transform_product": self.products,
            "transform_dense": self.dense,
            "transform_result": self.results,
        }

    @property
    def sums(self) -> int:
        """Sums and results, not divided by the special primes, that are in memory at once."""
        return max(min(self.steps, self.most_sums), self.results) + self.results


def results_of(terms: Sequence[TransformTerm]) -> int:
    """Ciphertexts that a ``transform`` makes."""
    return 1 + max(term.result for term in terms)


def chain_amounts(giants: Sequence[int], slots: int) -> list[int]:
    """What a chained transform rotates by, for each giant step of a result: from the step before to
    this one, and from 0 to the first.
    """
    return [(one - before) % slots for one, before in zip(giants, (0, *giants))]


def repeats_of(value: object) -> int:
    """How often the slots of a plaintext repeat, as far as is known."""
    return value.repeats if isinstance(value, Slots) else 1
