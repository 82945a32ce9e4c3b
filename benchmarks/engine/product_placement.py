"""What products of plain matrices before bootstraps (docs/blas.md) would do to a whole program.

    python -m benchmarks.engine.product_placement examples/configs/llama3-8b --target cuda

The placement may take a linear layer and the bootstrap of its result as one: SlotsToCoeffs of the
operand, the product on coefficients, and the rest of the bootstrap for the result. It is solved
with and without that choice, for the least predicted seconds. Nothing of it is in the compiler.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.compilation.single_stages import bare_module
from atlasc.compilation.stage_options import InspectOptions
from atlasc.ir.module import Op
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.placement.elimination import Factors
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode
from atlasc.passes.lowering.placement.min_plus import Pieces, Table
from atlasc.progress import silent
from atlasc.targets import find_target
from benchmarks.lowering import before_placement

ENTRY = 4
"""Least level of the operand: three levels of SlotsToCoeffs, and one of the product."""
SIDE, TOKENS = 4096, 128


class Price(NamedTuple):
    """Seconds of parts of a product for 4096 features in and out, 128 tokens."""

    matrices: float
    before: float
    after: float
    to_coefficients: float

    def of(self, features: tuple[int, int], pairs: tuple[int, int]) -> float:
        """Seconds of a layer beside the bootstraps of its result.

        Args:
            features: of the operand and of the result.
            pairs: ciphertexts of both, two real ones as a complex one; StC is done for those of the
                operand, and the price of the result's bootstraps has that of the result.
        """
        given, made = (count / SIDE for count in features)
        switches = self.before * given + self.after * made
        return (
            self.matrices * given * made + switches + self.to_coefficients * (pairs[0] - pairs[1])
        )


PRICES = {
    "cpu": Price(1.08, 0.03, 0.27, 0.05),
    "cuda": Price(0.03, 0.001, 0.015, 0.002),
}
"""``cpu``: two cores, half of the core seconds of docs/blas.md. ``cuda``: assumed; 5.6e11 FLOP in
double precision at 2e13 a second, and 256 key switches at level 0 of 60 µs."""


class WithProducts(Pieces):
    """Tables in which some nodes may also be products, with the bootstrap of their result."""

    products: dict[LevelNode, float]

    def of_node(self, node: LevelNode, read: bool) -> int:
        """See `Pieces.of_node`."""
        if node not in self.products or not read:
            return super().of_node(node, read)
        key = node.cost, node.ciphertexts, node.depth, node.refreshable, self.products[node]
        return self.intern(("product", *key), lambda: self._either(node))

    def _either(self, node: LevelNode) -> Table:
        top, bootstraps = self.chain.bootstrap_level, self.chain.bootstraps(node)
        assert top is not None, "a product ends in a bootstrap"
        costs = np.full((self.levels, self.levels), np.inf)
        costs[ENTRY:, : top + 1] = [
            self.products[node] + self.chain.cost_of(node, level) for level in range(top + 1)
        ]
        return np.minimum(self._node(node, True), self._encode(costs, bootstraps))


class Chosen(NamedTuple):
    """A placement: its seconds, those of linear layers and of bootstraps, and its products."""

    seconds: float
    linear: float
    bootstraps: float
    products: list[str]


def solve(graph: LevelGraph, chain: LevelChain, products: dict[LevelNode, float]) -> Chosen:
    """The cheapest placement in which some nodes may be products."""
    pieces = WithProducts.of(graph, chain)
    pieces.products = products
    factors = Factors(graph, pieces)
    levels = factors.recover(factors.reduce())
    entries = [
        levels[variable] if variable is not None else node.level or 0
        for variable, node in zip(factors.entry, graph.nodes, strict=True)
    ]
    total = linear = bootstraps = 0.0
    taken = []
    for index, (node, users) in enumerate(zip(graph.nodes, graph.uses(), strict=True)):
        highest = max((entries[user] for user in users), default=0)
        given = node.level is not None
        result = entries[index] - (0 if given else node.depth)
        own = 0.0 if given else node.cost_at(entries[index])
        after = chain.cost_of(node, highest) if highest > result else 0.0
        possible = highest <= result or (node.refreshable and result >= chain.lowest)
        if node in products and users and entries[index] >= ENTRY:
            refreshed = chain.cost_of(node, highest)
            if products[node] + refreshed < (own + after if possible else math.inf):
                own, after = products[node], refreshed
                taken.append(node.name)
        total += own + after
        bootstraps += after
        linear += own if node.name.startswith("ckks.linear") else 0.0
    return Chosen(total, linear, bootstraps, taken)


def layers_of(nodes: dict[Op, int], graph: LevelGraph, price: Price) -> dict[LevelNode, float]:
    """The linear layers whose results may be bootstrapped, and what each takes as a product."""
    found = {}
    for op, index in nodes.items():
        node = graph.nodes[index]
        if op.name == "ckks.linear_transform" and node.refreshable and not node.narrow:
            sides = op.operands[0].ciphertext, op.value.ciphertext
            features = tuple(one.ciphertexts * one.layout.slots // TOKENS for one in sides)
            pairs = tuple(-(-one.ciphertexts // 2) for one in sides)
            found[node] = price.of((features[0], features[1]), (pairs[0], pairs[1]))
    return found


def main() -> None:
    """Print both placements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--recipe", default="is")
    parser.add_argument("--target", choices=PRICES, default="cpu")
    given = parser.parse_args()
    bare = bare_module(given.config, InspectOptions(sequence_length=TOKENS), silent)
    approximated = apply_recipe(bare, given.recipe, nominal_calibration(bare))
    latency = LatencyTarget.of(find_target(given.target))
    module, goal = before_placement(approximated, latency, features_low=True)
    step = PlaceBootstraps.for_goal(goal)
    graph, nodes = step.graph(module)
    layers = layers_of(nodes, graph, PRICES[given.target])
    for name, products in (("as compiled", {}), ("with products", layers)):
        chosen = solve(graph, step.chain, products)
        print(
            f"{name}: {chosen.seconds:.1f} s, linear layers {chosen.linear:.1f}, bootstraps "
            f"{chosen.bootstraps:.1f}; {len(chosen.products)} of {len(layers)} layers are products"
        )


if __name__ == "__main__":
    main()
