"""Recipes and settings on modules, and their depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.scalar_functions import function
from atlasc.ir.verifier import verify
from atlasc.passes.approximation.approximate import (
    apply_recipe,
    apply_settings,
    depth_of,
    layer_count,
)
from atlasc.polynomials.description import carried_by
from atlasc.polynomials.fitted import paper_shift
from atlasc.polynomials.parametrisation import PAPER, Parametrisation

FIRST, SECOND = (5, 4, 0, 3, 0, 2, 3, 4), (7, 6, 5, 4, 3, 9, 8, 7)


def build(name: str) -> Module:
    return Builder(SHAPES[name], 1).build()


def approximation(module: Module, location: str, kind: str) -> Any:
    found = [
        carried_by(op) for op in module.ops if op.location == location and op.name.endswith(kind)
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_eight_integers_go_to_their_ops(name: str) -> None:
    module = build(name)
    assigned = apply_settings(module, [FIRST, SECOND])
    verify(assigned)
    assert layer_count(module) == 2
    assert not any("approximation" in op.attributes for op in module.ops)
    act = "silu" if name == "decoder" else "gelu"
    for layer, (softmax, norms, activation) in enumerate(
        [((5, 4), (2, 3), 4), ((7, 6, 5, 4, 3), (9, 8), 7)]
    ):
        place = f"layer.{layer}"
        assert approximation(assigned, f"{place}.attention", "softmax").iterations == softmax
        for index, exponent in enumerate(norms):
            entry = approximation(assigned, f"{place}.norm{index + 1}", "norm")
            assert entry.degree == 2**exponent - 1
        entry = approximation(assigned, f"{place}.mlp", act)
        assert entry.degree == 2**activation - 1


def test_calibrated_ranges_come_along() -> None:
    module, arrays = build("encoder"), inputs_for(SHAPES["encoder"], 2)
    calibration = calibrate(module, arrays)
    for assigned in (
        apply_settings(module, [FIRST, SECOND], calibration),
        apply_recipe(module, "is", calibration),
    ):
        for op in assigned.ops:
            if not op.definition.nonlinear:
                continue
            known, entry = calibration.of(op), carried_by(op)
            if op.name == "nn.softmax":
                assert entry.shift == paper_shift(known, len(entry.iterations))
            else:
                assert entry.range == (known.low, known.high)


def test_depth_of_the_expert_setting_in_the_papers_convention() -> None:
    expert = (5, 5, 5, 5, 7, 9, 9, 9)
    for name, layer in (("encoder", 101), ("vision", 101), ("decoder", 97)):
        module = build(name)
        for assigned in (apply_recipe(module, "is"), apply_settings(module, [expert] * 2)):
            depth = depth_of(assigned)
            assert depth.blocks == 2 * layer
            assert depth.per_layer == {0: layer, 1: layer}
            assert depth.levels == 2 * 77
    assert depth_of(apply_recipe(build("encoder"), "is")).outside == 0
    assert depth_of(apply_recipe(build("vision"), "is")).outside == 17
    assert depth_of(apply_recipe(build("encoder"), "nexus")).blocks == 2 * 79


def test_depth_by_op() -> None:
    depth = depth_of(apply_settings(build("encoder"), [FIRST, SECOND]))
    entries = {(entry.location, entry.op): entry for entry in depth.ops}
    assert entries["layer.0.attention", "nn.softmax"].depth == 5 + 10 + 9
    assert entries["layer.0.attention", "nn.softmax"].levels == 4 + 8 + 7
    assert entries["layer.0.norm2", "nn.layer_norm"].depth == 3 + 8
    assert entries["layer.1.norm1", "nn.layer_norm"].levels == 9 + 2
    assert entries["layer.1.mlp", "nn.gelu"].depth == 7 + 1
    assert depth.blocks == sum(entry.depth for entry in depth.ops)


def test_what_is_outside_the_blocks_gets_a_fit_that_does_not_show() -> None:
    module, arrays = build("vision"), inputs_for(SHAPES["vision"], 2)
    calibration = calibrate(module, arrays)
    assigned = apply_settings(module, [FIRST, SECOND], calibration)
    entry = approximation(assigned, "final", "norm")
    x = np.linspace(*entry.range, 2001)
    from atlasc.polynomials.arithmetic import NumpyArithmetic

    exact = function("invsqrt").numpy(x)
    error = np.abs(NumpyArithmetic().run(entry.inverse_sqrt, x) - exact).max()
    assert error <= 1.01e-4 * exact.max()
    assert entry.degree < 511
    without = apply_settings(module, [FIRST, SECOND])
    assert approximation(without, "final", "norm").degree == 511


def test_integers_are_rungs_of_the_ladder() -> None:
    openfhe = Parametrisation(degrees="openfhe")
    assigned = apply_settings(build("encoder"), [(3, 2, 0, 0, 0, 1, 7, 4)] * 2, None, openfhe)
    softmax = approximation(assigned, "layer.0.attention", "softmax")
    assert (softmax.iterations, softmax.degrees) == ((5, 4), (27, 13))
    assert approximation(assigned, "layer.1.norm2", "norm").degree == 495
    assert approximation(assigned, "layer.1.mlp", "gelu").degree == 59
    with pytest.raises(AtlasError, match="no polynomial number 8"):
        apply_settings(build("encoder"), [(3, 2, 0, 0, 0, 1, 8, 4)] * 2, None, openfhe)


def test_canonical_form() -> None:
    assert PAPER.canonical(FIRST) == (5, 4, 0, 0, 0, 2, 3, 4)
    assert PAPER.canonical(FIRST) == PAPER.canonical((5, 4, 0, 0, 7, 2, 3, 4))


def test_mistakes() -> None:
    module, arrays = build("encoder"), inputs_for(SHAPES["encoder"], 2)
    with pytest.raises(AtlasError, match="for 1 layers, but the model has 2"):
        apply_settings(module, [FIRST])
    with pytest.raises(AtlasError, match="8 integers, not 3"):
        apply_settings(module, [FIRST, (1, 2, 3)])
    with pytest.raises(AtlasError, match="cannot have the iterations"):
        apply_settings(module, [FIRST, (0, 2, 3, 4, 5, 1, 1, 1)])
    with pytest.raises(AtlasError, match="no recipe 'best'"):
        apply_recipe(module, "best")
    with pytest.raises(AtlasError, match="has no approximation"):
        depth_of(module)
    calibration = calibrate(module, arrays)
    with pytest.raises(AtlasError, match="has no range for"):
        apply_recipe(module, "is", replace(calibration, ranges=calibration.ranges[1:]))
