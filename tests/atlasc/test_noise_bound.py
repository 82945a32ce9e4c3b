"""The compiled bound on what encryption adds, against the simulator with the errors of CKKS."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed import run_packed
from small_transformers import SHAPES, Builder, Shape, inputs_for
from tiny_model import LENGTH, Tiny, write_ids

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.calibration.calibrate import calibrate
from atlasc.client.sharing import BITS, floods
from atlasc.compare.compare import SAFETY, compare
from atlasc.compilation.lowering import lower_module
from atlasc.compilation.noise_bound import (
    MARGIN,
    changes,
    evaluation_error,
    program_change,
    with_noise,
)
from atlasc.compilation.options import TargetOptions
from atlasc.ir.interpreter import interpret
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.program.function import EngineParameters
from atlasc.report.summary import noise_by_kind
from atlasc.run import session
from atlasc.simulation.agreement import promised
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine


def errors(bundle: Bundle, data: Path, count: int) -> np.ndarray:
    """Root mean square errors of the inputs' answers."""
    parameters = bundle.parameters
    engine = find_target("sim").make_engine(bundle.program, parameters, no_progress, noise=True)
    arrays = bundle.load_inputs(data).take(range(count)).arrays
    answer = session.run(bundle, arrays, engine=engine)
    (name,) = answer.outputs
    error = answer.outputs[name] - answer.expected[name]
    return np.sqrt(np.square(error).reshape(count, -1).mean(axis=1))


def bound(bundle: Bundle) -> float:
    (output,) = bundle.client.interface.outputs
    found = output.noise
    assert isinstance(found, float)
    return found


def near(expected: float) -> Any:
    """Variances are far below the absolute tolerance of pytest."""
    return pytest.approx(expected, rel=1e-6, abs=0)


def test_the_bound_holds_without_bootstraps_and_is_no_idle_one(tiny: Tiny) -> None:
    bundle = load_bundle(tiny.bundle)
    seen = errors(bundle, tiny.data, 24)
    assert seen.max() < bound(bundle) < 10 * seen.max()


def test_the_bound_holds_with_bootstraps(texts: Path, tmp_path: Path) -> None:
    bundle = load_bundle(texts / "bundle")
    assert any(op.name == "ckks.bootstrap" for op in bundle.program.ops)
    write_ids(tmp_path / "ids.jsonl", [LENGTH] * 6)
    seen = errors(bundle, tmp_path / "ids.jsonl", 6)
    assert seen.max() < bound(bundle) < 20 * seen.max()
    assert bound(bundle) > 1e-5


def test_it_is_what_the_sources_add_up_to(tiny: Tiny) -> None:
    bundle = load_bundle(tiny.bundle)
    noise = bundle.parameters.noise_model()
    (output,) = bundle.program.outputs
    shape = EngineParameters.of(bundle.parameters)
    change = program_change(bundle.program, noise, shape)
    expected = MARGIN * change * output.attributes["noise_gain"]
    assert bound(bundle) == pytest.approx(expected, rel=0.05, abs=0)
    parts = changes(bundle.program, noise, shape)
    assert sum(parts.values()) == near(change**2)
    rows = noise_by_kind(parts)
    assert sum(row["ops"] for row in rows) == len(parts)
    assert {"encryption", "decryption", "linear"} <= {row["kind"] for row in rows}
    assert sum(row["change"] ** 2 for row in rows) == near(change**2)
    # Before decryption there is one rescale; its imaginary part counts as much as its real one.
    gain = output.operands[0].op.attributes["noise_gain"]
    assert parts[output] == near((noise.rescale**2 + noise.rescale**2) * gain**2)
    members = asdict(noise)
    digits = tuple(one / 2 for one in members.pop("digits"))
    half = NoiseModel(**{name: one / 2 for name, one in members.items()}, digits=digits)
    assert program_change(bundle.program, half, shape) == near(change / 2)
    assert program_change(bundle.program, NoiseModel(fresh=1e-3), shape) == near(
        np.sqrt(2) * 1e-3 * bundle.program.inputs[0].attributes["noise_gain"]
    )


