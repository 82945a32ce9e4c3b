"""Where bootstraps go on small graphs whose answer is plain, ties, sharing, and every error."""

from __future__ import annotations

import math

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode
from atlasc.passes.lowering.placement.placement import place

CHAIN = LevelChain(6, 4, 10.0)


def chain_of(depths: list[int], level: int = 6) -> LevelGraph:
    graph = LevelGraph()
    value = graph.add(LevelNode("x", level=level))
    for index, depth in enumerate(depths):
        value = graph.add(LevelNode(f"op{index}", (value,), depth=depth))
    return graph


def residual_layers(count: int) -> LevelGraph:
    """Blocks with a fork, an entangled normalisation (its mean is read twice), and a residual."""
    graph = LevelGraph()
    x = graph.add(LevelNode("x", level=6, ciphertexts=3))
    for index in range(count):
        name = f"layer.{index}"
        total = graph.add(LevelNode(f"{name}.sum", (x,), cost=1))
        square = graph.add(LevelNode(f"{name}.square", (x,), depth=1, cost=3))
        mean = graph.add(LevelNode(f"{name}.mean2", (total, total), depth=1, cost=1))
        variance = graph.add(LevelNode(f"{name}.variance", (square, mean), cost=1))
        inverse = graph.add(LevelNode(f"{name}.invsqrt", (variance,), depth=3, cost=9))
        centred = graph.add(LevelNode(f"{name}.centre", (x, total), cost=1, ciphertexts=3))
        y = graph.add(
            LevelNode(f"{name}.product", (centred, inverse), depth=1, cost=3, ciphertexts=3)
        )
        x = graph.add(LevelNode(f"{name}.add", (x, y), cost=1, ciphertexts=3))
    return graph


def test_no_bootstrap_where_the_levels_suffice() -> None:
    found = place(chain_of([2, 3, 1]), CHAIN)
    assert found.bootstraps == {} and found.cost == 0
    assert found.entry_levels == (6, 6, 4, 1)
    assert found.result_levels == (6, 4, 1, 0)


def test_equally_cheap_bootstraps_come_late() -> None:
    found = place(chain_of([1, 1, 1, 1], level=2), CHAIN)
    assert found.bootstraps == {2: 4}
    above = [found.entry_levels[i + 1] > found.result_levels[i] for i in range(4)]
    assert above == [False, False, True, False]  # only the third reads a bootstrapped value
    assert found.entry_levels == (2, 2, 1, 2, 1)


def test_free_bootstraps_are_not_wasted() -> None:
    found = place(chain_of([2, 2, 2, 2, 2]), LevelChain(6, 6, 0.0))
    assert found.bootstrap_count == 1


def test_bootstrap_goes_where_the_tensor_is_narrow() -> None:
    graph = LevelGraph()
    x = graph.add(LevelNode("scores", level=3, ciphertexts=6))
    square = graph.add(LevelNode("square", (x, x), depth=1, ciphertexts=6))
    total = graph.add(LevelNode("sum", (square,), ciphertexts=1))
    inverse = graph.add(LevelNode("invsqrt", (total,), depth=3, ciphertexts=1))
    graph.add(LevelNode("product", (inverse, x), depth=1, ciphertexts=6))
    found = place(graph, CHAIN)
    assert found.bootstraps == {total: 4}
    assert found.bootstrap_count == 1 and found.cost == 10


def test_one_bootstrap_serves_all_uses_that_need_it_and_only_those() -> None:
    graph = LevelGraph()
    x = graph.add(LevelNode("x", level=1))
    q = graph.add(LevelNode("q", (x,), depth=3))
    k = graph.add(LevelNode("k", (x,), depth=3))
    scores = graph.add(LevelNode("scores", (q, k), depth=1))
    add = graph.add(LevelNode("add", (scores, x)))
    found = place(graph, CHAIN)
    assert found.bootstraps == {x: 4} and found.cost == 10
    assert min(found.entry_levels[q], found.entry_levels[k]) > found.result_levels[x]
    assert found.entry_levels[add] <= min(found.result_levels[scores], found.result_levels[x])


def test_costs_by_level_decide_between_bootstraps() -> None:
    graph = LevelGraph()
    x = graph.add(LevelNode("x", level=0))
    y = graph.add(LevelNode("deep", (x,), depth=2, cost=(0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)))
    graph.add(LevelNode("last", (y,), depth=2, cost=(0, 0, 1, 2, 3, 4, 5)))
    once = place(graph, LevelChain(6, 4, 12.0))
    assert once.bootstraps == {x: 4} and once.cost == 12 + 8 + 1
    twice = place(graph, LevelChain(6, 4, 1.0))
    assert twice.bootstraps == {x: 4, y: 4} and twice.cost == 2 + 4 + 1


def test_equal_layers_share_their_tables() -> None:
    tables = [place(residual_layers(n), CHAIN).method.tables for n in (4, 8, 12)]
    assert tables[1] - tables[0] == tables[2] - tables[1]
    assert (tables[2] - tables[1]) / 4 <= 6  # a layer of 8 operations adds only its joints
    found = place(residual_layers(12), CHAIN)
    assert found.method.widest == 3
    assert "up to 3 neighbours" in str(found.method)


def test_too_deep_a_node_is_named_with_its_depth_and_the_levels() -> None:
    with pytest.raises(AtlasError) as caught:
        place(chain_of([2, 5]), CHAIN)
    text = str(caught.value)
    assert "op1 needs 5 levels, but at most 4 are available" in text
    assert "levels 0 to 6" in text and "returns to 4" in text
    with pytest.raises(AtlasError, match="there are no bootstraps"):
        place(chain_of([4, 3]), LevelChain(6))


def test_an_input_above_the_chain_is_named() -> None:
    with pytest.raises(AtlasError, match="input x is encrypted at level 7"):
        place(chain_of([1], level=7), CHAIN)


def test_a_node_that_runs_at_no_level_is_named() -> None:
    graph = LevelGraph()
    graph.add(
        LevelNode(
            "op", (graph.add(LevelNode("x", level=2)),), depth=1, cost=(math.inf,) * 3 + (1.0,) * 4
        )
    )
    with pytest.raises(AtlasError, match="op cannot run at any level from 1 to 2"):
        place(graph, LevelChain(6))


def test_an_entangled_graph_beyond_the_limit_is_named() -> None:
    graph = LevelGraph()
    values = [graph.add(LevelNode("x", level=6))]
    values += [graph.add(LevelNode(f"v{i}", (values[0],), cost=tuple(range(7)))) for i in range(6)]
    for i, first in enumerate(values[1:]):
        for second in values[i + 2 :]:
            graph.add(
                LevelNode(
                    f"join{first}{second}", (first, second), depth=2, cost=tuple(range(6, -1, -1))
                )
            )
    with pytest.raises(AtlasError, match="cannot be placed exactly") as caught:
        place(graph, CHAIN, table_limit=20)
    assert caught.value.where in {node.name for node in graph.nodes}
    assert "the limit is 20" in str(caught.value)
    assert place(graph, CHAIN).bootstraps == {}


@pytest.mark.parametrize("cost", [-1.0, math.nan, (1.0, 2.0)])
def test_wrong_costs_are_refused(cost: float | tuple[float, ...]) -> None:
    graph = LevelGraph()
    graph.add(LevelNode("op", (graph.add(LevelNode("x", level=2)),), cost=cost))
    with pytest.raises(ValueError, match="node op has"):
        place(graph, CHAIN)
