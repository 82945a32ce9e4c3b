"""Agreement with the model: what is wrong, what nobody can decide, and what may be called safe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.simulation.agreement import (
    COSINE,
    FINEST,
    LARGEST,
    PROMISE,
    Comparison,
    Measure,
    Promise,
    compared,
    promised,
    variation,
)
from atlasc.simulation.scores import score

BARE = Module("m", "poly")
CLASS = Promise("class", 0.5, 0.0, 10.0)


def beside(promise: Promise, answers: object, model: object) -> Comparison:
    return compared(promise, BARE, {}, {"y": np.array(answers)}, {"y": np.array(model)})


def test_variation_knows_no_bias() -> None:
    """Logits that vary by 0.15 around 100: their magnitude says nothing."""
    spread = np.random.default_rng(0).normal(scale=0.15, size=(500, 4))
    outputs = {"y": 100 + np.arange(4) + spread}
    assert variation(outputs, {"y": None}) == pytest.approx(0.15, rel=0.05)
    assert variation({"y": spread[:, 0]}, {"y": None}) == pytest.approx(0.15, rel=0.1)


def test_variation_leaves_out_what_has_no_weight() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(20, 5, 3))
    keep = (np.arange(5) < rng.integers(1, 6, size=(20, 1)))[..., None].astype(float)
    wild = {"y": np.where(keep > 0, hidden, 1e6)}
    tame = {"y": hidden}
    assert variation(wild, {"y": keep}) == variation(tame, {"y": keep}) < 2
    assert variation({"y": np.full((3, 2), -4.0)}, {"y": None}) == 4.0  # nothing varies
    assert variation({"y": np.zeros((3, 2))}, {"y": None}) == 1.0


def test_the_promise_is_against_the_variation_and_counts_encryption() -> None:
    for measure in ("class", "tokens"):  # classes may be right for all that a score errs
        assert promised(measure, 0.0, 2.0).near == pytest.approx(PROMISE * FINEST * 2.0)
        assert promised(measure, 0.0, 2.0).error == pytest.approx(LARGEST * 2.0)
    assert promised("class", 0.1, 2.0, 0.3).error == pytest.approx(1.3)
    for measure in ("tokens", "values"):  # numbers that err by more are other numbers
        assert promised(measure, 0.1, 2.0, 0.3).error == pytest.approx(LARGEST * 2.0)
    made = promised("values", 0.001, 2.0, 0.012345)
    module = Module("m", "poly", attributes=made.attributes())
    assert Promise.of(module) == Promise("values", 0.0723, 0.0123, 2.0)
    scores = promised("class", 0.001, 2.0, 0.012345)
    module = Module("m", "poly", attributes=scores.attributes())
    assert Promise.of(module) == Promise("class", 0.2, 0.0123, 2.0, 0.0723)
    assert Promise.of(BARE) is None
    assert "errs by more than 0.0723, 3.62% of how answers vary, counts as wrong" in str(made)
    assert "encryption adds at most 0.012" in str(made)


def test_another_class_is_wrong_and_a_near_one_undecided() -> None:
    model = [[3.0, 0.0], [3.0, 0.0], [3.0, 2.9], [3.0, 2.9]]
    found = beside(CLASS, [[2.9, 0.1], [1.4, 1.5], [2.9, 3.0], [3.0, 2.9]], model)
    wide = replace(CLASS, error=5.0, variation=1.0)
    assert found.disagrees(CLASS, 0) == found.undecided(CLASS, 0) == ""
    assert "errs by 1.55; the program promises 0.5" in found.disagrees(CLASS, 1)
    assert "its class differs from the model's" in found.disagrees(wide, 1)
    assert found.disagrees(CLASS, 2) == found.disagrees(CLASS, 3) == ""
    assert "the model itself hardly decides" in found.undecided(CLASS, 2)
    # The answer has the model's class, and nothing is left to chance but encryption; unless the
    # margin is not the model's own.
    assert found.undecided(CLASS, 3) == ""
    assert "the model itself hardly decides" in found.undecided(CLASS, 3, known=False)
    assert found.agreement(CLASS).tolist() == [1, 0, 0, 1]
    # A program that errs by more than classes are apart has the right class by chance.
    assert "is chance" in found.disagrees(wide, 0)


@pytest.mark.parametrize("variation", [2.77907, *np.random.default_rng(0).lognormal(size=200)])
def test_a_promise_that_a_module_keeps_is_as_coarse_as_it_was(variation: float) -> None:
    module = Module("program", "poly")
    for share in (0.002, 0.009, 0.011, 0.05):  # ten times these is usual
        made = promised("class", share * variation, variation)
        module.attributes = made.attributes()
        kept = Promise.of(module)
        assert kept is not None and kept.coarse == made.coarse == (share > 0.01)


def test_encryption_may_decide() -> None:
    promise = Promise("class", 0.5, 0.2, 10.0)
    found = beside(promise, [[1.0, 0.7], [1.3, 0.7]], [[1.3, 0.7], [1.3, 0.7]])
    assert "errors of encryption may change its class" in found.undecided(promise, 0)
    assert found.undecided(promise, 1) == ""


def test_an_accurate_program_decides_where_the_model_does() -> None:
    """Scores of two classes that err by 9e-4 and vary by 1.8: 24 of 480 were undecided."""
    rng = np.random.default_rng(0)
    model = rng.normal(scale=1.8, size=(480, 2))
    answers = model + rng.laplace(scale=9e-4, size=model.shape)
    promise = promised("class", 9e-4, variation({"y": model}, {"y": None}), 1e-4)
    found = beside(promise, answers, model)
    close = np.abs(model[:, 0] - model[:, 1]) <= promise.near
    assert close.sum() >= 5
    undecided = [row for row in range(480) if found.undecided(promise, row)]
    assert len(undecided) <= 2
    ratios = [promise.stated(error) / error for error in found.errors]
    assert min(ratios) >= 1 and np.median(ratios) <= 2


def test_most_tokens_are_decided_if_the_program_is_accurate() -> None:
    """Each token's two best scores are closer than answers usually err, but have the same order."""
    promise = Promise("tokens", 1.0, 0.0, 10.0, usual=0.5)
    model = np.tile([0.1, 0.0], (1, 6, 1))
    for moved, undecided in ((0.0, False), (0.2, True)):
        found = beside(promise, model + [0.0, moved], model)
        assert bool(found.undecided(promise, 0)) == undecided


