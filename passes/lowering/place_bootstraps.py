"""``place-bootstraps``: a level for every value, and bootstraps where they cost least, as long as
what their errors do to the outputs is tolerated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.types import CiphertextType
from atlasc.passes.analyses.depths import levels_of
from atlasc.passes.analyses.noise_gains import bootstrap_change
from atlasc.passes.costs.op_costs import OpCosts, PrimitiveCosts
from atlasc.passes.framework.analysis import MAGNITUDES, NOISE_GAINS
from atlasc.passes.framework.goal import Goal
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter
from atlasc.passes.lowering.placement import LevelChain, LevelGraph, Placement, place

RANGE = 1.0
"""A bootstrap is right for slots in [−1, 1]."""
FEWEST = 2.0**20
"""Seconds that a bootstrap costs on top where the fewest are wanted: more than one could save."""
TOLERANCE = 1e-3
"""Change of the outputs by the errors of all bootstraps that is tolerated where another placement
has less: root mean square, in units of the outputs' own."""
DEARER = 1.25
"""The cost of a placement with less error over that of the cheapest one, at most."""


@dataclass(frozen=True)
class PlaceBootstraps(Pass):
    """Choose the level of every op exactly by a (min,+) program over levels.

    Attributes:
        levels: levels that a bootstrap leaves, or all levels of a chain without bootstraps.
        bootstrap: whether the backend can bootstrap.
        batch: ciphertexts of one value that one bootstrap refreshes.
        costs: seconds of each primitive at each level. With them the least predicted time is
            wanted, without them the fewest bootstraps: the table in which nothing else costs.
        fewest: with costs: of all placements with the fewest bootstraps the one of least time.
        error: standard deviation of what a bootstrap adds to each slot. With it, and where values
            carry a ``noise_gain``, no value is bootstrapped whose error the outputs would show
            too much of.
        cubic: a bootstrap takes this times its cube off the mean of a value.
    """

    name = "place-bootstraps"
    takes = "ckks"
    needs = (MAGNITUDES, NOISE_GAINS)
    keeps = (MAGNITUDES, NOISE_GAINS)
    levels: int = 14
    bootstrap: bool = True
    batch: int = 1
    costs: PrimitiveCosts | None = field(default=None, metadata={"option": False})
    fewest: bool = field(default=False, metadata={"option": False})
    error: float = 0.0
    cubic: float = 0.0

    @classmethod
    def for_goal(cls, goal: Goal) -> PlaceBootstraps:
        """On the levels of a parameter set, with its bootstraps and its costs."""
        levels = goal.parameters.bootstrap_level
        return cls(
            levels or goal.parameters.max_level,
            levels is not None,
            goal.parameters.bootstrap_batch,
            goal.costs,
            goal.fewest,
            *goal.parameters.bootstrap_errors,
        )

    def run(self, module: Module, report: Report) -> Module:
        """Ckks module without levels to ckks module with levels, drops and bootstraps."""
        placement, nodes = self.solve(module)
        bootstraps, cost = placement.bootstrap_count, ""
        noise = self._noise(placement, nodes)
        if noise > 0:
            report.say(f"errors of bootstraps change the outputs by {noise:.1e} of their size")
        if self.costs is not None:
            seconds = placement.cost - (FEWEST * bootstraps if self.fewest else 0.0)
            cost = f"{seconds:.1f} s predicted, "
        report.say(f"{cost}{bootstraps} bootstraps; {placement.method}")
        placed = _Placer(module, placement, nodes).run()
        placed.attributes["levels"] = self.levels
        placed.attributes["bootstrap"] = self.bootstrap
        placed.attributes["bootstrap_batch"] = self.batch
        return placed

    def solve(self, module: Module) -> tuple[Placement, dict[Op, int]]:
        """The best placement of a module, and the node of each op that has one."""
        if self.levels < 0:
            raise AtlasError(f"a chain cannot have {self.levels} levels")
        if self.batch < 1:
            raise AtlasError(f"a bootstrap cannot refresh {self.batch} ciphertexts")
        graph, nodes = level_graph(module, self.levels, self.costs)
        chain = level_chain(self.levels, self.bootstrap, self.batch, self.costs, self.fewest)
        try:
            cheapest = place(graph, chain)
        except AtlasError:
            _blame_range(module, graph, chain, nodes)
            raise
        return self._precise(graph, chain, nodes, cheapest), nodes

    def _precise(
        self, graph: LevelGraph, chain: LevelChain, nodes: dict[Op, int], cheapest: Placement
    ) -> Placement:
        """The cheapest placement whose error is tolerated, or that of least error within reach.

        Found by a bisection over the largest error that one bootstrap may cause: the smaller it is,
        the less error in all and the more cost.
        """
        if self._noise(cheapest, nodes) <= TOLERANCE:
            return cheapest
        errors = {node: self._error(op) for op, node in nodes.items()}
        limits = sorted(set(errors.values()))
        low, high, best = 0, len(limits) - 1, cheapest
        while low < high:
            middle = (low + high) // 2
            found = _placed_below(graph, chain, errors, limits[middle])
            if found is None or found.cost > DEARER * cheapest.cost:
                low = middle + 1
            elif self._noise(found, nodes) > TOLERANCE:
                best, high = min(best, found, key=lambda p: self._noise(p, nodes)), middle
            else:
                best, low = found, middle + 1
        return best

    def _noise(self, placement: Placement, nodes: dict[Op, int]) -> float:
        """Change of the outputs by the errors of all bootstraps."""
        bootstrapped = (op for op, node in nodes.items() if node in placement.bootstraps)
        return math.hypot(*map(self._error, bootstrapped))

    def _error(self, op: Op) -> float:
        return bootstrap_change(op, self.error, self.cubic)


