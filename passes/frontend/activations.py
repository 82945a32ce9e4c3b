"""Patterns: activations that a model writes out as a formula."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from atlasc.passes.frontend.graph import Node, is_node, target
from atlasc.passes.frontend.match import Match, pairs

if TYPE_CHECKING:
    from atlasc.passes.frontend.import_export import Importer

CUBE = 0.044715


def _times(node: Any, factor: float) -> Any:
    """x when the node is x times a number, else None."""
    scaled = target(node) == "aten.mul.Tensor" and not is_node(node.args[1])
    return node.args[0] if scaled and math.isclose(node.args[1], factor, rel_tol=1e-6) else None


def _plus_one(node: Any) -> Any:
    """x when the node is x + 1, else None."""
    return node.args[0] if target(node) == "aten.add.Tensor" and node.args[1] == 1 else None


def tanh_gelu(importer: Importer, node: Node) -> Match | None:
    """½x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), HuggingFace's ``gelu_new``: nn.gelu{tanh_form}."""
    if target(node) != "aten.mul.Tensor":
        return None
    for half, bell in pairs(node):
        x, curve = _times(half, 0.5), _plus_one(bell)
        if x is None or target(curve) != "aten.tanh.default":
            continue
        inner = _times(curve.args[0], math.sqrt(2 / math.pi))
        if target(inner) != "aten.add.Tensor" or inner.args[0] is not x:
            continue
        cube = _times(inner.args[1], CUBE)
        if target(cube) == "aten.pow.Tensor_Scalar" and cube.args[0] is x and cube.args[1] == 3:
            return Match((x,), partial(importer.add, node, "nn.gelu", [x], {"tanh_form": True}))
    return None


def silu(importer: Importer, node: Node) -> Match | None:
    """x·sigmoid(x): nn.silu."""
    if target(node) != "aten.mul.Tensor":
        return None
    for x, gate in pairs(node):
        if target(gate) == "aten.sigmoid.default" and gate.args[0] is x:
            return Match((x,), partial(importer.add, node, "nn.silu", [x]))
    return None
