"""The rotations of a narrow bootstrap: fewer and smaller stages than those of a whole one, and sums
of copies, by the keys that a whole bootstrap has.

A ciphertext whose slots repeat after p of them is rotated by a as it is by a + p. So most rotations
have a key among those of other amounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise, product
from typing import NamedTuple

from atlasc.program.bootstrap.stages import (
    Group,
    Steps,
    chained_steps,
    offsets,
    steps_of,
    whole_groups,
)

BABY, GIANT, STAGE = 1, 5, 7
"""Costs of a rotation that shares a decomposition, of one that does not, and of all else in a stage
or in a sum: about 14 ms each at N = 2^16."""
TOP = 20
"""Cost of as many stages of CtS as a whole bootstrap has. Keys for the top have a digit more, and
those of other stages do not reach it otherwise."""
NO_KEY = 100
"""Cost of a rotation that no keys make up. It occurs in rings of tests alone."""
MOST_KEYS = 4
"""One after another in a rotation without a key of its own."""
MOST_BUTTERFLIES = 6
"""In a stage: with more it has hundreds of diagonals."""


class Narrow(NamedTuple):
    """How a narrow bootstrap rotates.

    Attributes:
        sums: of each sum of rotations the amounts that lead to each one, one after another. All
            sums together add all copies.
        into: groups of CtS.
        out: groups of StC, in the order in which they are applied.
    """

    sums: list[list[tuple[int, ...]]]
    into: list[Group]
    out: list[Group]


@lru_cache(maxsize=64)
def narrow(
    slots: int, period: int, copies: int, cts_stages: int, stc_stages: int, babies: int = 0
) -> Narrow:
    """The cheapest one.

    Args:
        slots: n.
        period: p, at most n/2.
        copies: number of equal blocks to add. Their sum repeats after slots / copies already.
        cts_stages, stc_stages: stages of a whole bootstrap, which are the most.
        babies: of a whole bootstrap (`whole_groups`); 0 chains no stage here either.
    """
    found = _Keys(slots, cts_stages, stc_stages, babies)
    blocks = tuple(period >> power for power in range(period.bit_length() - 1))
    # One stage of CtS would have plaintexts so small, for the sum of all copies, that they round.
    into = found.cheapest(blocks, 2, cts_stages, period, TOP)
    out = found.cheapest(blocks, 1, stc_stages, period, 0)[::-1]
    return Narrow(found.sums(period, slots // copies), into, out)


class _Keys:
    """The amounts of a whole bootstrap, and what is made of them."""

    def __init__(self, slots: int, cts_stages: int, stc_stages: int, babies: int) -> None:
        self.slots, self.chained = slots, babies > 0
        stages = {cts_stages, stc_stages}
        groups = [group for count in stages for group in whole_groups(slots, count, babies)]
        self.amounts = sorted({0}.union(*(group.amounts(slots) for group in groups)))

    def equal(self, amount: int, repeats: int) -> int | None:
        """An amount with a key that rotates slots as this one does if they repeat."""
        return next((one for one in self.amounts if (one - amount) % repeats == 0), None)

    def path(self, amount: int, repeats: int) -> tuple[int, ...]:
        """The fewest amounts with keys that rotate as this one does, one after another; the amount
        itself, which has no key, if more would be needed.
        """
        found: dict[int, tuple[int, ...]] = {}
        last: dict[int, tuple[int, ...]] = {0: ()}
        for _ in range(MOST_KEYS):
            longer: dict[int, tuple[int, ...]] = {}
            for place, before in last.items():
                for one in self.amounts:
                    longer.setdefault((place + one) % repeats, (*before, one))
            last = {place: path for place, path in longer.items() if place not in found}
            found |= last
            if amount % repeats in found:
                return found[amount % repeats]
        return (amount,)

    def sums(self, period: int, end: int) -> list[list[tuple[int, ...]]]:
        """Rotations that add all blocks of a period up to ``end`` slots; large blocks first."""
        if period == end:
            return []
        found: list[tuple[int, list[list[tuple[int, ...]]]]] = []
        for many in (2, 4, 8):
            if period * many <= end:
                wanted = [end // many * at for at in range(many)]
                own = [self.path(amount, end) for amount in wanted]
                sums = [own, *self.sums(period, end // many)]
                found.append((sum(map(self._cost, sums)), sums))
        return min(found, key=lambda one: one[0])[1]

    def _cost(self, paths: Sequence[tuple[int, ...]]) -> int:
        """Of a sum of rotations. Those by one amount share a decomposition."""
        alone = GIANT * sum(len(path) for path in paths if len(path) > 1)
        hoisted = [path[0] for path in paths if len(path) == 1 and path[0]]
        return STAGE + alone + sum(BABY if at in self.amounts else NO_KEY for at in hoisted)

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
        if self.chained and blocks:
            choices = self._chains(blocks, wraps, repeats)
        else:
            choices = self._choices(offsets(blocks, wraps), repeats)
        cost, steps = min(choices, key=lambda one: one[0])
        return STAGE + cost, Group(blocks, wraps, steps, self.chained)

    def _chains(
        self, blocks: tuple[int, ...], wraps: int, repeats: int
    ) -> Iterator[tuple[int, Steps]]:
        """Chained steps: few or many baby steps, either way."""
        for babies, sign in product((1, 2, 4, 8), (1, -1)):
            steps = chained_steps(blocks, wraps, babies, sign)
            turns, giants = ([*dict.fromkeys(some)] for some in zip(*steps.values(), strict=True))
            baby_cost, baby = self._known(turns, repeats, BABY)
            start, each = giants[0], sign * babies * (blocks[-1] // 2)
            giant_cost, (first, step) = self._known((start, each), repeats, GIANT)
            if len(giants) > 1:
                giant_cost += GIANT * (len(giants) - 2)
            to_baby = dict(zip(turns, baby, strict=True))
            to_giant = {giant: first + (giant - start) // each * step for giant in giants}
            yield (
                baby_cost + giant_cost,
                {at: (to_baby[turn], to_giant[giant]) for at, (turn, giant) in steps.items()},
            )

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

    def _known(self, wanted: Sequence[int], repeats: int, each: int) -> tuple[int, tuple[int, ...]]:
        """The cost of rotations, and equal ones that have keys."""
        known = [self.equal(amount, repeats) for amount in wanted]
        used = [amount if key is None else key for amount, key in zip(wanted, known, strict=True)]
        moved = {amount for amount in used if amount % repeats}
        return each * len(moved) + NO_KEY * known.count(None), tuple(used)
