"""Figures of a decoder that writes under the errors of encryption."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from short_text import poly

from atlasc.bundle.folder import Bundle
from atlasc.targets.noise import NoiseModel
from benchmarks.fidelity.decoder import (
    PROMPT,
    Steps,
    continued,
    first_flip,
    perplexity,
    written_by,
)
from benchmarks.fidelity.noisy import NoisyProgram
from benchmarks.fidelity.passages import KINDS, passages
from benchmarks.fidelity.steps import NoisySteps, model_steps
from tests.atlasc.generation.conftest import TOKENS, VOCABULARY, bundle, tokenizer
from tests.atlasc.generation.conftest import model as made

__all__ = ["bundle"]

RANDOM = np.random.default_rng(0)
CLEAR = RANDOM.normal(size=(5, 3, 7))


def test_equal_logits_agree() -> None:
    """A constant added to all logits changes nothing."""
    found = Steps(CLEAR + 100.0, CLEAR).summary()
    assert (found["sequences"], found["steps"], found["top-1"]) == (3, 15, 1.0)
    assert found["KL, worst"] == pytest.approx(0.0, abs=1e-9)
    assert found["collapsed"] == found["margin of flips"] == 0


def test_the_divergence_is_that_of_kullback_and_leibler() -> None:
    program, model = np.log([[[0.2, 0.8]]]), np.log([[[0.5, 0.5]]])
    expected = 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.8)
    assert Steps(program, model).divergences() == pytest.approx(expected)


def test_flips_and_collapses_are_counted_by_sequence() -> None:
    program = CLEAR.copy()
    program[2, 0, 0] = np.nan
    program[3, 1] = -20 * CLEAR[3, 1]
    found = Steps(program, CLEAR).summary()
    assert found["collapsed"] == 2
    assert found["top-1"] < 1 and np.isinf(found["KL, worst"])
    best = np.sort(CLEAR[3, 1])
    assert found["margin of flips"] >= best[-1] - best[-2]


def test_a_program_reads_what_it_wrote() -> None:
    """Each token is one more than the last, as the program sees it; the model says two more."""

    def logits(step: int):
        return lambda ids, count: np.eye(50)[(ids[:, count - 1] + step) % 50]

    written, steps = continued(np.array([[3], [7]]), 4, logits(1), logits(2))
    assert written.tolist() == [[3, 4, 5, 6, 7], [7, 8, 9, 10, 11]]
    assert steps.program.shape == steps.model.shape == (4, 2, 50)
    assert steps.model.argmax(axis=-1)[:, 0].tolist() == [5, 6, 7, 8]


def test_a_model_that_writes_alone_is_asked_once_for_each_token() -> None:
    asked = []

    def logits(ids: np.ndarray, count: int) -> np.ndarray:
        asked.append(count)
        return np.eye(50)[ids[:, count - 1] + 1]

    assert written_by(logits, np.array([[3]]), 3).tolist() == [[3, 4, 5, 6]]
    assert asked == [1, 2, 3]


def test_logits_of_the_model_keep_nothing_else_in_memory() -> None:
    """A view of the last token's would keep those of all tokens."""
    logits = model_steps(made())(np.array([[1, 2, 3]]), 3)
    assert logits.shape == (1, VOCABULARY) and logits.base is None


def test_perplexity_is_of_the_tokens_after_the_prompt() -> None:
    ids = RANDOM.integers(0, 4, (2, PROMPT + 3))
    assert perplexity(ids, lambda ids, count: np.zeros((len(ids), 4))) == pytest.approx(4.0)


def test_the_first_flip_has_a_cause(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step, its text, and whether the polynomials alone prefer the model's token."""
    monkeypatch.setattr("benchmarks.fidelity.decoder.PROMPT", 3)
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (2, TOKENS))
    model, tokens = model_steps(made()), range(3, TOKENS)
    clear = np.stack([model(ids, count) for count in tokens])
    assert first_flip(bundle, ids, Steps(clear, clear)) == "none"
    order = clear[1, 0].argsort()
    swapped = clear.copy()
    swapped[1, 0, order[-2:]] = clear[1, 0, order[[-1, -2]]]
    found = first_flip(bundle, ids, Steps(swapped, clear))
    assert found.startswith(f"token 2 of text 1: {order[-2]} instead of {order[-1]}")
    assert found.endswith("so bootstraps decide")
    assert first_flip(bundle, ids, Steps(clear, swapped)).endswith("so polynomials decide")


