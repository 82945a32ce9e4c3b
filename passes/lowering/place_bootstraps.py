"""``place-bootstraps``: chooses a level for every value, and bootstraps at the least cost.

Errors of bootstraps count too: a placement with less error is taken if it costs little more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from atlasc.analyses.bounds import RANGE, SEEN
from atlasc.analyses.observed import bootstrap_change, program_change
from atlasc.analyses.shared_sums import excess_gain
from atlasc.ir.bounds import MAX_INTEGER, MAX_LEVEL
from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.ops.names import OpName
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.framework.pass_base import Goal, Pass, Report
from atlasc.passes.lowering.packing.packer import copies_of, is_alone
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode, Way
from atlasc.passes.lowering.placement.placement import Placement, place
from atlasc.program.costs import Polynomial, PrimitiveCosts, Shared, op_costs
from atlasc.program.counting_engine import CostKind

FILLED = (SEEN, 0.9, 0.95, 0.98, 1.0)
"""Shares of the range that bootstrapped values may fill; the first share that allows a placement is
used. Values that fill all of it (scores at the end of a polynomial's domain) leave no room for
errors."""
TOLERANCE = 1e-3
"""Tolerated change of the outputs by the errors of all bootstraps, if another placement has less:
root mean square, as a share of the outputs' size."""
DEARER = 1.25
"""Greatest cost of a placement with less error, as a multiple of the cheapest one's."""
ANSWERED = 1
"""Highest level of an answer: a decryption reads the primes of two levels, and the others would
only be sent."""


@dataclass(frozen=True)
class PlaceBootstraps(Pass):
    """Choose the level of every op exactly, with a (min,+) program over levels.

    A value with unknown content in the slots of other tokens is not bootstrapped, because its
    magnitude is not known. Inputs unlike the calibration get room (`SEEN`), if a placement allows
    it.

    With costs, copies of a value share its polynomial where this saves time. It takes a level more.

    Attributes:
        levels: level after a bootstrap, or all levels of a chain without bootstraps.
        bootstrap: whether the backend can bootstrap.
        batch: number of ciphertexts of one value that one bootstrap refreshes.
        costs: seconds of each primitive at each level. With them the predicted time is minimised,
            without them the number of bootstraps.
        error: standard deviation of a bootstrap's error in each slot. With it, and if values have a
            ``noise_gain``, values whose error would change the outputs too much are not
            bootstrapped.
        cubic: factor of a bootstrap's cubic error, which takes cubic · mean³ off the mean of a
            value.
        narrow: slots that repeat this often (two or more) are bootstrapped narrowly, which costs
            less; 0 for no narrow bootstraps.
        lowest: least level of a ciphertext that can be bootstrapped.
        landings: steps between the levels that a bootstrap may end at, from the highest downwards,
            where it takes less at a lower one; 0: it always ends at the highest.
        lanes: ciphertexts that a device works on at once (:mod:`atlasc.program.lanes`).
    """

    name = "place-bootstraps"
    takes = "ckks"
    needs = (MAGNITUDES, NOISE_GAINS)
    keeps = (MAGNITUDES, NOISE_GAINS)
    levels: int = field(default=14, metadata={"within": (0, MAX_LEVEL)})
    bootstrap: bool = True
    batch: int = field(default=1, metadata={"within": (1, MAX_INTEGER)})
    costs: PrimitiveCosts | None = field(default=None, metadata={"option": False})
    error: float = field(default=0.0, metadata={"within": (0, math.inf)})
    cubic: float = field(default=0.0, metadata={"within": (0, math.inf)})
    narrow: int = field(default=0, metadata={"within": (0, MAX_INTEGER)})
    lowest: int = field(default=0, metadata={"within": (0, MAX_LEVEL)})
    landings: int = field(default=0, metadata={"within": (0, MAX_LEVEL)})
    lanes: int = field(default=1, metadata={"within": (1, MAX_INTEGER)})

    @classmethod
    def for_goal(cls, goal: Goal) -> PlaceBootstraps:
        """The pass with the levels, bootstraps and costs of a goal's parameter set."""
        levels = goal.parameters.bootstrap_level
        return cls(
            levels or goal.parameters.max_level,
            levels is not None,
            goal.parameters.bootstrap_batch,
            goal.costs,
            *goal.parameters.bootstrap_errors,
            goal.parameters.narrow,
            goal.parameters.bootstrap_from,
            goal.parameters.landings,
            goal.parameters.lanes,
        )

    @property
    def chain(self) -> LevelChain:
        """The chain of levels, and the cost of a bootstrap, which is 1 without costs."""
        top = self.levels
        if self.costs is None:
            return LevelChain(
                top, top if self.bootstrap else None, 1.0, self.batch, lowest=self.lowest
            )
        costs = self.costs

        def seconds(kind: CostKind) -> tuple[float, ...]:
            highest = costs.get((kind, top), 0.0)
            return tuple(costs.get((kind, at), highest) for at in range(top + 1))

        return LevelChain(
            top,
            top if self.bootstrap else None,
            seconds("bootstrap"),
            self.batch,
            seconds("bootstrap_one") if ("bootstrap_one", top) in costs else None,
            seconds("bootstrap_narrow") if self.narrow else None,
            self.lowest,
            landing_levels(top, self.lowest, self.landings),
        )

    def run(self, module: Module, report: Report) -> Module:
        """Ckks module without levels to ckks module with levels, drops and bootstraps."""
        placement, nodes = self.solve(module)
        bootstraps, cost = f"{placement.bootstrap_count} bootstraps", ""
        if lower := sorted({*placement.bootstraps.values()} - {self.levels}):
            bootstraps += f", some to level {', '.join(map(str, lower))}"
        placed = self._placed(module, placement, nodes)
        noise = program_change(placed, self.error, self.cubic)
        if noise:
            report.say(f"errors of bootstraps change the outputs by {noise:.1e} of their size")
        if self.costs is not None:
            cost = f"{placement.cost:.1f} s predicted, "
        report.say(f"{cost}{bootstraps}; {placement.method}")
        facts = {"levels": self.levels, "bootstrap": self.bootstrap, "bootstrap_batch": self.batch}
        placed.attributes |= facts
        if self.lanes > 1:
            placed.attributes["lanes"] = self.lanes
        if self.bootstrap and self.lowest:
            placed.attributes["bootstrap_from"] = self.lowest
        return placed

    def solve(self, module: Module) -> tuple[Placement, dict[Op, int]]:
        """The best placement of a module, and the node of each op that has a node."""
        for largest in FILLED:
            graph, nodes = self.graph(module, largest * RANGE)
            try:
                cheapest = place(graph, self.chain)
            except AtlasError:  # no placement leaves unseen inputs this much room
                if largest == FILLED[-1]:
                    _blame_range(graph, self.chain, nodes)
                    raise
                continue
            break
        return self._precise(module, graph, nodes, cheapest), nodes

    def graph(self, module: Module, largest: float = RANGE) -> tuple[LevelGraph, dict[Op, int]]:
        """The abstract graph of a packed module, and the node of each op that has a node. Values of
        magnitudes up to ``largest`` may be bootstrapped.
        """
        graph, nodes = LevelGraph(), dict[Op, int]()
        cost = None if self.costs is None else op_costs(module, self.costs, self.levels)
        # If other magnitudes were measured, a value without one may have any magnitude.
        unknown = math.inf if any("magnitude" in op.attributes for op in module.ops) else 0.0
        for op in module.ops:
            if op.name in ("ckks.drop", "ckks.bootstrap"):
                raise AtlasError(
                    f"{op.name} is there already", where=op.location, remedy="place bootstraps once"
                )
            operands = tuple(nodes[v.op] for v in op.operands if v.op in nodes)
            if op.name == "ckks.output":
                name, least = f"output {op.attributes['name']}", op.attributes.get("level", 0)
                nodes[op] = graph.add(LevelNode(name, operands, least))
            elif op.value.encrypted:
                given = op.name == "ckks.input"
                node = LevelNode(
                    f"{op.name} %{op.value.name} ({op.location or 'no location'})",
                    operands,
                    0 if given else op.levels(module.symbols),
                    0.0 if given or cost is None else cost(op),
                    op.value.ciphertext.ciphertexts,
                    op.attributes.get("magnitude", unknown) <= largest and not is_alone(op.value),
                    self.levels if given else None,
                    self._period(op) is not None,
                    self._way(module, op),
                )
                nodes[op] = graph.add(node)
        return graph, nodes

    def _way(self, module: Module, op: Op) -> Way | None:
        """The evaluation of a polynomial by the copies of its operand, if it may cost less."""
        found = self._shared(module, op)
        return found and Way(found.depth, found.times(op.value.ciphertext.ciphertexts))

    def _shared(self, module: Module, op: Op) -> Shared | None:
        if self.costs is None or op.name != "ckks.chebyshev":
            return None
        coefficients = op.site(module.symbols).constant("coefficients")
        most = copies_of(op.value)
        return Polynomial.of(coefficients).shared(most, self.costs, self.levels)

    def _apart(self, module: Module, op: Op) -> float:
        """Change of the outputs by errors of a bootstrap that differ between copies, if these share
        a polynomial.
        """
        gain, shared = self.error * op.attributes.get("noise_gain", 0.0), self._shared(module, op)
        if not gain or shared is None:
            return 0.0
        coefficients = op.site(module.symbols).constant("coefficients")
        return gain * excess_gain(tuple(coefficients.tolist()), shared.copies)

    def _period(self, op: Op) -> int | None:
        """Number of slots after which an op's result repeats, if it is bootstrapped narrowly."""
        if not self.narrow or op.result is None:
            return None
        layout = op.value.ciphertext.layout
        return layout.period if self.narrow * layout.period <= layout.slots else None

    def _precise(
        self, module: Module, graph: LevelGraph, nodes: dict[Op, int], cheapest: Placement
    ) -> Placement:
        """The cheapest placement with a tolerated error, or that of least error within the cost
        limit.

        It is found by bisection over the largest error that one bootstrap may cause: with a smaller
        limit the total error falls and the cost rises.
        """
        errors = {node: bootstrap_change(op, self.error, self.cubic) for op, node in nodes.items()}
        apart = {node: self._apart(module, op) for op, node in nodes.items()}

        def noise(placement: Placement) -> float:
            """Change of the outputs by the errors of all bootstraps."""
            bootstraps = placement.bootstraps
            read = (i for i in placement.others if graph.nodes[i].operands[0] in bootstraps)
            return math.hypot(*map(errors.__getitem__, bootstraps), *map(apart.__getitem__, read))

        if noise(cheapest) <= TOLERANCE:
            return cheapest
        if cheapest.others:  # errors matter, and copies that share a polynomial may add some
            alone = LevelGraph([node.ways[0] for node in graph.nodes])
            return self._precise(module, alone, nodes, place(alone, self.chain))
        limits = sorted(set(errors.values()))
        low, high, best = 0, len(limits) - 1, cheapest
        while low < high:
            middle = (low + high) // 2
            limited = [
                replace(node, refreshable=node.refreshable and errors[i] <= limits[middle])
                for i, node in enumerate(graph.nodes)
            ]
            try:
                found = place(LevelGraph(limited), self.chain)
            except AtlasError:
                found = None
            if found is None or found.cost > DEARER * cheapest.cost:
                low = middle + 1
            elif noise(found) > TOLERANCE:
                best, high = min(best, found, key=noise), middle
            else:
                best, low = found, middle + 1
        return best

    def _placed(self, module: Module, placement: Placement, nodes: dict[Op, int]) -> Module:
        """The module with the drops and bootstraps of a placement, without duplicates."""
        rewriter, users, made = (
            Rewriter(module),
            module.users(),
            dict[tuple[OpName, Value, int], Value](),
        )

        def set_level(like: Op, name: OpName, value: Value, level: int) -> Value:
            key = name, value, level
            if key not in made:
                attributes = {"level": level}
                if name == "ckks.bootstrap" and (period := self._period(like)) is not None:
                    attributes["period"] = period
                made[key] = rewriter.add(like, name, [value], attributes)
            return made[key]

        def at(operand: Value, level: int) -> Value:
            value = rewriter.values[operand]
            if operand.encrypted:
                node = nodes[operand.op]
                if level > placement.result_levels[node]:
                    target = placement.bootstraps[node]
                    value = set_level(operand.op, "ckks.bootstrap", value, target)
                if value.ciphertext.level != level:
                    value = set_level(operand.op, "ckks.drop", value, level)
            return value

        states = {op.attributes["name"] for op in module.inputs if op.attributes.get("state")}
        for op in module.ops:
            if op.name == "ckks.input":  # encrypted at the highest level that a reader needs
                entries = (placement.entry_levels[nodes[user]] for user in users[op.value])
                rewriter.copy(op, [], {**op.attributes, "level": max(entries, default=0)})
            elif op not in nodes:
                rewriter.copy(op)
            elif op.name == "ckks.output" and op.attributes["name"] in states:
                rewriter.copy(op)  # at the level of the sum, which is that of the state before
            else:
                level = op.attributes.get("level", placement.entry_levels[nodes[op]])
                if op.name == "ckks.output" and "level" not in op.attributes:
                    level = min(level, ANSWERED)
                shared = self._shared(module, op) if nodes[op] in placement.others else None
                attributes = shared and {**op.attributes, "copies": shared.copies}
                rewriter.copy(op, [at(operand, level) for operand in op.operands], attributes)
        return rewriter.module


def landing_levels(top: int, lowest: int, step: int) -> tuple[int, ...]:
    """Levels below the highest one that bootstraps end at, by ``landings`` of the pass."""
    return tuple(range(top - step, max(lowest, 1) - 1, -step)) if step else ()


def _blame_range(graph: LevelGraph, chain: LevelChain, nodes: dict[Op, int]) -> None:
    """Raise AtlasError if bootstrapping a value outside the range would make a placement possible.

    The error names such a value in a placement with the fewest of them.
    """
    opened = [
        replace(node, refreshable=True, cost=0.0, ciphertexts=0 if node.refreshable else 1)
        for node in graph.nodes
    ]
    free = LevelChain(chain.max_level, chain.bootstrap_level, lowest=chain.lowest)
    placement = place(LevelGraph(opened), free)
    for op, node in nodes.items():
        if node in placement.bootstraps and not graph.nodes[node].refreshable:
            raise AtlasError(
                f"{op.name} %{op.value.name} would have to be bootstrapped",
                where=op.location,
                why=f"its magnitude is {op.attributes.get('magnitude', 'unknown')}, but a "
                "bootstrap takes [-1, 1]",
                remedy="use more levels, or lower the degrees around this op",
            )
