"""Which amounts get a rotation key of their own, and at which level, under a budget of memory.

Every amount starts with a key at the highest level of its use. Then keys are given up, or lowered
to a level that serves only part of the uses, always where that costs the fewest seconds for a byte,
until the budget holds. An amount without a key is rotated with the bootstrap key, if that has the
amount. Otherwise it is composed of two rotations, of which the first may be composed itself.

Compositions are looked up as sums of two amounts, without a graph. A networkx graph of 8,192
amounts and 40 keys takes 0.9 s to build; programs have 32,768 amounts and some 150 keys, and the
greedy choice changes the keys thousands of times.

A composed rotation is no longer hoisted. But other rotations of the same ciphertext (baby steps)
often need its first part anyway, and then it still is one key switch.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement

from atlasc.program.costs import PrimitiveCosts
from atlasc.program.rotation_plan import RotationPlan

MAX_SWITCHES = 3
"""Key switches of a composed rotation at most."""

Uses = Mapping[tuple[int, tuple[int, ...]], int]
"""(level, amounts of one ciphertext) -> calls. Amounts are to the left, 0 < amount < slots."""
Way = tuple[float, tuple[int, int] | None]
"""How an amount is rotated where its own key does not reach: seconds beyond those of a key, and the
parts if it is composed."""


@dataclass(frozen=True)
class KeyModel:
    """What keys cost on a backend.

    Attributes:
        key_bytes: size of a rotation key by the level that it serves, from 0 on.
        costs: seconds of ``rotate``, ``rotate_hoisted`` and ``hoist`` by level.
        bootstrap: amounts by which the bootstrap key rotates, without a key of their own.
        free: amounts whose keys are there anyway and reach every level.
    """

    key_bytes: tuple[int, ...]
    costs: PrimitiveCosts
    bootstrap: frozenset[int] = frozenset()
    free: frozenset[int] = frozenset()

    def size(self, keys: Mapping[int, int]) -> int:
        """Bytes of keys, amount -> level, without those that are free."""
        return sum(self.key_bytes[at] for amount, at in keys.items() if amount not in self.free)


def rotation_seconds(uses: Uses, plan: RotationPlan, costs: PrimitiveCosts) -> float:
    """Seconds of all rotations under a plan, as `PlannedEngine` makes them."""
    seconds = 0.0
    for (level, amounts), calls in uses.items():
        paths = (plan.path(amount, level) for amount in amounts)
        # Paths share beginnings; each beginning ends with a key switch of its own.
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
    uses: Uses, model: KeyModel, slots: int, budget: int | None = None
) -> RotationPlan:
    """The plan of least predicted time whose keys fit the budget, or else the smallest one.

    Greedy: not always the best plan, see the test against all plans. Without a budget only those
    keys are left out that save no time.

    Args:
        uses: the rotations of the program.
        model: sizes and costs.
        slots: of a ciphertext.
        budget: bytes of all rotation keys.
    """
    planner = _Planner(uses, model, slots)
    planner.run(budget)
    if budget is not None:
        planner.refill(budget)
    return planner.chosen()


class _Planner:
    """The state of the greedy choice.

    Attributes:
        plain, own: seconds of all rotations by amount and level, each alone or with its own key.
        shared: seconds of those together with another amount on one ciphertext.
        top: the highest level at which each amount is used.
        reach: amount -> level that its key serves, −1 without one.
        plan: the plan so far; it sees every change of ``reach`` and ``composed``.
        extra: seconds that each amount takes beyond those of an own key.
        bytes: of a key by its level, the last one for −1.
        size: bytes of the keys.
    """

    def __init__(self, uses: Uses, model: KeyModel, slots: int) -> None:
        self.model, self.slots, costs = model, slots, model.costs
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
        self.reach = dict(self.top)
        self.bytes = (*model.key_bytes, 0)
        self.size = model.size(self.reach)
        # Sums of two of the bootstrap key's amounts are ways to others, whether used or not.
        pairs = combinations_with_replacement(sorted(model.bootstrap), 2)
        known = self.top.keys() | model.bootstrap | {0}
        sums = {(first + last) % slots: (first, last) for first, last in pairs}
        self.composed = {amount: parts for amount, parts in sums.items() if amount not in known}
        self.plan = RotationPlan(self.reach, model.bootstrap, self.composed)
        self.extra = dict.fromkeys(self.top, 0.0)

    def run(self, budget: int | None) -> None:
        """Give up keys until the budget holds and no key is kept for nothing."""
        moves = [
            (move[0], amount, level)
            for amount in self.top.keys() - self.model.free
            for level in {-1, *self.plain[amount]}
            if self.bytes[level] < self.bytes[self.top[amount]]
            and (move := self._move(amount, level)) is not None
        ]
        heapq.heapify(moves)
        while moves and (moves[0][0] <= 0 or (budget is not None and self.size > budget)):
            _, amount, level = heapq.heappop(moves)
            if level >= self.reach[amount] or (move := self._move(amount, level)) is None:
                continue
            if moves and move[0] > moves[0][0]:  # made dearer by other moves
                heapq.heappush(moves, (move[0], amount, level))
            else:
                self._apply(amount, level, move[1])

    def refill(self, budget: int) -> None:
        """Spend what the last key left over on keys that save most for a byte."""
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
        """The plan without what nobody needs."""
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
        """What another level of a key changes: seconds a byte, and the ways of its users; None
        where some have none.
        """
        before = self.reach[amount]
        users = [
            (len(path), user)
            for user, top in self.top.items()
            if user != amount and amount in (path := self.plan.path(user, top))
        ]
        affected = [amount, *(user for _, user in sorted(users))]  # parts before what they compose
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
        """The best way to rotate where the own key does not reach; None where there is none."""
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
        """Whether one key switch rotates by an amount."""
        return self.plan.hoists(amount, level) or amount in self.model.bootstrap

    def _steps(self, amount: int, level: int) -> int:
        """Key switches of a rotation; ``MAX_SWITCHES`` where there is no way."""
        if self._switches(amount, level):
            return 1
        first, last = self.composed.get(amount, (0, 0))
        way = first and self._switches(last, level)
        return self._steps(first, level) + 1 if way else MAX_SWITCHES
