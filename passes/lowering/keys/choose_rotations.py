"""Chooses which amounts get their own rotation key, and at which level, within a memory budget.

Every amount starts with a key at the highest level of its use. Then keys are dropped, or lowered to
a level that serves only part of the uses, until the budget holds; each time the change is taken
that costs the fewest seconds per byte. An amount without a key is rotated with the bootstrap key,
if this key has the amount. Otherwise it is composed of two rotations, the first of which may be
composed itself.

Compositions are looked up as sums of two amounts, without a graph: a networkx graph of 8,192
amounts and 40 keys takes 0.9 s to build, programs have 32,768 amounts and some 150 keys, and the
greedy choice changes the keys thousands of times.

A composed rotation is no longer hoisted. But other rotations of the same ciphertext (baby steps)
often need its first part anyway, and then it still takes one key switch.

The steps of a ``transform`` are never composed: their keys are required, and may serve other uses.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement

from atlasc.program.costs import PrimitiveCosts
from atlasc.program.counting_engine import highest
from atlasc.program.rotation_plan import RotationPlan

MAX_SWITCHES = 3
"""Greatest number of key switches of a composed rotation."""

Uses = Mapping[tuple[int, tuple[int, ...]], int]
"""(level, amounts of one ciphertext) -> calls. Amounts are to the left, 0 < amount < slots."""
Way = tuple[float, tuple[int, int] | None]
"""The way to rotate by an amount where its own key does not reach: seconds beyond those with a key,
and the two parts if it is composed."""


@dataclass(frozen=True)
class KeyModel:
    """Costs of keys on a backend.

    Attributes:
        key_bytes: bytes of a rotation key by the highest level that it serves, from level 0 on.
        costs: seconds of ``rotate``, ``rotate_hoisted`` and ``hoist`` by level.
        bootstrap: amounts that the bootstrap key serves without a key of their own.
        free: amounts whose keys exist anyway and reach every level.
    """

    key_bytes: tuple[int, ...]
    costs: PrimitiveCosts
    bootstrap: frozenset[int] = frozenset()
    free: frozenset[int] = frozenset()

    def size(self, keys: Mapping[int, int]) -> int:
        """Bytes of keys (amount -> level), without the free ones."""
        return sum(self.key_bytes[at] for amount, at in keys.items() if amount not in self.free)


def rotation_seconds(uses: Uses, plan: RotationPlan, costs: PrimitiveCosts) -> float:
    """Seconds of all rotations under a plan, as `PlannedEngine` makes them."""
    seconds = 0.0
    for (level, amounts), calls in uses.items():
        paths = (plan.path(amount, level) for amount in amounts)
        # Paths share beginnings; each distinct beginning takes one more key switch.
        switches = {path[:end] for path in paths for end in range(1, len(path) + 1)}
        hoisted = Counter(path[:-1] for path in switches if plan.hoists(path[-1], level))
        groups = [number for number in hoisted.values() if number > 1]
        alone = len(switches) - sum(groups)
        seconds += calls * (
            alone * costs["rotate", level]
            + len(groups) * costs["hoist", level]
            + sum(groups) * costs["rotate_hoisted", level]
        )
    return seconds


def choose_rotations(
    uses: Uses,
    model: KeyModel,
    slots: int,
    budget: int | None = None,
    required: Mapping[int, int] | None = None,
) -> RotationPlan:
    """The plan of least predicted time whose keys fit the budget, or otherwise the smallest plan.

    The choice is greedy and not always the best, see the test against all plans. Without a budget
    only keys that save no time are dropped.

    Args:
        uses: the rotations of the program.
        model: sizes and costs of keys.
        slots: slots of a ciphertext.
        budget: bytes of all rotation keys; None for no limit.
        required: amount -> level that its own key must reach.
    """
    planner = _Planner(uses, model, slots, required or {})
    planner.run(budget)
    if budget is not None:
        planner.refill(budget)
    return planner.chosen()


class _Planner:
    """The state of the greedy choice.

    Attributes:
        plain, own: seconds of all rotations by amount and level, each alone or with its own key.
        shared: seconds of rotations together with another amount on one ciphertext.
        required: amount -> level below which its key is never lowered.
        top: the highest level at which each amount is used, steps of a ``transform`` aside.
        reach: amount -> level that its key serves, −1 without a key.
        plan: the plan so far; it follows every change of ``reach`` and ``composed``.
        extra: seconds that each amount takes beyond those with its own key.
        bytes: bytes of a key by its level; the last entry is for −1.
        size: bytes of all keys.
    """

    def __init__(
        self, uses: Uses, model: KeyModel, slots: int, required: Mapping[int, int]
    ) -> None:
        self.model, self.slots, self.required, costs = model, slots, required, model.costs
        self.plain: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.own: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.shared: dict[tuple[int, int], dict[int, float]]
        self.shared = defaultdict(lambda: defaultdict(float))
        for (level, amounts), calls in uses.items():
            alone = hoisted = costs["rotate", level]
            if len(amounts) > 1:
                hoisted = costs["rotate_hoisted", level] + costs["hoist", level] / len(amounts)
            for amount in amounts:
                self.plain[amount][level] += calls * alone
                self.own[amount][level] += calls * hoisted
                for other in amounts:
                    self.shared[amount, other][level] += calls * alone
        self.top = {amount: max(levels) for amount, levels in self.plain.items()}
        self.reach = highest(self.top, required)
        self.bytes = (*model.key_bytes, 0)
        self.size = model.size(self.reach)
        # Two amounts of the bootstrap key add up to others, so all of them may serve as parts.
        pairs = combinations_with_replacement(sorted(model.bootstrap), 2)
        known = self.reach.keys() | model.bootstrap | {0}
        sums = {(first + last) % slots: (first, last) for first, last in pairs}
        self.composed = {amount: parts for amount, parts in sums.items() if amount not in known}
        self.plan = RotationPlan(self.reach, model.bootstrap, self.composed)
        self.extra = dict.fromkeys(self.top, 0.0)

    def run(self, budget: int | None) -> None:
        """Drop keys until the budget holds and no useless key is left."""
        moves = [
            (move[0], amount, level)
            for amount in self.top.keys() - self.model.free
            for level in {-1, *self.plain[amount], self.required.get(amount, -1)}
            if level >= self.required.get(amount, -1)
            and self.bytes[level] < self.bytes[self.reach[amount]]
            and (move := self._move(amount, level)) is not None
        ]
        heapq.heapify(moves)
        while moves and (moves[0][0] <= 0 or (budget is not None and self.size > budget)):
            _, amount, level = heapq.heappop(moves)
            if level >= self.reach[amount] or (move := self._move(amount, level)) is None:
                continue
            if moves and move[0] > moves[0][0]:  # other moves made it costlier
                heapq.heappush(moves, (move[0], amount, level))
            else:
                self._apply(amount, level, move[1])

    def refill(self, budget: int) -> None:
        """Spend the bytes that the last dropped key left over on keys that save most per byte."""
        while True:
            best: tuple[float, int, int, dict[int, Way]] | None = None
            for amount, reach in self.reach.items():
                for level in self.plain[amount]:
                    grown = self.bytes[level] - self.bytes[reach]
                    if 0 < grown <= budget - self.size:
                        move = self._move(amount, level)
                        if move is not None and move[0] > (0.0 if best is None else best[0]):
                            best = (move[0], amount, level, move[1])
            if best is None:
                return
            self._apply(*best[1:])

    def chosen(self) -> RotationPlan:
        """The plan without unused parts."""
        keys = {amount: level for amount, level in self.reach.items() if level >= 0}
        by_bootstrap: set[int] = set()
        composed: dict[int, tuple[int, int]] = {}
        waiting = [(amount, level) for amount in self.top for level in self.plain[amount]]
        while waiting:
            amount, level = waiting.pop()
            if self.plan.hoists(amount, level):
                continue
            if amount in self.model.bootstrap:
                by_bootstrap.add(amount)
            else:
                composed[amount] = self.composed[amount]
                waiting += [(part, level) for part in composed[amount]]
        return RotationPlan(keys, frozenset(by_bootstrap), composed)

    def _apply(self, amount: int, level: int, ways: dict[int, Way]) -> None:
        self.size += self.bytes[level] - self.bytes[self.reach[amount]]
        self.reach[amount] = level
        self.extra.update((user, seconds) for user, (seconds, _) in ways.items())
        self.composed.update((user, parts) for user, (_, parts) in ways.items() if parts)

    def _move(self, amount: int, level: int) -> tuple[float, dict[int, Way]] | None:
        """The effect of another level of a key: seconds per byte, and the new ways of its users;
        None if some user would have no way.
        """
        before = self.reach[amount]
        users = [
            (len(path), user)
            for user, top in self.top.items()
            if user != amount and amount in (path := self.plan.path(user, top))
        ]
        # Parts come before their compositions.
        affected = [amount, *(user for _, user in sorted(users))]
        kept = {user: self.composed.pop(user) for user in affected if user in self.composed}
        self.reach[amount] = level
        ways: dict[int, Way] = {}
        for user in affected:
            way = self._way(user)
            if way is None:
                break
            ways[user] = way
            if way[1] is not None:
                self.composed[user] = way[1]
        for user in ways:
            self.composed.pop(user, None)
        self.composed.update(kept)
        self.reach[amount] = before
        if len(ways) < len(affected):
            return None
        seconds = sum(seconds - self.extra[user] for user, (seconds, _) in ways.items())
        return seconds / (self.bytes[before] - self.bytes[level]), ways

    def _way(self, amount: int) -> Way | None:
        """The best way to rotate where the own key does not reach; None if there is none."""
        reach, top = self.reach[amount], self.top[amount]
        above = [level for level in self.plain[amount] if level > reach]
        plain = sum(self.plain[amount][level] for level in above)
        lost = plain - sum(self.own[amount][level] for level in above)
        if not above or amount in self.model.bootstrap:
            return lost, None
        ways = []
        for last in (*self.reach, *self.model.bootstrap):
            first = (amount - last) % self.slots
            steps = self._steps(first, top) if self._switches(last, top) else MAX_SWITCHES
            if steps < MAX_SWITCHES:
                both = self.shared.get((amount, first), {})
                anyway = sum(both.get(level, 0.0) for level in above)
                ways.append((lost + steps * (plain - anyway), (first, last)))
        return min(ways, default=None)

    def _switches(self, amount: int, level: int) -> bool:
        """Whether one key switch suffices to rotate by an amount."""
        return self.plan.hoists(amount, level) or amount in self.model.bootstrap

    def _steps(self, amount: int, level: int) -> int:
        """Number of key switches of a rotation; ``MAX_SWITCHES`` if there is no way."""
        if self._switches(amount, level):
            return 1
        first, last = self.composed.get(amount, (0, 0))
        way = first and self._switches(last, level)
        return self._steps(first, level) + 1 if way else MAX_SWITCHES
