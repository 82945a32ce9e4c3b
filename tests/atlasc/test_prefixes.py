"""Prefixes of texts: calibration covers short inputs although all that were given are long."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import LENGTH, Tiny, write_ids

import atlasc
from atlasc.compilation import search
from atlasc.compilation.options import CalibrationOptions, SearchOptions
from atlasc.compilation.prepare import PreparedModel, prepare
from atlasc.compilation.search import _mended_on, _trials, _tried_inputs, search_inputs
from atlasc.compilation.source import load_source
from atlasc.ir.errors import AtlasError
from atlasc.loading.inputs import Inputs
from atlasc.polynomials import fitted
from atlasc.polynomials.parametrisation import Parametrisation
from atlasc.progress import Step, quiet
from atlasc.search.front import Front
from atlasc.search.points import expert
from atlasc.search.validation import Validator
from tests.atlasc.cli.command import refused, run

TEXTS = 40
MEASURED = Parametrisation(softmax_ranges="measured")


@pytest.fixture(scope="module")
def folder(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny text model, its bundle, and texts that all have the greatest length."""
    root = Path(shutil.copytree(texts, tmp_path_factory.mktemp("prefixes") / "texts"))
    write_ids(root / "long.jsonl", [LENGTH] * TEXTS)
    return root


def prepared(folder: Path, data: str | Path = "long.jsonl", **options: Any) -> PreparedModel:
    chosen = CalibrationOptions(sequence_length=LENGTH, **options)
    return prepare(str(folder / "model"), folder / data, chosen)


@pytest.fixture(scope="module")
def found(folder: Path) -> PreparedModel:
    return prepared(folder)


def texts_of(inputs: Inputs) -> set[str]:
    """Names of the texts that inputs are, or are prefixes of."""
    return {name.partition(",")[0] for name in inputs.names}


def tokens(inputs: Inputs) -> np.ndarray:
    return inputs.arrays["attention_mask"].sum(axis=1)


def test_a_prefix_goes_where_its_text_goes(folder: Path, found: PreparedModel) -> None:
    source = found.source
    for own, every in ((source.inputs, source.measured), (source.held_back, source.validated)):
        assert (tokens(own) == LENGTH).all()
        assert len(every) == 2 * len(own) and texts_of(every) == texts_of(own)
        assert every.take(range(len(own))).digest() == own.digest()
        assert (tokens(every)[len(own) :] < LENGTH).all()
    assert not texts_of(source.measured) & texts_of(source.validated)
    assert len(source.inputs) + len(source.held_back) == TEXTS
    again = prepared(folder).source
    assert again.measured.digest() == source.measured.digest()
    other = prepared(folder, seed=1).source
    assert other.measured.digest() != source.measured.digest()


def test_calibration_covers_short_texts(folder: Path, found: PreparedModel) -> None:
    source, calibration = found.source, found.calibration
    assert calibration.inputs == len(source.measured)
    assert calibration.held_back == len(source.validated)
    without = prepared(folder, prefixes=False)
    assert without.source.measured is without.source.inputs
    pairs = list(zip(calibration.ranges, without.calibration.ranges, strict=True))
    assert all(own.seen_low <= other.seen_low for own, other in pairs)
    assert all(own.seen_high >= other.seen_high for own, other in pairs)
    assert any(own.seen_high > other.seen_high for own, other in pairs)


