"""Placement against brute force: every entry level, every bootstrap on every trunk and branch."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from functools import cache

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode, Way
from atlasc.passes.lowering.placement.placement import Placement, place

Value = tuple[int, bool, bool]
"""Ciphertexts of a value, whether it may be bootstrapped, and whether its slots repeat."""


def cost_of(chain: LevelChain, ciphertexts: int, narrow: bool, level: int) -> float:
    """Of pairs, triples, and so on, and of what is left over, to a level that bootstraps end at."""

    def at(cost: float | tuple[float, ...]) -> float:
        return cost[level] if isinstance(cost, tuple) else cost

    if narrow and chain.narrow_cost is not None:
        return ciphertexts * at(chain.narrow_cost)
    whole = ciphertexts // chain.bootstrap_batch
    over = ciphertexts > whole * chain.bootstrap_batch
    one = chain.bootstrap_cost if chain.one_cost is None else chain.one_cost
    return whole * at(chain.bootstrap_cost) + over * at(one)


def calls_of(chain: LevelChain, ciphertexts: int, narrow: bool) -> int:
    """A narrow bootstrap is of one ciphertext."""
    if narrow and chain.narrow_cost is not None:
        return ciphertexts
    return math.ceil(ciphertexts / chain.bootstrap_batch)


def brute_force(graph: LevelGraph, chain: LevelChain) -> tuple[float, int]:
    """Least (cost, bootstraps); cost is inf where nothing is possible.

    Tries all combinations of entry levels; for each value then every level of the trunk, reached by
    dropping or by a bootstrap, and on every use again a drop or a bootstrap of its own.
    """
    ends = () if chain.bootstrap_level is None else (*chain.landings, chain.bootstrap_level)
    levels = range(chain.max_level + 1)
    impossible = (math.inf, 0)

    @cache
    def edge(level: int, value: Value, use: int) -> tuple[float, int]:
        ciphertexts, refreshable, narrow = value
        options = [(0.0, 0)] if level >= use else []
        if refreshable and chain.lowest <= level:
            calls = calls_of(chain, ciphertexts, narrow)
            reach = [end for end in ends if end >= use]
            options += [(cost_of(chain, ciphertexts, narrow, end), calls) for end in reach]
        return min(options, default=impossible)

    @cache
    def value_cost(result: int, value: Value, uses: tuple[int, ...]) -> tuple[float, int]:
        best = impossible
        for trunk in levels:
            edges = [edge(result, value, trunk)]
            edges += [edge(trunk, value, use) for use in uses]
            best = min(best, (sum(c for c, _ in edges), sum(n for _, n in edges)))
        return best

    operations = [i for i, node in enumerate(graph.nodes) if node.level is None]
    readers: list[list[int]] = [[] for _ in graph.nodes]  # once per operand: parallel edges count
    for index, node in enumerate(graph.nodes):
        for operand in node.operands:
            readers[operand].append(index)
    costs = [
        [node.cost_at(i) if i >= node.depth and node.level is None else math.inf for i in levels]
        for node in graph.nodes
    ]
    best = impossible
    for choice in itertools.product(
        *([i for i in levels if costs[n][i] < math.inf] for n in operations)
    ):
        entry = dict(zip(operations, choice, strict=True))
        total = (0.0, 0)
        for index, node in enumerate(graph.nodes):
            if node.level is None:
                total = (total[0] + costs[index][entry[index]], total[1])
                result = entry[index] - node.depth
            else:
                result = node.level
            uses = tuple(sorted(entry[user] for user in readers[index]))
            if not uses and node.level is None:
                uses = (0,)
            value = value_cost(result, (node.ciphertexts, node.refreshable, node.narrow), uses)
            total = (total[0] + value[0], total[1] + value[1])
            if total >= best:
                break
        best = min(best, total)
    return best


def replay(graph: LevelGraph, chain: LevelChain, found: Placement) -> tuple[float, int]:
    """Check that a placement is legal, and what it costs: (cost, bootstraps)."""
    cost, count = 0.0, 0
    used = set()
    for index, node in enumerate(graph.nodes):
        entry = found.entry_levels[index]
        for operand in node.operands:
            refreshed = entry > found.result_levels[operand]
            levels = found.bootstraps if refreshed else found.result_levels
            assert levels[operand] >= entry
            used |= {operand} if refreshed else set()
        if node.level is not None:
            assert entry == node.level
        else:
            cost += node.cost_at(entry)
        assert found.result_levels[index] == entry - node.depth >= 0
        if index in found.bootstraps:
            assert node.refreshable
            assert found.result_levels[index] >= chain.lowest
            level = found.bootstraps[index]
            assert level in (*chain.landings, chain.bootstrap_level)
            calls = calls_of(chain, node.ciphertexts, node.narrow)
            cost += cost_of(chain, node.ciphertexts, node.narrow, level)
            count += calls
    assert set(found.bootstraps) <= used, "a bootstrap that nothing reads"
    return cost, count


def random_chain(rng: random.Random, max_level: int) -> LevelChain:
    """Half of the chains with bootstraps that may end lower, which takes less."""
    top = rng.choice([None, *range(1, max_level + 1)])
    landings = tuple(at for at in range(top or 0) if rng.random() < 0.4)

    def landing(cost: int) -> float | tuple[float, ...]:
        steps = sorted(rng.randint(0, cost) for _ in range(top or 0))
        return (*steps, cost) if landings and rng.random() < 0.8 else cost

    one, narrow = rng.choice([None, 0, 3, 16]), rng.choice([None, 0, 2, 12])
    return LevelChain(
        max_level,
        top,
        landing(rng.choice([0, 1, 4, 9, 20, 50])),
        rng.choice([1, 2, 2, 3]),
        None if one is None else landing(one),
        None if narrow is None else landing(narrow),
        rng.choice([0, 0, 1, 2]),
        landings if rng.random() < 0.7 else (),
    )


class RandomGraph:
    """Grows a graph of at most `operations` operations with random depths, costs and widths; a
    share `closed` of the results may not be bootstrapped.
    """

    def __init__(
        self, rng: random.Random, max_level: int, operations: int, closed: float = 0.0
    ) -> None:
        self.rng, self.max_level, self.left = rng, max_level, operations
        self.closed = closed
        self.graph = LevelGraph()

    def input(self) -> int:
        level = self.rng.randint(max(0, self.max_level - 2), self.max_level)
        return self.graph.add(
            LevelNode(f"x{len(self.graph.nodes)}", level=level, ciphertexts=self.rng.randint(1, 3))
        )

    def operation(self, *operands: int) -> int:
        rng = self.rng
        self.left -= 1
        kind = rng.randint(0, 3)
        costs = [rng.randint(0, 9) for _ in range(self.max_level + 1)]
        cost = rng.randint(0, 9) if kind == 0 else sorted(costs) if kind == 1 else costs
        if kind == 2 and rng.random() < 0.3:
            cost = [*costs[:-1], math.inf]
        depth = rng.choice([0, 0, 1, 1, 1, 2, 3])
        return self.graph.add(
            LevelNode(
                f"n{len(self.graph.nodes)}",
                operands,
                depth=depth,
                cost=cost if isinstance(cost, int) else tuple(cost),
                ciphertexts=rng.randint(1, 4),
                refreshable=not self.closed or rng.random() > self.closed,
                narrow=len(self.graph.nodes) % 3 == 0,
            )
        )

    def block(self, x: int) -> int:
        """A series-parallel piece with one way in and one way out."""
        if self.left <= 1:
            return x
        kind = self.rng.choice(["series", "fork", "fork", "residual", "square", "one", "join"])
        if kind == "series":
            return self.block(self.block(x))
        if kind == "fork":
            self.left -= 1  # for the join
            ends = [self.block(x) for _ in range(self.rng.randint(2, 3))]
            self.left += 1
            return self.operation(*ends)
        if kind == "residual":
            self.left -= 1
            end = self.block(x)
            self.left += 1
            return self.operation(end, x)
        if kind == "join":
            return self.operation(self.input(), x)
        return self.operation(x, x) if kind == "square" else self.operation(x)

    def series_parallel(self) -> LevelGraph:
        x = self.input()
        while self.left > 1:
            x = self.block(x)
        self.operation(x)
        return self.graph

    def any_dag(self) -> LevelGraph:
        values = [self.input() for _ in range(self.rng.randint(1, 3))]
        while self.left:
            recent = values[-4:]
            values.append(self.operation(*self.rng.choices(recent, k=self.rng.randint(1, 3))))
        return self.graph


def check_against_brute_force(graph: LevelGraph, chain: LevelChain) -> Placement | None:
    """The placement, after comparison; None where both find that there is none."""
    cost, count = brute_force(graph, chain)
    if cost == math.inf:
        with pytest.raises(AtlasError, match="level"):
            place(graph, chain)
        return None
    found = place(graph, chain)
    assert (found.cost, found.bootstrap_count) == (cost, count)
    assert replay(graph, chain, found) == (cost, count)
    return found


@pytest.mark.parametrize("batch", range(6))
def test_series_parallel_graphs_equal_brute_force(batch: int) -> None:
    solved = bootstrapped = impossible = 0
    rng = random.Random(batch)
    while solved < 90:
        max_level = rng.randint(2, 4)
        graph = RandomGraph(rng, max_level, rng.randint(3, 6)).series_parallel()
        found = check_against_brute_force(graph, random_chain(rng, max_level))
        if found is None:
            impossible += 1
            continue
        solved += 1
        bootstrapped += bool(found.bootstraps)
        assert found.method.widest <= 2
    assert bootstrapped >= 25 and impossible >= 10


def test_any_graph_equals_brute_force() -> None:
    entangled = 0
    for seed in range(150):
        rng = random.Random(seed)
        max_level = rng.randint(2, 4)
        graph = RandomGraph(rng, max_level, rng.randint(4, 6)).any_dag()
        found = check_against_brute_force(graph, random_chain(rng, max_level))
        entangled += found is not None and found.method.widest > 2
    assert entangled >= 8


@pytest.mark.parametrize("kind", ["series_parallel", "any_dag"])
def test_values_that_may_not_be_bootstrapped_equal_brute_force(kind: str) -> None:
    solved = dearer = 0
    for seed in range(150):
        rng = random.Random(seed)
        max_level = rng.randint(2, 4)
        graph = getattr(RandomGraph(rng, max_level, rng.randint(3, 5), 0.4), kind)()
        chain = LevelChain(max_level, max_level - 1, rng.randint(1, 9))
        found = check_against_brute_force(graph, chain)
        if found is not None and found.bootstraps:
            opened = LevelGraph([replace(node, refreshable=True) for node in graph.nodes])
            solved += 1
            dearer += place(opened, chain).cost < found.cost
    assert solved >= 30 and dearer >= 3


def test_every_way_to_do_an_operation_is_weighed() -> None:
    """The best placement of all graphs in which each node is done in one of its ways."""
    taken = left = 0
    for seed in range(120):
        rng = random.Random(seed)
        max_level = rng.randint(2, 4)
        graph = RandomGraph(rng, max_level, rng.randint(3, 5)).any_dag()
        nodes = list(graph.nodes)
        operations = [i for i, node in enumerate(nodes) if node.level is None]
        for index in rng.sample(operations, 2):
            costs = tuple(rng.randint(0, 9) for _ in range(max_level + 1))
            other = Way(nodes[index].depth + rng.randint(0, 1), costs)
            nodes[index] = replace(nodes[index], other=other)
        chain = random_chain(rng, max_level)
        every = [LevelGraph([*way]) for way in itertools.product(*(node.ways for node in nodes))]
        cost, count = min(brute_force(one, chain) for one in every)
        if cost == math.inf or brute_force(every[0], chain)[0] == math.inf:
            continue
        found = place(LevelGraph(nodes), chain)
        assert (found.cost, found.bootstrap_count) == (cost, count)
        done = [node.ways[-1 if i in found.others else 0] for i, node in enumerate(nodes)]
        assert replay(LevelGraph(done), chain, found) == (cost, count)
        taken += len(found.others)
        left += len(found.others) < 2
    assert taken >= 30 and left >= 30


def test_measured_costs_agree_to_rounding() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        grown = RandomGraph(rng, 4, 5)
        graph = grown.series_parallel()
        chain = LevelChain(4, 3, rng.uniform(20, 40))
        scaled = LevelGraph()
        for node in graph.nodes:
            if node.level is not None:
                scaled.add(LevelNode(node.name, level=node.level, ciphertexts=node.ciphertexts))
                continue
            costs = [rng.expovariate(0.3) for _ in range(5)]
            scaled.add(
                LevelNode(
                    node.name, node.operands, depth=node.depth, cost=tuple(costs), ciphertexts=2
                )
            )
        best, _ = brute_force(scaled, chain)
        if best < math.inf:
            assert place(scaled, chain).cost == pytest.approx(best, rel=1e-9)
