"""Print how long bootstrap placement takes for Transformers of 6 to 48 layers.

Each layer has packed ciphertexts as BERT-base has them (768 wide, 128 tokens, 32,768 slots), five
softmax iterations, and two layer norms of degree 511; figures per op are plausible, not measured.
Run: python benchmarks/placement.py
"""

from __future__ import annotations

import time

from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode
from atlasc.passes.lowering.placement.placement import place

TOP = 29
"""The highest level."""
STREAM, HIDDEN, SCORES, NARROW = 3, 12, 6, 1
"""Ciphertexts of the residual stream, the feed-forward layer, the scores, a sum."""


def rising(seconds: float) -> tuple[float, ...]:
    """A cost that grows with the level that an operation is entered at."""
    return tuple(seconds * (1 + level) / 15 for level in range(TOP + 1))


LINEAR, PRODUCT, SUM, DEEP, CHEAP = (rising(s) for s in (9.0, 0.6, 1.2, 12.0, 0.05))


def layer_norm(graph: LevelGraph, x: int, name: str, *, entangled: bool) -> int:
    """(x - mean) * invsqrt(variance); entangled: the mean is computed once for both."""
    total = graph.add(LevelNode(f"{name}.sum", (x,), cost=SUM, ciphertexts=NARROW))
    square = graph.add(LevelNode(f"{name}.square", (x,), depth=1, cost=PRODUCT, ciphertexts=STREAM))
    squares = graph.add(LevelNode(f"{name}.squares", (square,), cost=SUM, ciphertexts=NARROW))
    mean = graph.add(LevelNode(f"{name}.mean2", (total, total), depth=1, cost=PRODUCT))
    variance = graph.add(LevelNode(f"{name}.variance", (squares, mean), cost=CHEAP))
    inverse = graph.add(LevelNode(f"{name}.invsqrt", (variance,), depth=9, cost=DEEP))
    if not entangled:
        total = graph.add(LevelNode(f"{name}.mean", (x,), cost=SUM, ciphertexts=NARROW))
    centred = graph.add(LevelNode(f"{name}.centre", (x, total), cost=CHEAP, ciphertexts=STREAM))
    return graph.add(
        LevelNode(f"{name}.product", (centred, inverse), depth=1, cost=PRODUCT, ciphertexts=STREAM)
    )


def softmax(graph: LevelGraph, scores: int, name: str) -> int:
    """Nodes of the iterative softmax `is`; the last one."""
    y = graph.add(LevelNode(f"{name}.exp", (scores,), depth=4, cost=DEEP, ciphertexts=SCORES))
    for j, degree in enumerate((5, 5, 5, 5, 7)):
        step = f"{name}.{j}"
        square = graph.add(
            LevelNode(f"{step}.square", (y,), depth=1, cost=PRODUCT, ciphertexts=SCORES)
        )
        total = graph.add(LevelNode(f"{step}.sum", (square,), cost=SUM, ciphertexts=NARROW))
        inverse = graph.add(LevelNode(f"{step}.invsqrt", (total,), depth=degree, cost=DEEP))
        y = graph.add(
            LevelNode(f"{step}.mul", (inverse, y), depth=1, cost=PRODUCT, ciphertexts=SCORES)
        )
        y = graph.add(LevelNode(f"{step}.out", (y,), depth=1, cost=PRODUCT, ciphertexts=SCORES))
    return y


def layer(graph: LevelGraph, x: int, name: str, *, entangled: bool) -> int:
    """Nodes of a post-norm block; the last one."""
    q, k, v = (
        graph.add(LevelNode(f"{name}.{p}", (x,), depth=1, cost=LINEAR, ciphertexts=STREAM))
        for p in "qkv"
    )
    scores = graph.add(LevelNode(f"{name}.qk", (q, k), depth=2, cost=LINEAR, ciphertexts=SCORES))
    weights = softmax(graph, scores, f"{name}.softmax")
    context = graph.add(
        LevelNode(f"{name}.av", (weights, v), depth=2, cost=LINEAR, ciphertexts=STREAM)
    )
    dense = graph.add(
        LevelNode(f"{name}.dense", (context,), depth=1, cost=LINEAR, ciphertexts=STREAM)
    )
    x = graph.add(LevelNode(f"{name}.add1", (dense, x), cost=CHEAP, ciphertexts=STREAM))
    x = layer_norm(graph, x, f"{name}.norm1", entangled=entangled)
    hidden = graph.add(LevelNode(f"{name}.up", (x,), depth=1, cost=LINEAR, ciphertexts=HIDDEN))
    hidden = graph.add(LevelNode(f"{name}.gelu", (hidden,), depth=9, cost=DEEP, ciphertexts=HIDDEN))
    down = graph.add(LevelNode(f"{name}.down", (hidden,), depth=1, cost=LINEAR, ciphertexts=STREAM))
    x = graph.add(LevelNode(f"{name}.add2", (down, x), cost=CHEAP, ciphertexts=STREAM))
    return layer_norm(graph, x, f"{name}.norm2", entangled=entangled)


def transformer(layers: int, *, entangled: bool) -> LevelGraph:
    """A stack of equal blocks."""
    graph = LevelGraph()
    x = graph.add(LevelNode("x", level=TOP, ciphertexts=STREAM))
    for index in range(layers):
        x = layer(graph, x, f"layer.{index}", entangled=entangled)
    return graph


def main() -> None:
    """Print the time of a placement for several numbers of layers."""
    chain = LevelChain(TOP, 14, 33.0)
    place(transformer(1, entangled=True), chain)
    print("layers  nodes  bootstraps   milliseconds  method")
    for entangled in (False, True):
        for layers in (6, 12, 24, 48):
            graph = transformer(layers, entangled=entangled)
            start = time.perf_counter()
            found = place(graph, chain)
            milliseconds = 1000 * (time.perf_counter() - start)
            print(
                f"{layers:6}  {len(graph.nodes):5}  {found.bootstrap_count:10}"
                f"  {milliseconds:13.1f}  {found.method}"
            )


if __name__ == "__main__":
    main()