def level_chain(
    levels: int,
    bootstrap: bool,
    batch: int = 1,
    costs: PrimitiveCosts | None = None,
    fewest: bool = False,
) -> LevelChain:
    """The chain of a parameter set; see `PlaceBootstraps`. A bootstrap costs 1 without costs."""
    cost = 1.0 if costs is None else costs.get(("bootstrap", levels), 0.0) + FEWEST * fewest
    return LevelChain(levels, {levels: cost} if bootstrap else {}, batch)


def level_graph(
    module: Module, levels: int, costs: PrimitiveCosts | None = None
) -> tuple[LevelGraph, dict[Op, int]]:
    """The abstract graph of a packed module, and the node of each op that has one.

    Args:
        module: ckks module without levels.
        levels: of a fresh ciphertext.
        costs: of the ops; without them they cost nothing.
    """
    graph, can = LevelGraph(), _refreshable(module)
    cost = None if costs is None else OpCosts(module, costs, levels)
    nodes: dict[Op, int] = {}
    for op in module.ops:
        if op.name in ("ckks.drop", "ckks.bootstrap"):
            raise AtlasError(
                f"{op.name} is there already", where=op.location, remedy="place bootstraps once"
            )
        result = op.result
        if result is None or not isinstance(result.type, CiphertextType):
            if op.name == "ckks.output":
                source = nodes[op.operands[0].op]
                nodes[op] = graph.add_node(f"output {op.attributes['name']}", [source])
            continue
        count = result.ciphertext.ciphertexts
        name = f"{op.name} %{result.name} ({op.location or 'no location'})"
        if op.name == "ckks.input":
            nodes[op] = graph.add_input(name, levels, count, refreshable=can[op])
        else:
            nodes[op] = graph.add_node(
                name,
                [nodes[v.op] for v in op.operands if isinstance(v.type, CiphertextType)],
                depth=levels_of(op, module),
                cost=0.0 if cost is None else cost.by_level(op),
                ciphertexts=count,
                refreshable=can[op],
            )
    return graph, nodes