def test_values_need_a_cosine_and_a_small_error() -> None:
    promise = Promise("values", 0.2, 0.0, 2.0)
    model = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [np.nan, 0.0]]
    found = beside(promise, [[1.0, 0.05], [1.0, 0.11], [1.5, 0.0], [1.0, 0.0]], model)
    assert found.disagrees(promise, 0) == ""
    assert "cosine of its answer" in found.disagrees(promise, 1)
    assert "errs by 0.25" in found.disagrees(promise, 2)
    assert "errs by inf" in found.disagrees(promise, 3)
    assert found.agreement(promise).tolist() == [1, 0, 0, 0]
    alone = beside(promise, [[0.1], [-0.1]], [[-0.05], [0.25]])  # a number has no cosine
    assert alone.cosines.tolist() == [1, 1]
    assert [alone.disagrees(promise, row) == "" for row in (0, 1)] == [True, False]


def test_each_token_counts_but_for_padding() -> None:
    module = parse("""module @m : poly {
      %m = poly.input {name = "mask", shape = [1, 3], side = "public", dtype = "f64"} :
        tensor<1x3xf64, public>
    }""")
    promise = Promise("tokens", 1.0, 0.0, 10.0)
    model = np.array([[[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]] * 3)
    answers = model.copy()
    answers[1, 2], answers[2, 1] = (0.0, 2.0), (0.9, 0.8)
    masks = {"mask": np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]])}
    found = compared(promise, module, masks, {"y": answers}, {"y": model})
    assert found.same == pytest.approx([1, 1, 2 / 3])
    assert [found.disagrees(promise, row) == "" for row in range(3)] == [True, True, False]
    assert found.agreement(promise) == pytest.approx([1, 1, 2 / 3])


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("error", [1e-3, 0.03, 0.3, 3.0])
def test_what_is_called_safe_has_the_models_class(error: float, noise: float) -> None:
    """Settings of any quality, errors that agree or not, and the errors of encryption on top."""
    rng = np.random.default_rng(int(1e4 * (error + noise)))
    model = rng.normal(size=(20000, 5)) + 100
    answers = model + rng.laplace(scale=error, size=model.shape) + rng.normal(scale=error, size=5)
    mean = float(np.abs(answers - model).mean())
    promise = promised("class", mean, variation({"y": model}, {"y": None}), noise)
    found = beside(promise, answers, model)
    safe = np.array(
        [not found.disagrees(promise, n) and not found.undecided(promise, n) for n in range(20000)]
    )
    encrypted = answers + rng.normal(scale=noise / 3, size=model.shape)
    same = (encrypted.argmax(axis=1) == model.argmax(axis=1))[safe]
    assert same.mean() >= 0.995 if len(same) else error >= 0.3
    within = np.abs(encrypted - model).mean(axis=1)[safe] <= promise.error
    assert within.mean() >= 0.995 if len(within) else True
    stated = np.array([promise.stated(float(one)) for one in found.errors])
    assert (np.abs(encrypted - model).mean(axis=1) <= stated).all()
    assert safe.mean() > 0.9 if error + noise < 2e-3 else safe.mean() < 0.99
    if error == 3.0:
        assert not len(same) or safe.mean() < 0.01


@pytest.mark.parametrize("measure", ["values", "tokens"])
def test_a_bad_program_promises_no_more_than_agreement_allows(measure: Measure) -> None:
    rng = np.random.default_rng(3)
    model = rng.normal(size=(300, 16))
    answers = model + rng.normal(scale=0.3, size=model.shape)
    promise = promised(measure, 0.24, 1.0)
    found = beside(promise, answers, model)
    assert found.wrong(promise).all()
    good = model + rng.normal(scale=0.02, size=model.shape)
    fine = beside(promised("values", 0.016, 1.0), good, model)
    assert not fine.wrong(promised("values", 0.016, 1.0)).any()
    assert (fine.cosines >= COSINE).all()


def test_scores() -> None:
    answers = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [np.nan, 1.0]])
    labels = np.array([0.0, 0.0, np.nan, 1.0])
    assert score("class", answers, labels) == pytest.approx(1 / 3)
    assert score("tokens", answers, labels) is score("values", answers, labels) is None
    line = np.array([[1.0], [2.0], [4.0]])
    assert score("values", line, np.array([2.0, 3.0, 5.0])) == pytest.approx(1)
    assert score("values", line, np.array([-2.0, np.nan, -4.0])) == pytest.approx(-1)
    assert score("values", line, np.array([1.0, 1.0, 1.0])) is None
