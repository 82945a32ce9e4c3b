"""Copies of a value that share a Chebyshev sum: on slots, on ciphertexts, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.polynomial import chebyshev

from atlasc.analyses.shared_sums import excess_gain
from atlasc.compilation.noise_bound import evaluation_error
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import REPLICATED, Field, Layout
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.program.costs import Polynomial, program_costs
from atlasc.program.engine import Engine
from atlasc.program.execute import execute
from atlasc.program.key_plan import key_plan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine

ROOT = ChebyshevSum.fitted("invsqrt", 15, (0.1, 2.0)).coefficients
LEVELS = 6


def program(coefficients: Any, slots: int, copies: int, period: int = 4) -> Module:
    """A sum of a row whose slots repeat after ``period``, with levels."""
    bits = (slots // period).bit_length() - 1
    fields = (Field(REPLICATED, bits), Field("g", period.bit_length() - 1), Field("b", 0))
    layout = Layout(fields, (), (("b", 1), ("t", 1), ("g", period)))
    module = Module("m", "ckks", attributes={"slots": slots, "levels": LEVELS, "bootstrap": False})
    entry = {"layout": layout, "shape": [1, 1, period], "level": LEVELS}
    x = module.add("ckks.input", [], {"name": "x", **entry})
    given: dict[str, Any] = {"coefficients": coefficients}
    given |= {"copies": copies} if copies > 1 else {}
    y = module.add("ckks.chebyshev", [x], given)
    module.add("ckks.output", [y], {"name": "y", "shape": [1, 1, period]})
    return module


def evaluated(module: Module, engine: Engine[Any], arguments: np.ndarray) -> np.ndarray:
    """All slots of the result."""
    slots = np.tile(arguments, engine.slots // len(arguments))
    [result] = execute(engine, module, {"x": [engine.encrypt(slots, LEVELS)]}, {})["y"]
    return engine.decrypt(result)


@pytest.mark.parametrize("copies", [1, 2, 4, 8])
@pytest.mark.parametrize("period", [1, 4])
def test_every_copy_holds_the_sum(copies: int, period: int) -> None:
    x = np.linspace(-1, 1, 6)[1 : period + 1]
    module = program(list(ROOT), 64, copies, period)
    found = evaluated(module, SimEngine(64, LEVELS), x)
    expected = np.tile(chebyshev.chebval(x, ROOT), 64 // period)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert module.outputs[0].operands[0].ciphertext.level == LEVELS - (4 if copies == 1 else 5)


def test_the_costs_of_a_shared_sum_are_those_of_its_function() -> None:
    """The placement predicts with a `Polynomial` what the program is counted to take."""
    for copies in (1, 4, 8):
        counted = program_costs(program(list(ROOT), 64, copies)).total.primitives
        profile = Polynomial.of(np.array(ROOT)).profile(copies)
        assert counted == {(kind, LEVELS - below): n for (kind, below), n in profile}


def test_on_ciphertexts() -> None:
    """Errors are those of the model, for as many copies as may share the sum."""
    parameters = CpuParameters.choose(LEVELS, 2**12)
    x = np.linspace(-0.95, 0.95, 4)
    for copies in (1, 8):
        module = program(list(ROOT), parameters.slots, copies)
        plan = key_plan(run_passes(module, [RotationKeys()]))
        engine = CpuEngine.fresh(parameters, plan, no_progress)
        found = evaluated(module, engine, x)
        errors = found - np.tile(chebyshev.chebval(x, ROOT), parameters.slots // 4)
        rescale = parameters.noise_model().rescale
        bound = evaluation_error(tuple(ROOT), rescale, 1.0, copies)
        # The errors of encryption differ between copies, too.
        slope = np.abs(chebyshev.chebval(x, chebyshev.chebder(ROOT))).max()
        excess = excess_gain(tuple(ROOT), copies) if copies > 1 else 0.0
        operand = 2 * rescale * np.hypot(slope, excess)
        assert np.sqrt(np.square(errors).mean()) < 1.5 * np.hypot(bound, operand)


@pytest.mark.parametrize("copies", [-2, 1, 3, 16])
def test_copies_that_cannot_share_are_refused(copies: int) -> None:
    module = program(list(ROOT), 64, 1)
    x = module.inputs[0].value
    with pytest.raises(AtlasError, match="cannot share a sum of 16"):
        module.add("ckks.chebyshev", [x], {"coefficients": list(ROOT), "copies": copies})


def test_there_must_be_as_many_copies() -> None:
    module = program(list(ROOT), 16, 4)
    x = module.inputs[0].value
    with pytest.raises(AtlasError, match="the operand has 4 copies, not 8"):
        module.add("ckks.chebyshev", [x], {"coefficients": list(ROOT), "copies": 8})
    channels = module.constant("c", np.ones((4, 16)))
    with pytest.raises(AtlasError, match="one vector"):
        module.add("ckks.chebyshev", [x], {"coefficients": channels, "copies": 4})


@pytest.mark.parametrize(("degree", "copies"), [(31, 8), (127, 16), (511, 128)])
def test_rounding_in_copies_is_no_worse_than_in_each(degree: int, copies: int) -> None:
    """Where a sum is steep its copies share the slope; where it is flat, few roundings add up."""
    coefficients = tuple(ChebyshevSum.fitted("invsqrt", degree, (0.004, 2.0)).coefficients)
    alone = evaluation_error(coefficients, 1e-8, 1.0)
    assert evaluation_error(coefficients, 1e-8, 1.0, copies) < 1.1 * alone


@pytest.mark.parametrize(("degree", "copies"), [(15, 4), (31, 8), (31, 16)])
def test_errors_that_differ_between_copies(degree: int, copies: int) -> None:
    """Arguments with an error in every copy, beside the same argument in all."""
    coefficients = ChebyshevSum.fitted("invsqrt", degree, (0.05, 2.0)).coefficients
    points, size = 512, 1e-7
    x = np.sin(np.linspace(-np.pi / 2, np.pi / 2, points))
    slots, results = points * copies, []
    module = program(list(coefficients), slots, copies, points)
    for noise in (NoiseModel(fresh=size), None):
        engine = SimEngine(slots, 8, noise=noise)
        argument = engine.encrypt(np.tile(x, copies), LEVELS)
        [result] = execute(engine, module, {"x": [argument]}, {})["y"]
        results.append(engine.decrypt(result)[:points] / size)
    measured = np.square(results[0] - results[1]).reshape(8, -1).mean(axis=1)
    slope = np.square(chebyshev.chebval(x, chebyshev.chebder(coefficients)))
    excess = excess_gain(tuple(coefficients), copies)
    assert np.sqrt((measured - slope.reshape(8, -1).mean(axis=1)).max()) < 1.5 * max(excess, 1.0)
    flat = np.sqrt(measured[-1])
    assert flat < 1.5 * np.hypot(excess, np.sqrt(slope[-64:].mean()))
    assert excess > 10 * np.sqrt(slope[-64:].mean())
