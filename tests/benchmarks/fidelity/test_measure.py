"""Figures of the fidelity benchmark: their arithmetic, and the simulation of bootstraps' errors."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tiny_model import LENGTH, write_ids

from atlasc.api.program import Program
from atlasc.bundle.folder import load_bundle
from atlasc.ir.errors import AtlasError
from atlasc.run.session import run, simulate
from atlasc.targets.base import no_progress
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import TARGET, SimEngine
from benchmarks.fidelity.__main__ import ALL, calibration
from benchmarks.fidelity.measure import CHUNK, Measured, Measurer, cosines, errors, means
from benchmarks.fidelity.noisy import MEASURED, NoisyProgram
from benchmarks.fidelity.sources import rows

LENGTHS = [LENGTH, 3, 1, 5, 2] * 4


@pytest.fixture(scope="module")
def folder(texts, tmp_path_factory):
    root = shutil.copytree(texts, tmp_path_factory.mktemp("fidelity") / "texts")
    write_ids(root / "texts.jsonl", LENGTHS)
    return root


@pytest.fixture(scope="module")
def bundle(folder):
    return load_bundle(folder / "bundle")


def test_errors_are_of_the_tokens_of_a_text_and_infinite_where_one_is_not_a_number():
    expected = np.zeros((3, 2, 2))
    answers = np.array([[[1, 3], [9, 9]], [[1, 1], [2, -2]], [[0, np.nan], [0, 0]]], float)
    kept = np.array([[1, 0], [1, 1], [1, 1]], bool)
    assert errors(answers, expected, kept).tolist() == [2.0, 1.5, np.inf]
    padding = np.array([[[1, 3], [np.inf, np.nan]]])
    assert errors(padding, expected[:1], kept[:1]).tolist() == [2.0]
    assert means(padding, kept[:1]).tolist() == [[1.0, 3.0]]


def test_cosines():
    found = cosines(np.array([[1.0, 0], [3, 3], [np.nan, 1]]), np.array([[0.0, 2], [1, 1], [1, 1]]))
    assert found[:2] == pytest.approx([0.0, 1.0])
    assert np.isnan(found[2])


def test_summary_counts_wrong_verdicts():
    measured = Measured(
        tokens=np.array([3, 4, 5, 6, 7]),
        safe=np.array([True, True, True, False, False]),
        outside=np.array([0, 0, 0, 0.5, 0.1]),
        reach=np.array([0.5, 1.5, 2.0, 9.0, 0.1]),
        error=np.array([0.1, 0.2, 0.3, 5.0, 6.0]),
        noisy_error=np.array([0.2, 0.9, np.inf, np.inf, 0.3]),
        cosine=np.array([1.0, 0.75, np.nan, np.nan, 1.0]),
    )
    assert measured.summary(limit=0.5) == {
        "inputs": 5,
        "tokens": 5.0,
        "unsafe": 0.4,
        "error": pytest.approx(0.15),
        "encrypted": pytest.approx(0.55),
        "worst": 0.9,
        "1 - cosine": 0.125,
        "largest": 0.25,
        "not finite": 1,
        "beyond 1": 2,
        "false safe": 2,
        "false unsafe": 1,
    }
    none = replace(measured, safe=np.zeros(5, bool)).summary(limit=0.5)
    assert none["unsafe"] == 1.0 and none["error"] is None and none["false unsafe"] == 2


@pytest.mark.deep("benchmarks")
def test_errors_of_bootstraps_are_those_of_the_packed_simulator(folder, bundle):
    inputs = bundle.load_inputs(folder / "texts.jsonl")
    noisy = NoisyProgram(bundle)
    bootstraps = sum(op.name == "ckks.bootstrap" for op in bundle.program.ops)
    assert 1 <= len(noisy.bootstrapped) <= bootstraps
    prepared = noisy.prepare(inputs.arrays)
    (exact,) = noisy.run(prepared)[0].values()
    (plain,) = simulate(bundle.client, bundle.poly, inputs.arrays).values()
    assert exact == pytest.approx(plain, abs=1e-12)
    engine = TARGET.make_engine(bundle.program, bundle.parameters, no_progress, noise=True)
    engine.bootstrap_range = MEASURED
    (packed,) = run(bundle, inputs.arrays, engine=engine).outputs.values()
    (drawn,) = noisy.run_with_errors(prepared).values()
    assert np.abs(drawn - exact).mean() == pytest.approx(np.abs(packed - exact).mean(), rel=0.4)


def test_the_reach_of_an_input_is_what_bootstraps_of_the_packed_simulator_get(folder, bundle):
    inputs = bundle.load_inputs(folder / "texts.jsonl")
    noisy = NoisyProgram(bundle)
    _, reach = noisy.run(noisy.prepare(inputs.arrays))
    middle = float(reach.min() + reach.max()) / 2
    engine = SimEngine(*bundle.parameters.shape, bootstrap_range=middle)
    low, high = reach < middle, reach > middle
    run(bundle, inputs.take(np.flatnonzero(low)[:2]).arrays, engine=engine)
    with pytest.raises(AtlasError, match="bootstrap is impossible"):
        run(bundle, inputs.take(np.flatnonzero(high)[:1]).arrays, engine=engine)


def test_a_mean_is_shifted_and_what_is_far_beyond_a_bootstrap_is_lost(folder, bundle):
    inputs = bundle.load_inputs(folder / "texts.jsonl")
    noisy = NoisyProgram(bundle, NoiseModel(bootstrap_cubic=0.5))
    prepared = noisy.prepare(inputs.arrays)
    (exact,), (shifted,) = noisy.run(prepared)[0].values(), noisy.run_with_errors(prepared).values()
    assert np.abs(shifted - exact).mean() > 1e-7
    (silent,) = NoisyProgram(bundle, NoiseModel()).run_with_errors(prepared).values()
    assert (silent == exact).all()
    public = noisy.client.public
    large = {name: a if name in public else 1e3 * a for name, a in prepared.items()}
    _, reach = noisy.run(large)
    assert (reach > MEASURED).all()
    (lost,) = noisy.run_with_errors(large).values()
    assert np.isnan(lost).any()


def test_a_program_is_measured_in_parts_of_any_size(folder, bundle):
    inputs = bundle.load_inputs(folder / "texts.jsonl")
    assert len(inputs) > CHUNK and len(inputs) % CHUNK
    done = []
    found = Measurer(bundle, folder / "model").measure(inputs, done.append)
    assert done == [CHUNK, len(inputs) - CHUNK]
    assert found.tokens.tolist() == LENGTHS
    verdicts = Program(bundle).check(inputs)
    assert found.safe.tolist() == [verdict.safe for verdict in verdicts]
    assert (found.error < found.noisy_error).all() and (found.noisy_error < 1).all()
    assert (found.cosine > 0.9).all()
    assert all(len(values) == len(inputs) for values in found.to_dict().values())


@pytest.mark.deep("benchmarks")
def test_calibration_takes_as_many_of_each_source():
    found = calibration(ALL, "short", 12)
    assert len(found) == 12 and all(row[0] == 101 and row[-1] == 102 for row in found)
    assert found[-2:] == rows("random", "short", 2)
    assert len(calibration("licences", "full", 3)) == 3
