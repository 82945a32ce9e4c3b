"""Moves elements from slots of some ciphertexts to slots of others, in three linear transforms.

In one transform a change of the layout may take as many diagonals as there are slots. So the slots
are read as a grid. Each element moves within its column, then within its row, then within its
column, as in a Clos network (Clos, Bell System Technical Journal 1953). The first and the last
transform then have at most one diagonal a row, the second one less than two a column. The row in
between is the colour of the element as an edge from its first to its last column: two elements of
one column never share a colour (König 1916).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.ops.rows import bits_for
from atlasc.program.kernels.context import HOISTED
from atlasc.program.plaintexts import NOWHERE, Literal, Slots, Table

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Moves:
    """Elements that move. No two of them go to one place.

    Attributes:
        slots: slots of a ciphertext.
        operand, source: ciphertext and slot of each element before, ``[elements]``.
        result, target: ciphertext and slot of each element after, ``[elements]``.
        unit: the amounts of one result differ by multiples of it.
    """

    slots: int
    operand: Numbers
    source: Numbers
    result: Numbers
    target: Numbers
    unit: int

    @cached_property
    def amounts(self) -> Numbers:
        """Rotation of each element, the least in magnitude, ``[elements]``."""
        half = self.slots // 2
        return (self.source - self.target + half) % self.slots - half

    @cached_property
    def _parts(self) -> tuple[Numbers, Numbers]:
        """Giant and baby step of each element, for the number of baby steps that costs least."""

        def split(babies: int) -> tuple[Numbers, Numbers]:
            baby = self.amounts // self.unit % babies * self.unit
            return self.amounts - baby, baby

        def cost(babies: int) -> float:
            giant, baby = split(babies)
            sums = np.unique(self.result * self.slots + giant % self.slots)
            rotated = np.unique(self.operand * self.slots + baby)
            return len(sums) + HOISTED * len(rotated)

        most = bits_for(self.slots // self.unit)
        return split(min((1 << bit for bit in range(most + 1)), key=cost))

    @cached_property
    def places(self) -> Numbers:
        """Result, giant step, operand and baby step of each diagonal, ``[diagonals, 4]``."""
        giant, baby = self._parts
        return np.unique(np.stack([self.result, giant, self.operand, baby], axis=1), axis=0)

    @cached_property
    def _tables(self) -> dict[tuple[int, int], tuple[Table, Numbers]]:
        """Result and operand -> number of the amount that each slot of the result takes, and these
        amounts.
        """
        found = {}
        for result, operand in np.unique(np.stack([self.result, self.operand], axis=1), axis=0):
            here = np.flatnonzero((self.result == result) & (self.operand == operand))
            amounts, numbers = np.unique(self.amounts[here], return_inverse=True)
            at = np.full(self.slots, NOWHERE, np.int32)
            at[self.target[here]] = numbers
            table = Table(f"amount.{result}.{operand}", partial(np.asarray, at))
            found[int(result), int(operand)] = table, amounts
        return found

    def diagonal(self, result: int, giant: int, operand: int, baby: int) -> Slots:
        """1 in the slots of a result whose elements take two steps; not rotated back."""
        table, amounts = self._tables[result, operand]
        chosen = Literal((amounts == giant + baby).astype(np.float64))
        return Slots.of(chosen, (table, 0))


def routes(moves: Moves) -> tuple[Moves, Moves, Moves]:
    """Moves within columns, within rows, and within columns, which together are some moves.

    The operands of the second and the third are the results of the one before. A column of the
    third is turned by some slots for each result, where elements of one operand would otherwise
    share few columns.
    """
    slots, all_bits = moves.slots, bits_for(moves.slots)
    # Few rows: each pair of ciphertexts may need a diagonal a row in the end.
    columns = 1 << min(all_bits, all_bits // 2 + 2)
    operands, left = np.unique(moves.operand), moves.source % columns
    turns = [0, *(1 << bit for bit in range(bits_for(columns)))]

    def degree(column: Numbers) -> int:
        """Most elements of one operand in one column."""
        return int(np.bincount(moves.operand * columns + column).max())

    turn = min(turns, key=lambda turn: degree((moves.target + moves.result * turn) % columns))
    right = (moves.target + moves.result * turn) % columns
    bits = bits_for(max(degree(left), degree(right)))
    rows, colour = slots // columns, np.zeros_like(left)
    # Elements that stay in their row take few diagonals at the end.
    wanted = moves.target // columns
    for one in operands:
        here = moves.operand == one
        colour[here] = _colours(left[here], right[here], wanted[here], columns, bits)
    copies = -(-(1 << bits) // rows)  # ciphertexts in between for each operand
    middle = np.searchsorted(operands, moves.operand) * copies + colour // rows
    middle = np.unique(middle, return_inverse=True)[1]  # none is without elements
    first, last = colour % rows * columns + left, colour % rows * columns + right
    # An element that goes to several places is in one of them until the last move.
    return (
        Moves(slots, moves.operand, moves.source, middle, first, columns),
        Moves(slots, middle, first, middle, last, 1),
        Moves(slots, middle, last, moves.result, moves.target, columns),
    )


def _colours(left: Numbers, right: Numbers, wanted: Numbers, columns: int, bits: int) -> Numbers:
    """A colour below 2**bits for each edge of a bipartite graph; edges of one vertex differ.

    The graph is filled up until each vertex has 2**bits edges. Then it is halved ``bits`` times, so
    that each half has half of the edges of each vertex.

    Args:
        left, right: vertices of each edge, ``[edges]``, below ``columns``.
        wanted: colour that each edge gets if others leave it, ``[edges]``.
        columns: number of vertices on each side; none has more than 2**bits edges.
        bits: see above.
    """

    def filled(ends: Numbers) -> Numbers:
        lacking = (1 << bits) - np.bincount(ends, minlength=columns)
        return np.concatenate([ends, np.repeat(np.arange(columns), lacking)])

    one, other = filled(left), filled(right)
    wished = np.concatenate([wanted, np.zeros(len(one) - len(left), np.int64)])
    colour = np.zeros_like(one)
    for bit in reversed(range(bits)):
        half = _half(colour * columns + one, colour * columns + other, wished, bit)
        colour = 2 * colour + half
    return colour[: len(left)]


def _half(left: Numbers, right: Numbers, wanted: Numbers, bit: int) -> Numbers:
    """0 or 1 for each edge of a bipartite graph whose vertices have even degrees: each vertex has
    as many edges of both.

    The edges of a vertex are paired, if possible with one whose wanted colour has another ``bit``.
    Along the cycles of pairs, edges are 0 and 1 in turns: most of them get the bit that they want.
    """
    wish = wanted >> bit & 1
    near = (wanted & ~(1 << bit)) * 2 + wish

    def partners(ends: Numbers) -> Numbers:
        order, found = np.lexsort((near, ends)), np.empty_like(ends)
        found[order[0::2]], found[order[1::2]] = order[1::2], order[0::2]
        return found

    partner = partners(left)
    jump, least = partners(right)[partner], np.arange(len(left))
    for _ in range(bits_for(len(left))):  # the least edge among every other one of its cycle
        least = np.minimum(least, least[jump])
        jump = jump[jump]
    ones = np.bincount(least, 2 * wish - 1, minlength=len(left))[least]
    chosen = np.where(ones == ones[partner], least > least[partner], ones > ones[partner])
    return chosen.astype(np.int64)
