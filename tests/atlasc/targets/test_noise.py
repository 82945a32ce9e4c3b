"""The noise model against the engines: predicted and measured errors of each primitive."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from atlasc.program.engine import Vector
from atlasc.program.key_plan import KeyPlan
from atlasc.program.transform_work import TransformTerm
from atlasc.runtime.native import load_library
from atlasc.targets.base import no_progress
from atlasc.targets.ckks.engine import _facts
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.sim import SimEngine
from atlasc_comparisons.desilo.parameters import noise_model

SETS = (CpuParameters(13, 2, 1), CpuParameters(14, 4, 3), CpuParameters(14, 4, 1))


@pytest.mark.parametrize("parameters", SETS, ids=str)
@pytest.mark.parametrize("simulated", [False, True])
def test_each_primitive_errs_as_its_model_says(parameters: CpuParameters, simulated: bool) -> None:
    level, noise = parameters.max_level, parameters.noise_model()
    plan = KeyPlan({1: level}, level, level)
    engine = (
        SimEngine(*parameters.shape, noise=noise)
        if simulated
        else CpuEngine.fresh(parameters, plan, no_progress)
    )
    x, y = np.random.default_rng(0).uniform(-1, 1, (2, parameters.slots))
    one, other = engine.encrypt(x), engine.encrypt(y)
    size = np.sqrt(np.square(y).mean())
    switch = noise.of_key_switch(level)
    factors = noise.fresh * size * np.sqrt(2)  # the errors of encryption, times the other factor
    pairs = {
        "encrypt": (one, x, noise.fresh),
        "drop": (engine.drop_to(one, 1), x, np.hypot(noise.fresh, noise.settle)),
        "rotate": (engine.rotate(one, 1), np.roll(x, -1), np.hypot(noise.fresh, switch)),
        "conjugate": (engine.conjugate(one), x, np.hypot(noise.fresh, switch)),
        "mul_plain": (engine.mul_plain(one, y), x * y, np.hypot(factors, noise.rescale)),
        "mul": (engine.mul(one, other), x * y, np.hypot(factors, noise.rescale)),
    }
    for name, (found, expected, predicted) in pairs.items():
        measured = float(np.std(engine.decrypt(found) - expected))
        # A rescaling that is owed is counted by all who may have to pay it.
        predicted = float(np.hypot(predicted, noise.settle))
        assert measured < 1.1 * predicted, name
        if name != "encrypt" or simulated:
            assert predicted < 2 * measured, name


@pytest.mark.parametrize("parameters", [*SETS, CpuParameters.bootstrapped()], ids=str)
def test_the_library_draws_by_the_same_model(parameters: CpuParameters) -> None:
    """The executables of a project have no Python: the model stands in C++ too."""
    library, model = load_library(), parameters.noise_model()
    found = library.Noise.ckks(_facts(parameters, KeyPlan({}, 0, 0)))
    for field in fields(model):
        if field.name.startswith("bootstrap") and not parameters.bootstrap:
            continue
        expected = getattr(model, field.name)
        assert getattr(found, field.name) == pytest.approx(expected, rel=1e-9, abs=0), field.name


def test_a_pair_of_ratios_decides_a_key_switch() -> None:
    """A digit as large as the special primes: four times the error of a rescaling, not nothing."""
    loud, quiet = CpuParameters(13, 2, 1).noise_model(), CpuParameters(14, 4, 3).noise_model()
    assert loud.of_key_switch(2) > 4 * loud.rescale
    assert quiet.of_key_switch(4) < 1.5 * quiet.rescale
    assert noise_model(2**14).of_key_switch(4) < 1e-6 * noise_model(2**14).rescale


@pytest.mark.parametrize("parameters", [CpuParameters(14, 6, 1), CpuParameters(15, 12, 4)], ids=str)
def test_a_key_switch_errs_by_the_digits_of_its_level(parameters: CpuParameters) -> None:
    """Measured from below and from above at every level: a low level has fewer digits."""
    top, noise = parameters.max_level, parameters.noise_model()
    engine = CpuEngine.fresh(parameters, KeyPlan({1: top}, top, top), no_progress)
    x = np.random.default_rng(0).uniform(-1, 1, parameters.slots)
    for level in range(top + 1):
        rotated = engine.rotate(engine.encrypt(x, level), 1)
        measured = float(np.std(engine.decrypt(rotated) - np.roll(x, -1)))
        predicted = float(np.hypot(noise.fresh, noise.of_key_switch(level)))
        # The prediction counts a rescaling that the operand does not owe here.
        assert 0.65 * predicted < measured < 1.1 * predicted, level
    if parameters.special_primes == 4:  # from level 8 on, a digit is as large as the special primes
        assert noise.of_key_switch(7) < 0.5 * noise.of_key_switch(8)


def test_fewer_special_primes_add_no_error() -> None:
    """Below level 3 key switches compute with some of the special primes, by the same keys: errors
    are those of level 3, where they compute with all.
    """
    parameters = CpuParameters(15, 12, 4)
    assert [parameters.special_at(level) for level in range(5)] == [2, 2, 3, 4, 4]
    assert [parameters.digits(level) for level in range(5)] == [1, 1, 1, 1, 2]
    random, slots = np.random.default_rng(2), parameters.slots
    babies, giants = random.integers(1, slots, (2, 2)).tolist()
    chain = [0, giants[0], 2 * giants[0] % slots]
    keys = [*babies, *giants]
    top = parameters.max_level
    engine = CpuEngine.fresh(parameters, KeyPlan(dict.fromkeys(keys, top), top, top), no_progress)
    x, y = random.uniform(-1, 1, (2, slots))
    weights = {repeats: random.uniform(-1, 1, (12, slots // repeats)) for repeats in (1, 16)}

    def transform(ct: Any, repeats: int, steps: list[int]) -> tuple[Any, Vector]:
        rows = iter(np.tile(weights[repeats], repeats))
        terms = [
            TransformTerm(baby, giant, next(rows), operand, 0)
            for giant in steps
            for operand, baby in enumerate((0, babies[0]))
        ]
        operands = (x, y)
        expected = sum(
            (
                np.roll(np.roll(operands[one.operand], -one.baby) * one.value, -one.giant)
                for one in terms
            ),
            np.zeros(slots),
        )
        other = engine.encrypt(y, engine.level(ct))
        return engine.transform([ct, other], terms, steps is chain)[0], expected

    errors: list[dict[str, float]] = []
    for level in range(4):
        ct = engine.encrypt(x, level)
        turned = engine.rotate_many(ct, babies)
        found = {
            "rotate": (engine.rotate(ct, giants[0]), np.roll(x, -giants[0])),
            "first of many": (turned[0], np.roll(x, -babies[0])),
            "last of many": (turned[1], np.roll(x, -babies[1])),
            "conjugate": (engine.conjugate(ct), x),
        }
        if level > 0:
            found["square"] = engine.square(ct), x * x
            found["transform"] = transform(ct, 1, [0, *giants])
            found["repeating transform"] = transform(ct, 16, [0, *giants])
            found["chained transform"] = transform(ct, 16, chain)
        errors.append(
            {
                name: float(np.std(engine.decrypt(made) - expected))
                for name, (made, expected) in found.items()
            }
        )
    for level, own in enumerate(errors[:-1]):
        for name, error in own.items():
            assert error < 1.05 * errors[-1][name], (name, level)
