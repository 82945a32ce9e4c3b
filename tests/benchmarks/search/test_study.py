"""Surrogates against the true error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.search.points import Point
from atlasc.search.search_problem import Objective
from atlasc.search.strategies.hybrid import spearman
from benchmarks.search.study import StudyOptions, show, study, subset_sizes


@pytest.fixture(scope="module")
def found(problem):
    reports = []
    result = study(
        problem, StudyOptions(seed=3, settings=8), lambda *report: reports.append(report)
    )
    return result, reports


def test_every_surrogate_is_compared_with_the_true_error(found, problem) -> None:
    result, reports = found
    assert (result.inputs, result.layers) == (3, 2)
    assert [(s.inputs, s.layers) for s in result.subsets] == [(1, 2), (2, 2), (3, 2)]
    assert [(s.inputs, s.layers) for s in result.early_layers] == [(3, 1), (3, 2)]
    for true in (result.subsets[-1], result.early_layers[-1]):
        assert (true.correlation, true.speed_up) == (1.0, 1.0)
    for surrogate in (*result.subsets, *result.early_layers):
        assert -1 <= surrogate.correlation <= 1
        assert surrogate.seconds > 0
        assert surrogate.speed_up == pytest.approx(true.seconds / surrogate.seconds)
    assert len(result.errors) == 8 and np.isfinite(result.errors).all()
    assert result.drawn > 8  # most settings explode
    assert [done for _, done, _ in reports] == list(range(1, 8 * 4 + 1))
    assert {total for _, _, total in reports} == {8 * 4}


def test_a_seed_fixes_the_settings(found, problem) -> None:
    again = study(problem, StudyOptions(seed=3, settings=8))
    assert (again.errors, again.drawn) == (found[0].errors, found[0].drawn)
    correlations = [s.correlation for s in found[0].subsets]
    assert [s.correlation for s in again.subsets] == correlations
    assert study(problem, StudyOptions(seed=4, settings=8)).errors != again.errors


def test_inputs_keep_their_weights(problem) -> None:
    shares = (5.0, 1.0, 2.0)
    weighted = study(replace(problem, shares=shares), StudyOptions(seed=3, settings=3))
    assert [s.inputs for s in weighted.subsets] == [1, 2, 3]
    equal = study(replace(problem, shares=(2.0, 2.0, 2.0)), StudyOptions(seed=3, settings=3))
    plain = study(problem, StudyOptions(seed=3, settings=3))
    assert equal.errors == pytest.approx(plain.errors)
    assert weighted.errors != pytest.approx(plain.errors)


def test_the_plot_is_a_png(found, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    found[0].plot(tmp_path / "study.png")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_without_finite_settings_is_refused(problem, monkeypatch) -> None:
    monkeypatch.setattr(Objective, "evaluate", lambda self, s: Point(1, 1, np.inf, s))
    with pytest.raises(AtlasError, match="only 0 of 600 settings are finite"):
        study(problem, StudyOptions(settings=3))
    with pytest.raises(AtlasError, match="at least 3"):
        StudyOptions(settings=2)


def test_the_sizes_of_subsets() -> None:
    assert subset_sizes(1) == [1]
    assert subset_sizes(10) == [1, 2, 5, 10]
    assert subset_sizes(90) == [1, 2, 5, 10, 20, 50, 90]
    assert subset_sizes(500) == [1, 2, 5, 10, 20, 50, 100, 200, 500]


def test_the_rank_correlation() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_the_tables_are_shown(found, capsys) -> None:
    show(found[0])
    text = capsys.readouterr().out
    assert "Spearman" in text and "8 settings with errors from" in text
