"""What is written by encrypted windows, and the journal of long runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.fidelity.encrypted import write
from benchmarks.fidelity.journal import Journal
from tests.benchmarks.fidelity.test_decoder import VOCABULARY, made

LENGTH, PROMPT = 9, 3


def test_a_draft_is_corrected_where_the_program_prefers_another_token() -> None:
    """The text is what a program with these logits writes by itself, token by token."""
    module, shift = made(), np.random.default_rng(0).normal(size=VOCABULARY)
    start = np.array([[1, 2, 3]])
    windows: list[np.ndarray] = []

    def program(ids: np.ndarray) -> np.ndarray:
        """Another model of the same text: some of its tokens differ."""
        with torch.no_grad():
            logits = module(torch.from_numpy(ids)).logits[0].numpy()
        return np.asarray(logits + 3 * shift * (np.arange(ids.shape[1]) % 3 == 1)[:, None])

    def window(ids: np.ndarray) -> dict[str, np.ndarray]:
        windows.append(ids)
        return {"program": program(ids), "polynomials": program(ids) + 1.0}

    ids = start
    while ids.shape[1] < LENGTH:
        ids = np.concatenate([ids, program(ids)[[-1]].argmax(axis=-1)[None]], axis=1)
    own, polynomials, model = write(start, LENGTH, window, module)
    assert own.argmax(axis=-1).tolist() == ids[0, PROMPT:].tolist()
    np.testing.assert_allclose(polynomials, own + 1.0)
    with torch.no_grad():
        expected = module(torch.from_numpy(ids)).logits[0, PROMPT - 1 : -1].numpy()
    np.testing.assert_allclose(model, expected, atol=1e-5)
    assert (model.argmax(axis=-1) != own.argmax(axis=-1)).any()
    assert 1 < len(windows) < LENGTH - PROMPT


def test_a_journal_keeps_what_was_computed(tmp_path: Path) -> None:
    """What follows from other ids, or of other programs, is computed anew."""
    calls: list[int] = []

    def compute() -> dict[str, np.ndarray]:
        calls.append(len(calls))
        return {"calls": np.array(len(calls))}

    for what, ids, expected in (("a", 3, 1), ("a", 3, 1), ("a", 4, 2), ("b", 3, 3), ("a", 3, 1)):
        found = Journal(tmp_path / "kept", what).once(np.array([[ids]]), compute)
        assert found["calls"] == expected
    assert len(calls) == 3
    Journal(None, "a").once(np.array([[3]]), compute)
    assert len(calls) == 4
