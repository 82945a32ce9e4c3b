"""What a compiled program does on inputs, and whether its verdict on them is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.analyses.bounds import RANGE
from atlasc.api.program import Program
from atlasc.bundle.folder import Bundle
from atlasc.client.verdict import Verdict
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import load_model
from atlasc.simulation.agreement import PROMISED
from benchmarks.fidelity.noisy import NoisyProgram

CHUNK = 16
"""Inputs that are evaluated together."""


@dataclass(frozen=True)
class Measured:
    """Figures of some inputs, ``[inputs]`` each.

    Attributes:
        tokens: that the model reads, special ones too.
        safe: the verdict on the input.
        outside: how far it leaves a range at most, as a share of the range's width; 0 inside.
        reach: the greatest magnitude that a bootstrap gets; programs are compiled for `RANGE`.
        error: mean absolute error of the polynomials' answer, over the tokens of the text; infinite
            where it is not finite.
        noisy_error: the same with the errors of bootstraps: what an encrypted run would give.
        cosine: of the embedding that an encrypted run would give, the mean of the hidden states,
            with the model's own; NaN where it is not finite.
    """

    tokens: np.ndarray
    safe: np.ndarray
    outside: np.ndarray
    reach: np.ndarray
    error: np.ndarray
    noisy_error: np.ndarray
    cosine: np.ndarray

    def summary(self, limit: float) -> dict[str, float | int | None]:
        """Figures of all inputs together. Errors and cosines are of the safe inputs with finite
        answers; None where there are none.

        Args:
            limit: the error beyond which an answer is wrong.
        """
        safe, right = self.safe, self.noisy_error <= limit
        finite = safe & np.isfinite(self.noisy_error)
        return {
            "inputs": len(safe),
            "tokens": float(self.tokens.mean()),
            "unsafe": float((~safe).mean()),
            "error": _of(np.mean, self.error[finite]),
            "encrypted": _of(np.mean, self.noisy_error[finite]),
            "worst": _of(np.max, self.noisy_error[finite]),
            "1 - cosine": _of(np.mean, 1.0 - self.cosine[finite]),
            "largest": _of(np.max, 1.0 - self.cosine[finite]),
            "not finite": int((safe & ~finite).sum()),
            "beyond 1": int((safe & ~(self.reach <= RANGE)).sum()),
            "false safe": int((safe & ~right).sum()),
            "false unsafe": int((~safe & right).sum()),
        }

    def to_dict(self) -> dict[str, list[Any]]:
        """As JSON values."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}


def _of(statistic: Any, values: np.ndarray) -> float | None:
    return float(statistic(values)) if len(values) else None


class Measurer:
    """Measures one program.

    Args:
        bundle: all-MiniLM-L6-v2, compiled.
        model: its HuggingFace directory, with the weights.
    """

    def __init__(self, bundle: Bundle, model: Path) -> None:
        self.bundle = bundle
        self._program = Program(bundle)
        self._noisy = NoisyProgram(bundle)
        self._model = HuggingFace(model)

    @property
    def limit(self) -> float:
        """The mean absolute error beyond which an answer is wrong: what the program promises."""
        return float(self.bundle.poly.attributes[PROMISED])

    def measure(
        self, rows: Sequence[Any], done: Callable[[int], None] = lambda count: None
    ) -> Measured:
        """What the program does on texts or token ids; calls ``done`` with how many more it did."""
        inputs = self._program.inputs(rows)
        parts = []
        for start in range(0, len(inputs), CHUNK):
            part = inputs.take(range(start, min(start + CHUNK, len(inputs))))
            parts.append(self._part(part))
            done(len(part))
        each = zip(*(vars(part).values() for part in parts), strict=True)
        return Measured(*map(np.concatenate, each))

    def _part(self, inputs: Inputs) -> Measured:
        verdicts = self._program.check(inputs)
        kept = inputs.arrays["attention_mask"].astype(bool)
        expected = self._model(inputs.arrays)
        prepared = self._noisy.prepare(inputs.arrays)
        outputs, reach = self._noisy.run(prepared)
        (plain,), (noisy,) = outputs.values(), self._noisy.run_with_errors(prepared).values()
        return Measured(
            kept.sum(axis=1),
            np.array([verdict.safe for verdict in verdicts]),
            np.array(list(map(outside, verdicts))),
            reach,
            errors(plain, expected, kept),
            errors(noisy, expected, kept),
            cosines(means(noisy, kept), means(expected, kept)),
        )


class HuggingFace:
    """The answers of a model as HuggingFace runs it.

    Args:
        folder: its directory, with the weights.
    """

    def __init__(self, folder: Path) -> None:
        self._module = load_model(folder).module.eval()

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Logits, or hidden states ``[N, n, d]`` where the model has no head."""
        import torch

        with torch.inference_mode():
            found = self._module(**{name: torch.from_numpy(a) for name, a in arrays.items()})
        answer = found["logits" if "logits" in found else "last_hidden_state"]
        return np.asarray(answer.double().numpy())


def outside(verdict: Verdict) -> float:
    """How far an input leaves a range at most, as a share of the range's width."""
    return 0.0 if verdict.worst is None else verdict.worst.share


def errors(answers: np.ndarray, expected: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Mean absolute errors ``[N]`` of hidden states ``[N, n, d]`` over the tokens of each text,
    ``kept`` ``[N, n]``; infinite where a number is not finite.
    """
    with np.errstate(all="ignore"):
        by_token = np.abs(answers - expected).mean(axis=-1)
        found = np.where(kept, by_token, 0.0).sum(axis=1) / kept.sum(axis=1)
    return np.where(np.isfinite(found), found, np.inf)


def means(hidden: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Sentence embeddings ``[N, d]``: the means of the hidden states of each text's tokens."""
    return np.where(kept[..., None], hidden, 0.0).sum(axis=1) / kept.sum(axis=1, keepdims=True)


def cosines(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of the angles between vectors ``[N, d]``; NaN where a number is not finite."""
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(some, axis=1) * np.linalg.norm(others, axis=1)
        return (some * others).sum(axis=1) / norms
