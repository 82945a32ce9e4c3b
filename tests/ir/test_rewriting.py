"""Modules that are copied op by op."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from random_modules import modules

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.ir.text.storage import print_module
from atlasc.ir.verifier import verify


def small(shape: tuple[int, ...]) -> Module:
    module = Module("m", "nn")
    x = module.add(
        "nn.input", (), {"name": "x", "shape": list(shape), "dtype": "f64", "side": "client"}
    )
    module.add("nn.scale", [x], {"factor": 3.0}, name="dead")
    y = module.add("nn.transpose", [module.add("nn.encrypt", [x])], {"permutation": [1, 0]})
    module.add("nn.output", [y], {"name": "y"})
    return module


@given(modules())
def test_a_copy_is_equal_and_verifies(module) -> None:
    rewriter = Rewriter(module)
    for op in module.ops:
        rewriter.copy(op)
    assert print_module(rewriter.module) == print_module(module)
    verify(rewriter.module)


def test_the_type_is_inferred_again_where_an_operand_has_another() -> None:
    module, other = small((2, 3)), small((4, 5))
    rewriter = Rewriter(module)
    rewriter.values[module.ops[0].value] = rewriter.module.add(
        "nn.input", (), dict(other.ops[0].attributes)
    )
    for op in module.ops[1:]:
        rewriter.copy(op)
    verify(rewriter.module)
    assert rewriter.module.outputs[0].operands[0].tensor.shape == (5, 4)


def test_the_verifier_sees_a_copy_that_lost_its_symbol() -> None:
    module = Module("m", "nn")
    x = module.add("nn.input", (), {"name": "x", "shape": [2, 3], "dtype": "f64", "side": "client"})
    y = module.add("nn.scale", [x], {"factor": module.constant("w", np.ones(3))})
    module.add("nn.output", [module.add("nn.encrypt", [y])], {"name": "y"})
    rewriter = Rewriter(module)
    rewriter.module.symbols.clear()
    for op in module.ops:
        rewriter.copy(op)
    with pytest.raises(AtlasError, match="no symbol"):
        verify(rewriter.module)


def test_dead_ops_go_and_their_names_are_free() -> None:
    module = small((2, 3))
    alive = without_dead_ops(module)
    verify(alive)
    assert [op.name for op in alive.ops] == [
        op.name for op in module.ops if op is not module.ops[1]
    ]
    assert alive.fresh_name("dead") == "dead"
    assert len(module.ops) == 5, "the other module stays"
