"""The compiled bound on what encryption adds, against the simulator with the errors of CKKS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny
from tiny_text import LENGTH, make_text_bundle, write_ids

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.compilation.noise_bound import MARGIN, program_change, with_noise
from atlasc.passes.execution.record import Shape
from atlasc.run import session
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.noise import NoiseModel


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
    found = output.attributes["noise"]
    assert isinstance(found, float)
    return found


def test_the_bound_holds_without_bootstraps_and_is_no_idle_one(tiny: Tiny) -> None:
    bundle = load_bundle(tiny.bundle)
    seen = errors(bundle, tiny.data, 24)
    assert seen.max() < bound(bundle) < 10 * seen.max()


def test_the_bound_holds_with_bootstraps(tmp_path: Path) -> None:
    bundle = load_bundle(make_text_bundle(tmp_path))
    assert any(op.name == "ckks.bootstrap" for op in bundle.program.ops)
    write_ids(tmp_path / "ids.jsonl", [LENGTH] * 6)
    seen = errors(bundle, tmp_path / "ids.jsonl", 6)
    assert seen.max() < bound(bundle) < 20 * seen.max()
    assert bound(bundle) > 1e-5


def test_it_is_what_the_sources_add_up_to(tiny: Tiny) -> None:
    bundle = load_bundle(tiny.bundle)
    noise = bundle.parameters.noise_model()
    (output,) = bundle.program.outputs
    shape = Shape.of(bundle.parameters)
    change = program_change(bundle.program, noise, shape)
    expected = MARGIN * change * output.attributes["noise_gain"]
    assert bound(bundle) == pytest.approx(expected, rel=0.05)
    half = NoiseModel(*(getattr(noise, name) / 2 for name in noise.__dataclass_fields__))
    assert program_change(bundle.program, half, shape) == pytest.approx(change / 2)
    assert program_change(bundle.program, NoiseModel(fresh=1e-3), shape) == pytest.approx(
        1e-3 * bundle.program.inputs[0].attributes["noise_gain"]
    )


def test_without_calibration_there_is_none(tiny: Tiny) -> None:
    program = load_bundle(tiny.bundle).program
    for op in program.ops:
        for name in ("noise_gain", "noise"):
            op.attributes.pop(name, None)
    (output,) = with_noise(program, NoiseModel.ckks(2**15), Shape(2**14, 16)).outputs
    assert "noise" not in output.attributes
