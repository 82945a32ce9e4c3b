"""The rotations of a narrow bootstrap: fewer and smaller stages than those of a whole one, and sums
of copies, by the keys that a whole bootstrap has.

A ciphertext whose slots repeat after p of them is rotated by a as it is by a + p. So most rotations
have a key among those of other amounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, pairwise
from typing import NamedTuple

from atlasc.program.bootstrap.stages import Group, Steps, offsets, steps_of, whole_groups

BABY, GIANT, STAGE = 1, 5, 7
"""Costs of a rotation that shares a decomposition, of one that does not, and of all else in a stage
or in a sum: about 14 ms each at N = 2^16."""
TOP = 20
"""Cost of as many stages of CtS as a whole bootstrap has. Keys for the top have a digit more, and
those of other stages do not reach it otherwise."""
NO_KEY = 100
"""Cost of a rotation without a key. It occurs in rings of tests alone."""
MOST_BUTTERFLIES = 6
"""In a stage: with more it has hundreds of diagonals."""


class Narrow(NamedTuple):
    """How a narrow bootstrap rotates.

    Attributes:
        sums: amounts of each sum of rotations, which together add all copies.
        into: groups of CtS.
        out: groups of StC, in the order in which they are applied.
    """

    sums: list[tuple[int, ...]]
    into: list[Group]
    out: list[Group]


@lru_cache(maxsize=64)
def narrow(slots: int, period: int, copies: int, cts_stages: int, stc_stages: int) -> Narrow:
    """The cheapest one.

    Args:
        slots: n.
        period: p, at most n/2.
        copies: number of equal blocks to add. Their sum repeats after slots / copies already.
        cts_stages, stc_stages: stages of a whole bootstrap, which are the most.
    """
    found = _Keys(slots, cts_stages, stc_stages)
    blocks = tuple(period >> power for power in range(period.bit_length() - 1))
    # One stage of CtS would have plaintexts so small, for the sum of all copies, that they round.
    into = found.cheapest(blocks, 2, cts_stages, period, TOP)
    out = found.cheapest(blocks, 1, stc_stages, period, 0)[::-1]
    return Narrow(found.sums(period, slots // copies), into, out)


class _Keys:
    """The amounts of a whole bootstrap, and what is made of them."""

    def __init__(self, slots: int, cts_stages: int, stc_stages: int) -> None:
        self.slots = slots
        groups = whole_groups(slots, cts_stages) + whole_groups(slots, stc_stages)
        self.amounts = sorted(
            {step % slots for group in groups for pair in group.steps.values() for step in pair}
        )

    def equal(self, amount: int, repeats: int) -> int | None:
        """An amount with a key that rotates slots as this one does if they repeat."""
        return next((one for one in self.amounts if (one - amount) % repeats == 0), None)

    def sums(self, period: int, end: int) -> list[tuple[int, ...]]:
        """Amounts that add all blocks of a period up to ``end`` slots; large blocks first."""
        if period == end:
            return []
        found: list[tuple[int, list[tuple[int, ...]]]] = []
        for many in (2, 4, 8):
            if period * many <= end:
                wanted = [end // many * at for at in range(many)]
                cost, amounts = self._known(wanted, end, BABY)
                rest = self.sums(period, end // many)
                cost += STAGE + sum(STAGE + BABY * len(one) for one in rest)
                found.append((cost, [amounts, *rest]))
        return min(found, key=lambda one: one[0])[1]

    def cheapest(
        self, blocks: tuple[int, ...], least: int, most: int, period: int, top: int
    ) -> list[Group]:
        """Groups of the blocks, ``least`` to ``most`` if there are so many blocks. ``top``: what
        ``most`` stages cost besides.
        """
        count = max(len(blocks), 1)
        found: list[tuple[int, list[Group]]] = []
        for stages in range(min(least, most, count), min(most, count) + 1):
            for cuts in combinations(range(1, count), stages - 1):
                ends = [0, *cuts, count]
                parts = [blocks[a:b] for a, b in pairwise(ends)]
                if max(map(len, parts)) > MOST_BUTTERFLIES:
                    continue
                made = []
                for at, part in enumerate(parts):
                    made.append(self._group(part, period if at == 0 else self.slots, period))
                cost = (top if stages == most else 0) + sum(cost for cost, _ in made)
                found.append((cost, [group for _, group in made]))
        return min(found, key=lambda one: one[0])[1]

    def _group(self, blocks: tuple[int, ...], wraps: int, repeats: int) -> tuple[int, Group]:
        """The cheapest steps of a stage whose operand repeats."""
        found = offsets(blocks, wraps)
        cost, steps = min(self._choices(found, repeats), key=lambda one: one[0])
        return STAGE + cost, Group(blocks, wraps, steps)

    def _choices(self, found: list[int], repeats: int) -> Iterator[tuple[int, Steps]]:
        """Few or many baby steps, and the finer or the coarser ones of both kinds of steps."""
        for power in range(len(found).bit_length() + 1):
            steps = steps_of(found, 1 << power)
            fine, coarse = (sorted(set(some)) for some in zip(*steps.values(), strict=True))
            for babies, giants, swapped in ((fine, coarse, False), (coarse, fine, True)):
                baby_cost, baby = self._known(babies, repeats, BABY)
                giant_cost, giant = self._known(giants, repeats, GIANT)
                to_baby = dict(zip(babies, baby, strict=True))
                to_giant = dict(zip(giants, giant, strict=True))
                parts = {at: pair[::-1] if swapped else pair for at, pair in steps.items()}
                yield (
                    baby_cost + giant_cost,
                    {at: (to_baby[first], to_giant[then]) for at, (first, then) in parts.items()},
                )

    def _known(self, wanted: list[int], repeats: int, each: int) -> tuple[int, tuple[int, ...]]:
        """The cost of rotations, and equal ones that have keys."""
        known = [self.equal(amount, repeats) for amount in wanted]
        used = [amount if key is None else key for amount, key in zip(wanted, known, strict=True)]
        moved = {amount for amount in used if amount % repeats}
        return each * len(moved) + NO_KEY * known.count(None), tuple(used)
