"""Descriptors of plaintexts: how slots are built from a program's arrays, without the slots.

A plaintext is a sum of terms. A term is a number times lookups, slot by slot. A *lookup* gives
every slot an element of an array, or zero. The position in the array is a sum over *tables*, which
are small arrays of integers that depend only on layouts. So diagonal k of a weight is one lookup
with a table of rows and, k positions further, a table of columns. A mask is a product of lookups
that are 1 or 0.

Descriptors are part of a recorded function. The slots are built when the function is executed, here
and in ``runtime_cuda/src/slots.cpp``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.ops.masks import last_kept, positions, shares, visible

NOWHERE = -1
"""Entry of a table where a lookup is zero."""


@dataclass(frozen=True, eq=False)
class Table:
    """An integer for each run of neighbouring slots; runs are equally long. Made on demand.

    Attributes:
        name: name in the text form of a record.
        make: gives the integers, or booleans for a mask: true is 0, false is ``NOWHERE``.
        repeats: how often the integers follow one another until every slot has one.
    """

    name: str
    make: Callable[[], NDArray[Any]]
    repeats: int = 1

    @cached_property
    def numbers(self) -> NDArray[np.int32]:
        """The integers, ``[runs]``."""
        found = np.atleast_1d(self.make())
        return (found.astype(np.int32) - 1) if found.dtype == np.bool_ else found.astype(np.int32)


class Argument(NamedTuple):
    """An array that the call of a function passes.

    Attributes:
        role: the attribute of the op that names the array, or ``MASK``.
        derived: one of ``DERIVED``; empty for the array as it is.
        window, causal: of ``log_hidden`` near a query; see :func:`log_hidden_near`.
    """

    role: str
    derived: str = ""
    window: int = 0
    causal: bool = False

    def __str__(self) -> str:
        near = f", {self.window}{', causal' * self.causal}" if self.window else ""
        return f"{self.derived}({self.role}{near})" if self.derived else self.role

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """What it makes of the array that was passed."""
        if self.window:
            return log_hidden_near(array, self.window, self.causal)
        return DERIVED[self.derived](array) if self.derived else array


MASK = "mask"
"""The role of a public mask ``[batch, tokens]``."""


@dataclass(frozen=True, eq=False)
class Literal:
    """An array that belongs to the function."""

    numbers: NDArray[np.float64]

    def __str__(self) -> str:
        shown = ", ".join(f"{number:.4g}" for number in self.numbers[:3])
        return f"[{shown}{', …' if self.numbers.size > 3 else ''}]"


@dataclass(frozen=True)
class Root:
    """The powers of exp(2 pi i / order): element k is the k-th power."""

    order: int

    def __str__(self) -> str:
        return f"root{self.order}"


TableRotation: TypeAlias = tuple[Table, int]
"""A table and its rotation: slot i uses the entry of slot i + rotation."""


class Lookup(NamedTuple):
    """An element of an array for every slot.

    Attributes:
        array: the array, flattened; None: 1 unless a table has ``NOWHERE``.
        places: tables whose sum is the position of the element.
    """

    array: Argument | Literal | Root | None
    places: tuple[TableRotation, ...]

    def __str__(self) -> str:
        places = " + ".join(f"{t.name}{f'<<{r}' if r else ''}" for t, r in self.places)
        return f"({places})" if self.array is None else f"{self.array}[{places}]"


class Term(NamedTuple):
    """``factor`` times the lookups."""

    factor: complex
    lookups: tuple[Lookup, ...]

    def __str__(self) -> str:
        factor = self.factor if isinstance(self.factor, complex) else f"{self.factor:.17g}"
        return " · ".join([*([] if self.factor == 1 else [str(factor)]), *map(str, self.lookups)])


@dataclass(frozen=True)
class Slots:
    """The slots of a plaintext: the sum of terms."""

    terms: tuple[Term, ...]

    @staticmethod
    def where(*masks: Table) -> Slots:
        """1 where all masks are true, 0 elsewhere."""
        return Slots((Term(1.0, tuple(Lookup(None, ((mask, 0),)) for mask in masks)),))

    @staticmethod
    def of(array: Argument | Literal | Root, *places: TableRotation) -> Slots:
        """Elements of an array."""
        return Slots((Term(1.0, (Lookup(array, places),)),))

    def __add__(self, other: Slots) -> Slots:
        return Slots(self.terms + other.terms)

    def __mul__(self, other: Slots | complex) -> Slots:
        """The product with a number, or slot by slot with other slots."""
        others = other.terms if isinstance(other, Slots) else (Term(other, ()),)
        return Slots(tuple(Term(a * b, one + two) for a, one in self.terms for b, two in others))

    def rolled(self, amount: int) -> Slots:
        """Rotate as ``numpy.roll``: slot i moves to slot i + amount."""
        return self.along(None, 0, amount)

    def along(self, table: Table | None, steps: int, amount: int) -> Slots:
        """With a table rotated further, so that slot i uses its entry of slot i + steps; then
        rotated as :meth:`rolled`.
        """
        # A program has millions of plaintexts, and lists are faster than generators.
        return Slots(
            tuple([
                Term(factor, tuple([
                    Lookup(array, tuple([
                        (one, rotation - amount + (steps if one is table else 0))
                        for one, rotation in places
                    ]))
                    for array, places in lookups
                ]))
                for factor, lookups in self.terms
            ])
        )  # fmt: skip

    @property
    def arguments(self) -> list[Argument]:
        """The arrays that a call must pass."""
        arrays = (lookup.array for term in self.terms for lookup in term.lookups)
        return [array for array in arrays if isinstance(array, Argument)]

    @property
    def repeats(self) -> int:
        """How often the slots repeat: the fewest times of a table, rotated or not; 1 without
        tables. The slots have a period of as many slots as there are, over this.
        """
        return min((table.repeats for table, _ in self.places), default=1)

    @property
    def places(self) -> list[TableRotation]:
        """The tables of all lookups, with their rotations."""
        return [place for term in self.terms for one in term.lookups for place in one.places]

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms))


Plaintext: TypeAlias = Slots | float
"""The other factor of a product in a function: slots, or one number for all slots."""


def built(slots: Slots, size: int, array: Callable[[Argument], NDArray[Any]]) -> NDArray[Any]:
    """The numbers of a plaintext, ``[size]``; complex if a factor is complex.

    Args:
        slots: descriptor of the plaintext.
        size: number of slots of a ciphertext.
        array: gives the array of an argument, flattened.
    """

    def length(table: Table) -> int:
        """Number of slots in a run."""
        return size // len(table.numbers) // table.repeats

    places = slots.places
    run = math.gcd(size, *(length(t) for t, _ in places), *(r for _, r in places))

    def indices(table: Table, rotation: int) -> NDArray[np.int32]:
        numbers = np.tile(np.repeat(table.numbers, length(table) // run), table.repeats)
        return np.roll(numbers, -(rotation // run)) if rotation % size else numbers

    def found(lookup: Lookup) -> NDArray[Any]:
        parts = [indices(*place) for place in lookup.places]
        inside = reduce(np.logical_and, (part != NOWHERE for part in parts))
        if lookup.array is None:
            return inside.astype(np.float64)
        if isinstance(lookup.array, Root):
            order = lookup.array.order
            return np.where(inside, np.exp(2j * np.pi * (sum(parts) % order) / order), 0.0)
        values = lookup.array.numbers if isinstance(lookup.array, Literal) else array(lookup.array)
        return np.where(inside, values[np.where(inside, sum(parts), 0)], 0.0)

    total: Any = 0.0
    for factor, lookups in slots.terms:
        product: Any = 1.0
        for lookup in lookups:
            product = product * found(lookup)
        total = total + factor * product
    return np.repeat(np.broadcast_to(total, (size // run,)), run)


def log_hidden(mask: NDArray[Any]) -> NDArray[np.float64]:
    """log(keys / visible keys) if a query sees the keys up to each token, ``[batch, tokens]``."""
    visible = np.asarray(mask).astype(bool).cumsum(axis=-1)
    return np.log(mask.shape[-1] / np.maximum(visible, 1))


def log_hidden_near(mask: NDArray[Any], window: int, causal: bool) -> NDArray[np.float64]:
    """log(keys / visible keys) of each query, ``[batch, tokens]``, which sees keys within a window;
    see :func:`atlasc.ir.ops.masks.visible`.
    """
    places, kept = np.arange(mask.shape[-1]), np.asarray(mask).astype(bool)
    seen = visible(places, places, causal, window, kept)[:, 0] & kept[:, None]
    return np.log(mask.shape[-1] / np.maximum(seen.sum(axis=-1), 1))


DERIVED: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "log_hidden": log_hidden,
    "shares": shares,
    "positions": positions,
    "last_kept": last_kept,
}
"""Derived arrays that a lookup may use instead of the array itself."""
