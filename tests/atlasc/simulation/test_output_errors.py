"""The errors of outputs: numbers, and scores of the class of each token."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax
from small_transformers import Builder, Shape, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.compilation.search import note_short_texts
from atlasc.search.points import expert
from atlasc.search.search_problem import SearchProblem
from atlasc.simulation.output_errors import Reference, divergences

RNG = np.random.default_rng(0)


def by_definition(scores: np.ndarray, exact: np.ndarray) -> np.ndarray:
    ours, theirs = log_softmax(scores, axis=-1), log_softmax(exact, axis=-1)
    return (np.exp(theirs) * (theirs - ours)).sum(axis=-1)


@pytest.mark.parametrize("size", [1e-2, 1.0, 30.0])
def test_the_divergence_is_the_definitions(size: float) -> None:
    exact = 5 * RNG.normal(size=(7, 50))
    scores = exact + size * RNG.normal(size=exact.shape)
    found = divergences(scores, exact)
    np.testing.assert_allclose(found, by_definition(scores, exact), rtol=1e-9)


def test_small_errors_lose_no_digits_and_a_common_shift_counts_nothing() -> None:
    exact = 5 * RNG.normal(size=(4, 50))
    d = 1e-7 * RNG.normal(size=exact.shape)
    p = np.exp(log_softmax(exact, axis=-1))
    variance = (p * d * d).sum(-1) - (p * d).sum(-1) ** 2
    found = divergences(exact + d, exact)
    np.testing.assert_allclose(found, variance / 2, rtol=1e-2)
    assert np.abs(divergences(exact + 3.0, exact)).max() < 1e-15


def test_scores_of_tokens_count_by_their_probabilities() -> None:
    """An error of a word that the model finds unlikely counts less than one of a likely word."""
    exact = np.tile([6.0, 5.0, -9.0, -9.0], (2, 3, 1))
    weights = {"logits": np.array([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])[..., None]}
    reference = Reference({"logits": exact}, weights, "tokens")
    unlikely, likely, padding = (exact.copy() for _ in range(3))
    unlikely[..., 2] += 1.5
    likely[..., 1] += 1.5
    padding[0, 2] += [-30, 30, 0, 0]
    assert reference.errors({"logits": unlikely}).error < 1e-2
    found = reference.errors({"logits": likely})
    divergence = by_definition(likely, exact)[0, 0]
    assert found.error == pytest.approx(np.sqrt(2 * divergence))
    assert (found.divergence, found.top_1) == (pytest.approx(divergence), 0.0)
    assert found.mean_error == pytest.approx(1.5 / 4)
    assert reference.errors({"logits": padding}) == (0.0, 0.0, 0.0, 1.0)
    one = exact.copy()
    one[0, 0, 1] += 1.5  # a token of weight 1 of 4
    assert reference.errors({"logits": one}).top_1 == 0.75
    values = replace(reference, measure="values").errors({"logits": likely})
    assert values == (found.mean_error, found.mean_error, None, None)


def test_a_score_that_is_not_finite_is_an_infinite_error() -> None:
    exact = RNG.normal(size=(1, 3, 4))
    reference = Reference({"logits": exact}, {"logits": None}, "tokens")
    scores = exact.copy()
    scores[0, 1, 2] = np.nan
    assert reference.errors({"logits": scores})[:3] == (np.inf,) * 3


def test_points_of_scores_of_tokens_have_all_measures() -> None:
    shape = Shape(layers=1, batch=4, mask=True, classes=0)
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    problem = SearchProblem(module, calibrate(module, arrays, margin=0.2), arrays, threads=1)
    by_value = problem.objective().evaluate(expert(1))
    of_tokens = replace(problem, measure="tokens")
    by_token = of_tokens.objective().evaluate(expert(1))
    assert by_token.mean_error == by_value.error
    assert by_token.divergence is not None
    assert by_token.error == pytest.approx(np.sqrt(2 * by_token.divergence))
    assert 0.0 <= (by_token.top_1 or -1.0) <= 1.0
    assert (by_value.divergence, by_value.top_1) == (None, None)
    assert of_tokens.identity() != problem.identity()


@pytest.mark.parametrize(("long", "measure", "said"), [
    (4, "tokens", 1), (5, "tokens", 0), (4, "values", 0), (4, "class", 0)
])  # fmt: skip
def test_data_too_short_to_show_a_collapse_are_said(long: int, measure: str, said: int) -> None:
    mask = np.zeros((9, 40), np.int64)
    mask[:, :29] = 1
    mask[:long, :30] = 1
    source = SimpleNamespace(inputs=SimpleNamespace(arrays={"attention_mask": mask}), length=40)
    notes: list[str] = []
    note_short_texts(SimpleNamespace(source=source), measure, lambda what, why: notes.append(what))
    assert len(notes) == said
    assert all(f"only {long} texts fill" in one for one in notes)