def _refreshable(module: Module) -> dict[Op, bool]:
    """Whether the result of each op is in the range of a bootstrap; unknown magnitudes are not."""
    calibrated = any("magnitude" in op.attributes for op in module.ops)
    unknown = float("inf") if calibrated else 0.0
    return {op: op.attributes.get("magnitude", unknown) <= RANGE for op in module.ops}


def _placed_below(
    graph: LevelGraph, chain: LevelChain, errors: dict[int, float], limit: float
) -> Placement | None:
    """The cheapest placement without bootstraps of a larger error; None if there is none."""
    limited = LevelGraph()
    limited.nodes = [
        replace(node, refreshable=node.refreshable and errors.get(index, 0.0) <= limit)
        for index, node in enumerate(graph.nodes)
    ]
    try:
        return place(limited, chain)
    except AtlasError:
        return None


def _blame_range(
    module: Module, graph: LevelGraph, chain: LevelChain, nodes: dict[Op, int]
) -> None:
    """Raise AtlasError if bootstraps of values outside the range would make a placement possible;
    it names one where there are fewest.
    """
    opened = LevelGraph()
    opened.nodes = [
        replace(node, refreshable=True, cost=0.0, ciphertexts=0 if node.refreshable else 1)
        for node in graph.nodes
    ]
    placement = place(
        opened, LevelChain(chain.max_level, dict.fromkeys(chain.bootstrap_costs, 1.0))
    )
    for op, node in nodes.items():
        if node in placement.bootstraps and not graph.nodes[node].refreshable:
            raise AtlasError(
                f"{op.name} %{op.value.name} would have to be bootstrapped",
                where=op.location,
                why=f"its magnitude is {op.attributes.get('magnitude', 'unknown')}, a bootstrap "
                "takes [-1, 1]",
                remedy="use more levels, or lower the degrees around this op",
            )


class _Placer:
    """Writes a placement into a module."""

    def __init__(self, module: Module, placement: Placement, nodes: dict[Op, int]) -> None:
        self.placement, self.nodes = placement, nodes
        self.rewriter = Rewriter(module)
        self.refreshed: dict[Value, Value] = {}
        self.dropped: dict[tuple[Value, int], Value] = {}
        self.users = module.users()

    def run(self) -> Module:
        for op in self.rewriter.source.ops:
            if op.name == "ckks.input":
                attributes = {**op.attributes, "level": self._input_level(op)}
                self.rewriter.copy(op, [], attributes)
            elif op not in self.nodes:
                self.rewriter.copy(op)
            else:
                self.rewriter.copy(op, self._operands(op))
        return self.rewriter.module

    def _input_level(self, op: Op) -> int:
        """A fresh ciphertext is made no higher than any of its readers wants it."""
        wanted = [self.placement.entry_levels[self.nodes[user]] for user in self.users[op.value]]
        return max(wanted, default=0)

    def _operands(self, op: Op) -> list[Value]:
        node = self.nodes[op]
        level = self.placement.entry_levels[node]
        flags = iter(self.placement.refreshed_uses[node])
        return [
            self._at(op, operand, level, next(flags))
            if isinstance(operand.type, CiphertextType)
            else self.rewriter.values[operand]
            for operand in op.operands
        ]

    def _at(self, op: Op, operand: Value, level: int, refreshed: bool) -> Value:
        """The operand at a level, after its bootstrap where the placement says so."""
        value = self.rewriter.values[operand]
        if refreshed:
            if operand not in self.refreshed:
                target = self.placement.bootstraps[self.nodes[operand.op]]
                self.refreshed[operand] = self._emit(operand.op, "ckks.bootstrap", value, target)
            value = self.refreshed[operand]
        if value.ciphertext.level == level:
            return value
        if (value, level) not in self.dropped:
            self.dropped[value, level] = self._emit(operand.op, "ckks.drop", value, level)
        return self.dropped[value, level]

    def _emit(self, like: Op, name: str, value: Value, level: int) -> Value:
        return self.rewriter.add(like, name, [value], {"level": level})
