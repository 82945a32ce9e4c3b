"""Measured and predicted errors op by op, of programs of every recipe, on real ciphertexts."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from packed import pack_tensor
from small_transformers import Builder, Shape, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.client.program import Packed
from atlasc.compare.compare import SAFETY, Comparison, compare
from atlasc.compilation.lowering import plan_keys
from atlasc.ir.interpreter import encrypted_input, interpret
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.pipeline import lower_nn
from atlasc.polynomials.recipes import recipe_names
from atlasc.program.kernels.context import layout_of
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.sim import SimEngine

SHAPE = Shape(batch=2, tokens=4, width=4, hidden=8, pre_norm=False, mask=True, classes=0)
TOO_LARGE = ("nexus", "moai")
"""Recipes whose ranges were published for another model: their values are beyond a bootstrap."""
LOUD = sorted(set(recipe_names()) - set(TOO_LARGE))


class Case(NamedTuple):
    """A program, its parameters, and a query."""

    program: Module
    parameters: CpuParameters
    query: Packed


@cache
def case(recipe: str, log_ring_degree: int) -> Case:
    """A block of a Transformer under a recipe, with bootstraps."""
    module, inputs = Builder(SHAPE, 3).build(), inputs_for(SHAPE, 4)
    module = apply_recipe(module, recipe, calibrate(module, inputs, margin=0.1))
    parameters = CpuParameters.bootstrapped(log_ring_degree=log_ring_degree)
    lowered = lower_nn(module, lambda *_: parameters, inputs)
    program = plan_keys(lowered.program, parameters)
    given = inputs | interpret(lowered.client, inputs)
    vectors, levels = dict[str, np.ndarray](), dict[str, int]()
    for op in program.inputs:
        if op.name == "ckks.input":
            name, tensor = op.attributes["name"], given[op.attributes["name"]].astype(np.float64)
            vectors[name] = pack_tensor(layout_of(op.value), encrypted_input(op.site({}), tensor))
            levels[name] = op.attributes["level"]
    query = Packed(vectors, levels, {"mask": inputs["mask"]}, SHAPE.batch)
    return Case(program, parameters, query)


def check(recipe: str, log_ring_degree: int, result: Comparison) -> None:
    """Every op errs by what the model says, from above and, where it errs at all, from below."""
    program, parameters, _ = case(recipe, log_ring_degree)
    assert result.refused is None
    assert result.first is None
    assert len(result.ops) == sum(op.result is not None for op in program.ops) - 1  # the mask
    assert any(op.op == "ckks.bootstrap" for op in result.ops)
    for op in result.ops:
        predicted = op.deviation_bound / SAFETY
        assert op.deviation < 1.5 * predicted, op
        if op.deviation > 1.1 * parameters.noise_model().rescale:
            assert predicted < 3 * op.deviation, op


@pytest.mark.parametrize(
    "log_ring_degree", [13, pytest.param(14, marks=pytest.mark.deep("recipes"))]
)
@pytest.mark.parametrize("recipe", LOUD)
def test_on_the_simulator(recipe: str, log_ring_degree: int) -> None:
    program, parameters, query = case(recipe, log_ring_degree)
    noise = parameters.noise_model()
    right = SimEngine(*parameters.shape)
    examined = SimEngine(*parameters.shape, noise=noise, seed=9)
    check(recipe, log_ring_degree, compare(program, query, right, examined, noise))


@pytest.fixture(scope="module")
def engine() -> CpuEngine:
    """With the keys of all programs."""
    plans = [key_plan(case(recipe, 16).program) for recipe in LOUD]
    rotations = dict[int, int]()
    for plan in plans:
        for amount, level in plan.rotations.items():
            rotations[amount] = max(level, rotations.get(amount, 0))
    parameters = CpuParameters.bootstrapped()
    top = parameters.max_level
    return CpuEngine.fresh(parameters, KeyPlan(rotations, top, top), no_progress)


@pytest.mark.deep("recipes")
@pytest.mark.large
@pytest.mark.parametrize("recipe", LOUD)
def test_on_ciphertexts(recipe: str, engine: CpuEngine) -> None:
    program, parameters, query = case(recipe, 16)
    right, noise = SimEngine(*parameters.shape), parameters.noise_model()
    check(recipe, 16, compare(program, query, right, engine, noise))