def test_a_setting_is_checked_on_as_many_inputs_as_their_answers_fit(
    found: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = found.source.measured
    assert _mended_on(found, 0).digest() == measured.digest()
    (output,) = found.traced.outputs
    answer = 4 * int(np.prod(output.operands[0].tensor.shape[1:]))
    monkeypatch.setattr(search, "MENDED_BYTES", 7 * answer + 1)
    some = _mended_on(found, 0)
    assert len(set(some.names)) == 7 and set(some.names) <= set(measured.names)
    monkeypatch.setattr(search, "MENDED_BYTES", 1)
    assert len(_mended_on(found, 0)) == 1
    monkeypatch.setattr(search, "MENDED_ON", 5)
    monkeypatch.setattr(search, "MENDED_BYTES", 1 << 30)
    assert len(_mended_on(found, 0)) == 5


def test_settings_are_compared_on_texts_and_on_prefixes(found: PreparedModel) -> None:
    own, prefixes = len(found.source.inputs), len(found.source.measured) - len(found.source.inputs)
    ends = (own + 3, 4, own)  # two prefixes and an own input reach the ends of ranges
    ready = replace(found, calibration=replace(found.calibration, extremes=ends))
    arrays, shares = search_inputs(ready, 0, 5, extremes=3)
    measured = found.source.measured.arrays
    for name, array in arrays.items():
        np.testing.assert_array_equal(array[:3], measured[name][list(ends)])
    full = (arrays["attention_mask"] == 1).all(axis=1)
    assert full.tolist() == [False, True, False, *[True] * 5, *[False] * 2]
    # All weigh as much as they occur: an extreme input once.
    assert shares is not None
    np.testing.assert_allclose(
        shares, [1, 1, 1, *[(own - 1) / 5] * 5, *[(prefixes - 2) / 2] * 2], rtol=1e-12
    )
    assert sum(shares) == pytest.approx(own + prefixes)
    # Few texts: all are compared, each once.
    arrays, shares = search_inputs(ready, 0, None)
    assert shares is None
    ids = {tuple(row) for row in arrays["input_ids"]}
    assert ids == {tuple(row) for row in measured["input_ids"]}
    arrays, shares = search_inputs(ready, 0, 5, extremes=0)
    assert shares is not None and sum(shares) == pytest.approx(own + prefixes)


def test_held_back_errors_are_those_of_texts_and_of_prefixes(found: PreparedModel) -> None:
    source = found.source
    front = Front((), "depth", (100.0, 0.2), parametrisation=MEASURED)
    tried = _tried_inputs(found, SearchOptions(), quiet)
    trials = _trials(front, found, tried, None, 1, Step("", None))
    validator, chosen = trials.validator, trials.approximations(expert(2))
    assert validator.inputs == len(source.validated)
    alone = Validator(found.module, source.held_back.arrays, 1).measure(chosen)
    every = Validator(found.module, source.validated.arrays, 1).measure(chosen)
    assert validator.measure(chosen).error == pytest.approx(every.error, rel=1e-6)
    assert every.error != pytest.approx(alone.error, rel=1e-2)
    assert validator.measure(chosen).unsafe == every.unsafe


def test_a_recipe_that_explodes_on_prefixes_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the top of the scores as its constant, a row of one key leaves the paper's ranges."""
    monkeypatch.setattr(fitted, "paper_shift", lambda known, count: known.shift(count - 1))
    call = ("compile", folder / "model", "--data", folder / "long.jsonl", "--recipe", "is")
    call += ("--sequence-length", LENGTH, "--target", "sim", "-o")
    message = refused(*call, folder / "refused")
    assert "explode on this model's own data, or on prefixes of its texts" in message
    assert "--without prefixes" in message
    run(*call, folder / "compiled", "--without", "prefixes")


def test_magnitudes_are_those_of_texts_and_of_prefixes(found: PreparedModel, folder: Path) -> None:
    few = found.source.few(10)
    assert len(few) == 10 and sum("first" in name for name in few.names) == 5
    assert few.names[:5] == found.source.inputs.names[:5]
    assert len(found.source.few(1000)) == len(found.source.measured)
    last = len(found.source.measured) - 1
    extreme = found.source.few(10, [last, 0, last + 1])  # of another calibration: no such input
    assert extreme.names == (*few.names, found.source.measured.names[last])
    without = prepared(folder, prefixes=False).source
    assert without.few(10).names == without.inputs.names[:10]


def test_prefixes_show_no_tail(folder: Path, tmp_path: Path) -> None:
    """Twenty texts are too few to choose a margin by, with their prefixes too."""
    write_ids(tmp_path / "few.jsonl", [LENGTH] * 20)
    calibration = prepared(folder, tmp_path / "few.jsonl").calibration
    assert (calibration.inputs, calibration.margin, calibration.keys) == (32, 0.3, {})


def test_images_have_none(tiny: Tiny) -> None:
    source = load_source(str(tiny.archive), tiny.data)
    assert source.measured is source.inputs and source.validated is source.held_back


def test_a_text_of_one_token_and_texts_of_nothing_else(folder: Path, tmp_path: Path) -> None:
    write_ids(tmp_path / "one.jsonl", [1] * 12)
    ready = prepared(folder, tmp_path / "one.jsonl")
    assert ready.source.measured.names == ready.source.inputs.names
    program = atlasc.load(folder / "bundle")
    assert all(verdict.safe for verdict in program.check([[7], [1, 2]]))
    assert np.isfinite(program.run([[7]]).outputs["last_hidden_state"][:, :1]).all()


def test_texts_that_are_all_alike_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "same.jsonl").write_text('{"input_ids": [1, 2, 3, 4]}\n' * 9)
    with pytest.raises(AtlasError, match="all 9 inputs of .*same.jsonl are identical"):
        prepared(folder, tmp_path / "same.jsonl")


def test_the_command_line_says_how_many_there_are(folder: Path) -> None:
    call = ("calibrate", folder / "model", "--data", folder / "long.jsonl")
    call += ("--sequence-length", LENGTH)
    out = run(*call).out
    assert "32 inputs and prefixes of 32 of these texts" in out and "of 16 held-back inputs" in out
    plain = run(*call, "--without", "prefixes").out
    assert "32 inputs, margins" in plain and "of 8 held-back inputs" in plain
