"""``gather-sums``: polynomials of replicated sums run on one ciphertext for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.framework.pass_base import (
    MAGNITUDES,
    NOISE_GAINS,
    OBSERVED,
    Cost,
    Goal,
    Pass,
    Report,
    observed,
)
from atlasc.passes.framework.rewriting import Rewriter

_NUMBERS = ("ckks.add_plain", "ckks.mul_plain", "ckks.double")
"""Slot-wise ops with a number."""
_BINARY = ("ckks.add", "ckks.sub", "ckks.mul", "ckks.square")


@dataclass(frozen=True)
class GatherSums(Pass):
    """Bring the ciphertexts of a sum that a polynomial reads into one, and back after it.

    The sums of a softmax over the keys are replicated, and fill as many ciphertexts as the heads
    do. In one ciphertext their polynomial is evaluated once, and one bootstrap refreshes all. It
    takes two levels, for the masks before and after the polynomial.
    """

    name = "gather-sums"
    takes = "ckks"
    keeps = (MAGNITUDES, NOISE_GAINS)
    when = "cheaper"

    def applies(self, module: Module, goal: Goal | None) -> bool:
        """Whether there are bootstraps, and sums to bring together."""
        if goal is None or goal.parameters.bootstrap_level is None:
            return False
        return any(op.name == "ckks.gather" for op in _Gathering(module).run().ops)

    def pays(self, cost: Cost, without: Callable[[], Cost], goal: Goal | None) -> bool:
        """Always where seconds are minimised, as latencies are predicted that way: on BERT-base it
        saves 1 to 13% and costs 1.5% at worst. Otherwise where the program costs less.
        """
        by_seconds = goal is not None and goal.costs is not None and not goal.fewest
        return (by_seconds and cost[0] < math.inf) or cost < without()

    def run(self, module: Module, report: Report) -> Module:
        """Ckks module without levels to the same."""
        result = _Gathering(module).run()
        sums = sum(op.name == "ckks.gather" for op in result.ops)
        report.say(f"{sums} sums are brought into one ciphertext each")
        return result


class _Gathering:
    """Rewrites a module; `gathered` holds the values that exist in one ciphertext."""

    def __init__(self, module: Module) -> None:
        self.rewriter = Rewriter(module)
        self.users = module.users()
        self.gathered: dict[Value, Value] = {}

    def run(self) -> Module:
        for op in self.rewriter.source.ops:
            if op.result is not None and self._stays_gathered(op):
                operands = [self.gathered[operand] for operand in op.operands]
                attributes = {k: v for k, v in op.attributes.items() if k not in OBSERVED}
                self.gathered[op.result] = self._add(op, op.name, operands, attributes)
                continue
            copy = self.rewriter.copy(op, [self._in_own_layout(operand) for operand in op.operands])
            if op.name == "ckks.rotate_sum" and self._is_worth_it(op.value):
                self.gathered[op.value] = self._add(op, "ckks.gather", [copy], {})
        return self.rewriter.module

    def _stays_gathered(self, op: Op) -> bool:
        """Whether all operands are gathered and the op does the same in all slots."""
        if not op.operands or not all(operand in self.gathered for operand in op.operands):
            return False
        if op.name == "ckks.chebyshev":
            return True
        if op.name in _BINARY:
            return all(_layout(operand) == _layout(op.value) for operand in op.operands)
        return _takes_a_number(op)

    def _is_worth_it(self, value: Value) -> bool:
        """Whether its ciphertexts fit into one, and a polynomial reads it."""
        return _layout(value).gathered is not None and self._feeds_polynomial(value)

    def _feeds_polynomial(self, value: Value) -> bool:
        return any(
            user.name == "ckks.chebyshev"
            or (_takes_a_number(user) and self._feeds_polynomial(user.value))
            for user in self.users[value]
        )

    def _in_own_layout(self, operand: Value) -> Value:
        """The new value of an operand, spread again where it is gathered."""
        if operand not in self.rewriter.values:
            layout = {"layout": str(_layout(operand))}
            spread = self._add(operand.op, "ckks.spread", [self.gathered[operand]], layout)
            self.rewriter.values[operand] = spread
        return self.rewriter.values[operand]

    def _add(
        self, like: Op, name: str, operands: list[Value], attributes: Mapping[str, Any]
    ) -> Value:
        """A new op on gathered values, with what was seen of an old one's."""
        attributes = {**attributes, **observed(like)}
        return self.rewriter.module.add(name, operands, attributes, like.location)


def _takes_a_number(op: Op) -> bool:
    """Whether an op of one ciphertext value has numbers for constants, the same in all slots."""
    by_slot = {"layout", "zero_padding", "first_row"} & set(op.attributes)
    symbols = any(isinstance(value, Symbol) for value in op.attributes.values())
    return op.name in _NUMBERS and not by_slot and not symbols


def _layout(value: Value) -> Layout:
    return value.ciphertext.layout