def test_padding_of_a_prompt_is_that_of_the_bundle(bundle: Bundle) -> None:
    def load_inputs(arrays: dict[str, np.ndarray]) -> SimpleNamespace:
        found = bundle.load_inputs(arrays).arrays
        ids = np.where(found["attention_mask"], found["input_ids"], 7)
        return SimpleNamespace(arrays={**found, "input_ids": ids})

    other = SimpleNamespace(
        client=SimpleNamespace(embedded=lambda arrays: arrays), poly=bundle.poly,
        parameters=bundle.parameters, manifest=bundle.manifest, load_inputs=load_inputs,
    )  # fmt: skip
    found = NoisySteps(other, 3)._inputs(np.array([[1, 2, 3]]))
    assert found["input_ids"].tolist() == [[1, 2, 3] + [7] * (TOKENS - 3)]


def test_steps_are_windows_and_the_models_own_cache(bundle: Bundle) -> None:
    """Without errors of encryption each step gives the logits of a window."""
    noise = replace(bundle.parameters.noise_model(), bootstrap=0.0, bootstrap_cubic=0.0)
    steps = NoisySteps(bundle, 3, noise)
    assert sorted(steps.kept) == ["keys.0", "values.0"]
    program, model, clear = steps.logits(), model_steps(made()), made()
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (3, TOKENS))
    whole = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    exact = NoisyProgram(bundle, noise)
    (window,) = exact.run_with_errors(exact.prepare(whole)).values()
    with torch.no_grad():
        wanted = clear(torch.from_numpy(ids)).logits.numpy()
    for _ in range(2):  # a second text begins anew
        for count in range(3, TOKENS + 1):
            np.testing.assert_allclose(program(ids, count), window[:, count - 1], atol=1e-5)
            np.testing.assert_allclose(model(ids, count), wanted[:, count - 1], atol=1e-4)


def test_polynomials_in_float32(bundle: Bundle) -> None:
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (3, TOKENS))
    whole = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    found = []
    for dtype in (np.float64, np.float32):
        program = NoisyProgram(bundle, NoiseModel(), dtype)
        (logits,) = program.run_with_errors(program.prepare(whole)).values()
        assert logits.dtype == dtype
        found.append(logits)
    assert 0 < np.abs(found[1] - found[0]).max() < 1e-3


def test_a_value_of_a_step_errs_where_that_of_the_window_does() -> None:
    text = '%a = poly.square %x BOUND\n%b = poly.square %a\npoly.output %b {name = "b"}'
    window = poly(text.replace("BOUND", "{bound = 0.9}"), None, (1, 2, 6))
    bundle = SimpleNamespace(client=None, poly=window, parameters=None)
    noisy, x = NoisyProgram(bundle, NoiseModel(bootstrap=0.1)), np.full((1, 2, 6), 0.5)
    step = text.replace("BOUND", "")
    same, other = (
        noisy.interpreter(poly(one, None, (1, 2, 6))).run({"x": x})["b"]
        for one in (step, step.replace("%a", "%c"))
    )
    assert (same != x**4).any()
    assert (other == x**4).all()


@pytest.mark.deep("benchmarks")
def test_passages_are_those_of_the_tokenizer() -> None:
    """Words are tokens here, so that a passage of 8 tokens has 8 words."""
    for kind in KINDS:
        found = passages(kind, tokenizer(), 5, 8)
        assert len(set(found)) == 5
        assert found == passages(kind, tokenizer(), 5, 8)
        assert all(len(tokenizer()(text)["input_ids"]) == 8 for text in found)
    with pytest.raises(ValueError, match="lists: only"):
        passages("lists", tokenizer(), 10**7, 8)