def test_without_calibration_there_is_none(tiny: Tiny) -> None:
    program = load_bundle(tiny.bundle).program
    for op in program.ops:
        for name in ("noise_gain", "noise"):
            op.attributes.pop(name, None)
    (output,) = with_noise(program, NoiseModel.ckks(2**15), EngineParameters(2**14, 16)).outputs
    assert "noise" not in output.attributes


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_each_op_errs_as_its_model_says(tiny: Tiny, target: str) -> None:
    """Real ciphertexts and the simulator: the deviation of every op, from below and from above."""
    bundle = load_bundle(tiny.bundle)
    noise, parameters = bundle.parameters.noise_model(), bundle.parameters
    query = bundle.client.query(bundle.load_inputs(tiny.data).take([0, 1]).arrays)
    right, examined = (
        find_target(name).make_engine(bundle.program, parameters, no_progress, noise=noisy)
        for name, noisy in (("sim", False), (target, True))
    )
    result = compare(bundle.program, query, right, examined, noise)
    assert result.first is None
    assert len(result.ops) == sum(op.result is not None for op in bundle.program.ops)
    for op in result.ops:
        predicted = op.deviation_bound / SAFETY
        assert op.deviation < 1.5 * predicted, op
        if op.deviation > noise.rescale:  # others owe no rescaling, which readings share
            assert predicted < 2 * op.deviation, op


def test_a_sum_beyond_its_domain_counts_there() -> None:
    """The exponential of degree 15 on (-8, 0): at 1.375 it amplifies its rounding by far."""
    coefficients = tuple(fit("exp", 15, (-8.0, 0.0)).tolist())
    inside, beyond = (evaluation_error(coefficients, 1e-8, reach) for reach in (1.0, 1.375))
    assert inside < 1e-6
    assert beyond > 1000 * inside


def test_shared_answers_hide_the_bits_that_they_promise(tiny: Tiny) -> None:
    """The noise of an answer exceeds its errors by what kappa asks, measured on ciphertexts."""
    bundle = load_bundle(tiny.bundle)
    (flood,) = floods(bundle.client.interface, 1).values()
    engine = find_target("cpu").make_engine(bundle.program, bundle.parameters, no_progress)
    answer = session.run(bundle, bundle.load_inputs(tiny.data).take([0, 1]).arrays, engine=engine)
    (name,) = answer.outputs
    error = answer.outputs[name] - answer.expected[name]
    norm = np.sqrt(np.square(error).reshape(len(error), -1).sum(axis=1)).max()
    assert 2 * np.log2(flood.deviation / (np.sqrt(12) * norm)) > BITS


def alone(shape: Shape, seed: int) -> tuple[float, np.ndarray, np.ndarray]:
    """A program of one input under `is`: its bound, the root mean square errors that encryption
    adds to some answers, and the ratios of what is stated of them to their error.
    """
    module = Builder(replace(shape, batch=1), seed).build()
    some = inputs_for(replace(shape, batch=24), seed + 1)
    approximate = apply_recipe(module, "is", calibrate(module, some, margin=0.3))
    lowered = lower_module(approximate, some, TargetOptions(target="cpu"))
    program, engine = lowered.program, lowered.parameters.shape
    bound = max(op.attributes["noise"] for op in program.outputs)
    rms, ratios = [], []
    for row in range(4):
        inputs = {name: array[row : row + 1] for name, array in some.items()}
        given, noise = inputs | interpret(lowered.client, inputs), lowered.parameters.noise_model()
        polynomials = run_packed(program, given, SimEngine(*engine))
        encrypted = run_packed(program, given, SimEngine(*engine, noise=noise, seed=row))
        for name, right in interpret(module, inputs).items():
            rms.append(np.sqrt(np.square(encrypted[name] - polynomials[name]).mean()))
            promise = promised("values", 1e-3, float(right.std()), bound)
            stated = promise.stated(float(np.abs(polynomials[name] - right).mean()))
            ratios.append(stated / np.abs(encrypted[name] - right).mean())
    return bound, np.array(rms), np.array(ratios)


