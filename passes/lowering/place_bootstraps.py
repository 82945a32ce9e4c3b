"""``place-bootstraps``: a level for every value, and bootstraps where they cost least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.types import CiphertextType
from atlasc.passes.lowering.depths import levels_of
from atlasc.passes.lowering.placement import Chain, LevelGraph, Placement, place
from atlasc.passes.pass_base import Pass, Report
from atlasc.passes.rewriting import Rewriter


@dataclass(frozen=True)
class PlaceBootstraps(Pass):
    """Choose the level of every op exactly by a (min,+) program over levels.

    Attributes:
        levels: levels that a bootstrap leaves, or all levels of a chain without bootstraps.
        bootstrap: whether the backend can bootstrap.
    """

    name: ClassVar[str] = "place-bootstraps"
    levels: int = 14
    bootstrap: bool = True

    def run(self, module: Module, report: Report) -> Module:
        """Ckks module without levels to ckks module with levels, drops and bootstraps."""
        if self.levels < 0:
            raise AtlasError(f"a chain cannot have {self.levels} levels")
        chain = Chain(self.levels, {self.levels: 1.0} if self.bootstrap else {})
        graph, nodes = _graph(module, self.levels)
        placement = place(graph, chain)
        _check_range(nodes, placement)
        report.say(f"{placement.bootstrap_count} bootstraps of one ciphertext; {placement.method}")
        placed = _Placer(module, placement, nodes).run()
        placed.attributes["levels"] = self.levels
        placed.attributes["bootstrap"] = self.bootstrap
        return placed


FORBIDDEN = 10**6
"""Weight of a bootstrap that would be garbage; chosen only where nothing else is possible."""
RANGE = 1.0
"""A bootstrap is right for slots in [−1, 1]."""


def _weights(module: Module) -> dict[Op, int]:
    """Ciphertexts to bootstrap for each op's result; prohibitive outside the bootstrap's range."""
    calibrated = any("magnitude" in op.attributes for op in module.ops)
    unknown = float("inf") if calibrated else 0.0
    return {
        op: op.result.type.ciphertexts
        * (1 if op.attributes.get("magnitude", unknown) <= RANGE else FORBIDDEN)
        for op in module.ops
        if op.result is not None and isinstance(op.result.type, CiphertextType)
    }


def _graph(module: Module, levels: int) -> tuple[LevelGraph, dict[Op, int]]:
    """The abstract graph of a module, and the node of each op that has one."""
    graph, weights = LevelGraph(), _weights(module)
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
        count = weights[op]
        name = f"{op.name} %{result.name} ({op.location or 'no location'})"
        if op.name == "ckks.input":
            nodes[op] = graph.add_input(name, levels, count)
        else:
            operands = [nodes[v.op] for v in op.operands if isinstance(v.type, CiphertextType)]
            depth = levels_of(op, module)
            nodes[op] = graph.add_node(name, operands, depth=depth, ciphertexts=count)
    return graph, nodes


def _check_range(nodes: dict[Op, int], placement: Placement) -> None:
    for op, node in nodes.items():
        magnitude = op.attributes.get("magnitude", 0.0)
        outside = magnitude > RANGE or "magnitude" not in op.attributes
        if outside and node in placement.bootstraps and placement.bootstrap_count >= FORBIDDEN:
            raise AtlasError(
                f"{op.name} %{op.value.name} would have to be bootstrapped",
                where=op.location,
                why=f"its magnitude is {magnitude or 'unknown'}, a bootstrap takes [-1, 1]",
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
        assert isinstance(value.type, CiphertextType)
        if value.type.level == level:
            return value
        if (value, level) not in self.dropped:
            self.dropped[value, level] = self._emit(operand.op, "ckks.drop", value, level)
        return self.dropped[value, level]

    def _emit(self, like: Op, name: str, value: Value, level: int) -> Value:
        return self.rewriter.add(like, name, [value], {"level": level})
