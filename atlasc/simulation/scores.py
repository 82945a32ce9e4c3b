"""How well answers match the true labels of inputs."""

from __future__ import annotations

import numpy as np

from atlasc.simulation.agreement import Measure


def right(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether the best of each row of scores [N, K] is the true class [N]; [N]."""
    return np.isfinite(answers).all(axis=1) & (answers.argmax(axis=1) == labels)


def score(measure: Measure, answers: np.ndarray, labels: np.ndarray) -> float | None:
    """The share of right classes; for values their correlation (Pearson) with the labels.

    None if fewer than two inputs have a label, if labels do not apply (to the classes of tokens, or
    to vectors), or if the correlation is not defined.

    Args:
        measure: how agreement is judged.
        answers: [N, ...] of one output.
        labels: [N] class numbers, or values; NaN for inputs without a label.
    """
    known = np.isfinite(labels)
    answers, labels = answers[known], labels[known]
    if len(labels) < 2 or measure == "tokens":
        return None
    answers = answers.reshape(len(answers), -1)
    if measure == "class":
        return float(right(answers, labels).mean())
    return correlation(answers[:, 0], labels) if answers.shape[1] == 1 else None


def correlation(values: np.ndarray, labels: np.ndarray) -> float | None:
    """Pearson's correlation of values [N]; None if one side does not vary or is not finite."""
    both = np.stack([values, labels]).astype(np.float64)
    if not np.isfinite(both).all() or (np.ptp(both, axis=1) == 0).any():
        return None
    return float(np.clip(np.asarray(np.corrcoef(both))[0, 1], -1, 1))


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Logarithms of the softmax over the last axis."""
    with np.errstate(all="ignore"):
        shifted = scores - scores.max(axis=-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def ranks(values: np.ndarray) -> np.ndarray:
    """The places of values in their order, for Spearman's correlation."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)