def squares(period: int | None) -> Module:
    """A square, a bootstrap that may be narrow, and another square, of a batch of one."""
    kind = "ciphertext<[*:1 b:2 d:2 |  | b=1 d=4], level {}, scale 1>"
    narrow = "" if period is None else f", period = {period}"
    return parse(f"""module @m : ckks {{
      %0 = ckks.input {{name = "x", layout = "[*:1 b:2 d:2 |  | b=1 d=4]",
        shape = [1, 4], noise_gain = 5.0, mean = 0.0, level = 1}} : {kind.format(1)}
      %1 = ckks.square %0 {{noise_gain = 3.0, mean = 0.0}} : {kind.format(0)}
      %2 = ckks.bootstrap %1 {{level = 3{narrow}}} : {kind.format(3)}
      %3 = ckks.square %2 {{noise_gain = 1.0, mean = 0.0}} : {kind.format(2)}
      ckks.output %3 {{name = "y", noise_gain = 1.0, shape = [1, 4]}}
    }}""")


def test_a_narrow_bootstrap_averages_what_was_before_it_alone() -> None:
    """The errors of four copies of one input; those of a batch, and those after it, stay."""
    noise, shape = NoiseModel.ckks(64), EngineParameters(32, 3, 3)

    def found(period: int | None) -> dict[str, float]:
        module = squares(period)
        return {
            op.value.name if op.result else "y": one
            for op, one in changes(module, noise, shape).items()
        }

    whole, narrow = found(None), found(4)
    for name, share in {"0": 4, "1": 4, "2": 1, "3": 1, "y": 1}.items():
        assert narrow[name] == near(whole[name] / share)
    assert Layout.parse("[*:1 b:2 d:2 |  | b=3 d=4]").batch_copies == 1


def test_an_error_that_follows_from_the_value_is_averaged_by_nothing() -> None:
    """The cubic error of a bootstrap is the same in all copies; its random error is not."""
    kind = "ciphertext<[*:1 b:2 d:2 |  | b=1 d=4], level {}, scale 1>"
    module = parse(f"""module @m : ckks {{
      %0 = ckks.input {{name = "x", layout = "[*:1 b:2 d:2 |  | b=1 d=4]",
        shape = [1, 4], noise_gain = 5.0, mean = 0.5, level = 0}} : {kind.format(0)}
      %1 = ckks.bootstrap %0 {{level = 1}} : {kind.format(1)}
      %2 = ckks.square %1 {{noise_gain = 3.0, mean = 0.0}} : {kind.format(0)}
      %3 = ckks.bootstrap %2 {{level = 3, period = 4}} : {kind.format(3)}
      ckks.output %3 {{name = "y", noise_gain = 1.0, shape = [1, 4]}}
    }}""")
    (op,) = [op for op in module.ops if op.result is not None and op.value.name == "1"]

    def added(noise: NoiseModel) -> float:
        return changes(module, noise, EngineParameters(32, 3, 3))[op]

    assert added(NoiseModel(bootstrap=1e-3)) == pytest.approx((5.0 * 1e-3) ** 2 / 4)
    assert added(NoiseModel(bootstrap_cubic=1e-3)) == pytest.approx((5.0 * 1e-3 * 0.5**3) ** 2)


@pytest.mark.deep("examples")
@pytest.mark.parametrize(("name", "seed"), [("vision", 11)])
def test_of_one_input_the_statement_is_near_the_error_and_never_below(name: str, seed: int) -> None:
    """Narrow bootstraps take the mean of its copies, which errors before them do not share."""
    bound, rms, ratios = alone(replace(SHAPES[name], layers=1), seed)
    assert rms.max() < bound
    assert ratios.min() >= 1
    assert np.median(ratios) <= 10, ratios
