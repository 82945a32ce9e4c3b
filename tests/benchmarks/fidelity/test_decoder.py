"""Figures of a decoder that writes under the errors of encryption."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fidelity.decoder import PROMPT, Steps, continued, padded, perplexity

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


def test_perplexity_is_of_the_tokens_after_the_prompt() -> None:
    ids = RANDOM.integers(0, 4, (2, PROMPT + 3))
    assert perplexity(ids, lambda ids, count: np.zeros((len(ids), 4))) == pytest.approx(4.0)


def test_padding_fills_a_program() -> None:
    found = padded({"input_ids": np.array([[1, 2]])}, 4)
    assert found["input_ids"].tolist() == [[1, 2, 0, 0]]
