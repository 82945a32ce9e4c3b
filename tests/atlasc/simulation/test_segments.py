"""Where a module is divided, and in which order its ops are evaluated."""

from __future__ import annotations

import itertools

import pytest
from small_transformers import SHAPES, Builder

from atlasc.simulation.simulator import segments


@pytest.mark.parametrize("name", SHAPES)
def test_every_op_once_after_its_operands(name: str) -> None:
    module = Builder(SHAPES[name], 1).build()
    parts = segments(module)
    ops = [op for part in parts for op in part.ops]
    assert len(set(ops)) == len(ops)
    server = {op.result for op in ops}
    for position, op in enumerate(ops):
        known = {earlier.result for earlier in ops[:position]}
        assert all(operand in known for operand in op.operands if operand in server)
    for part in parts:
        assert not any(op.definition.nonlinear for op in part.ops[1:])


def test_nothing_is_computed_before_it_is_needed() -> None:
    parts = segments(Builder(SHAPES["encoder"], 1).build())
    start, softmax = parts[0], parts[1]
    assert softmax.ops[0].name == "nn.softmax"
    assert sum(op.name == "nn.linear" for op in start.ops) == 2, "queries and keys, no values"
    assert [layer for layer, _ in itertools.groupby(part.layer for part in parts)] == [0, 1]
