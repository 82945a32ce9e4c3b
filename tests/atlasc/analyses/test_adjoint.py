"""Derivatives of poly modules against differences, for every op that has a rule."""

from __future__ import annotations

import numpy as np
import pytest
from short_text import poly
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.analyses.observed import RULES, Tape
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.opdef import OPS
from atlasc.passes.pipeline import client_module, to_poly

STEP = 1e-6
ARRAYS = {
    name: np.random.default_rng(place).normal(size=shape)
    for place, (name, shape) in enumerate(
        {"w": (5, 3), "b": (5,), "f": (3,), "c": (3, 6), "t": (2, 3)}.items()
    )
}
BODIES = {
    "poly.linear": "poly.linear %x {weight = @w, bias = @b}",
    "poly.add": "poly.add %x, %s",
    "poly.sub": "poly.sub %s, %x",
    "poly.mul": "poly.mul %x, %s",
    "poly.square": "poly.square %x",
    "poly.double": "poly.double %x {times = 2}",
    "poly.add_constant": "poly.add_constant %x {value = 0.5}",
    "poly.scale": "poly.scale %x {factor = @f}",
    "poly.affine": "poly.affine %x {scale = @f, shift = 1.0}",
    "poly.row_sum": "poly.row_sum %x",
    "poly.center": "poly.center %x",
    "poly.transpose": "poly.transpose %x {permutation = [0, 2, 1]}",
    "poly.reshape": "poly.reshape %x {shape = [1, 1, 6]}",
    "poly.select": "poly.select %x {axis = 1, index = 1}",
    "poly.mean": "poly.mean %x {axis = 1, factor = 3.0}",
    "poly.repeat": "poly.repeat %x {axis = 1, repeats = 2}",
    "poly.chebyshev": "poly.chebyshev %x {coefficients = [0.1, 0.4, -0.3], domain = [-2.0, 3.0]}",
    "by channel": "poly.chebyshev %x {coefficients = @c, domain = [-4.0, 4.0]}",
}
SHAPES = (
    Shape(batch=2, heads=3, layers=2, mask=True),
    Shape(rms=True, causal=True, classes=0),
    Shape(pre_norm=False, mask=True, causal=True, mean=True),
    Shape(rms=True, causal=True, classes=0, bias="hqk", key_norm="heads"),
)


def check(module: Module, inputs: dict[str, np.ndarray], wiggled: str) -> set[str]:
    """The derivative along a random direction of an input; the ops that were passed."""
    rng = np.random.default_rng(5)
    tape = Tape(module, inputs, np.float64)
    weights = {name: rng.normal(size=array.shape) for name, array in tape.outputs.items()}
    derivatives = tape.pull_back(weights)
    (source,) = (op for op in module.inputs if op.attributes["name"] == wiggled)
    along = rng.normal(size=inputs[wiggled].shape)

    def weighted(step: float) -> float:
        moved = interpret(module, {**inputs, wiggled: inputs[wiggled] + step * along})
        return sum(float((weights[name] * array).sum()) for name, array in moved.items())

    difference = (weighted(STEP) - weighted(-STEP)) / (2 * STEP)
    found = float((derivatives[source] * along).sum()) * source.attributes.get("factor", 1.0)
    assert difference == pytest.approx(found, rel=1e-5)
    return {op.name for op in derivatives}


@pytest.mark.parametrize("name", BODIES)
def test_an_op(name: str) -> None:
    body = f'%s = poly.row_sum %x\n%y = {BODIES[name]}\npoly.output %y {{name = "y", factor = 2.0}}'
    module = poly(body, ARRAYS, (1, 2, 3))
    x = np.random.default_rng(9).normal(size=(2, 2, 3))
    check(module, {"x": x}, "x")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_transformer(shape: Shape) -> None:
    module, inputs = Builder(shape, 3).build(), inputs_for(shape, 4)
    approximate(module, inputs)
    _, folded = to_poly(module)
    given = {**inputs, **interpret(client_module(module), inputs)}
    (encrypted,) = (op for op in folded.inputs if op.attributes["side"] == "server")
    if encrypted.attributes.get("centred"):
        name = encrypted.attributes["name"]
        given[name] = given[name] - given[name].mean(axis=-1, keepdims=True)
        encrypted.attributes.pop("centred")
    passed = check(folded, given, encrypted.attributes["name"])
    assert {"poly.matmul", "poly.mask_fill", "poly.mask_zero"} <= passed


def test_every_op_of_the_dialect_has_a_rule() -> None:
    ops = {name for name in OPS if name.startswith("poly.")}
    assert ops - {"poly.input", "poly.output"} == set(RULES)
