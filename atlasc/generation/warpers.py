"""Which tokens may be drawn, and how likely each is.

Each function is a class of ``transformers.generation.logits_process`` ("warper"), and
:data:`WARPERS` has their order. Each keeps one token at least.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from atlasc.generation.processors import NEVER
from atlasc.loading.generation.settings import Settings

COLDEST = 1e-20
"""A temperature at which only tokens of equal scores are drawn."""
TOP_H_TOKENS = 100
"""Tokens that ``top_h`` chooses among."""
Warper = Callable[[Settings, np.ndarray], np.ndarray]


def warped(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """The scores [vocabulary] of the tokens that may be drawn; the others have -inf."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for warp in WARPERS:
            scores = warp(settings, scores)
    return scores


def probabilities(scores: np.ndarray) -> np.ndarray:
    """The softmax of scores [vocabulary]."""
    weights: np.ndarray = np.exp(scores - scores.max())
    return weights / weights.sum()


def _kept(scores: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The scores of some tokens, and of the likeliest one in any case."""
    kept[scores.argmax()] = True
    return np.where(kept, scores, NEVER)


def _entropy(likely: np.ndarray) -> np.ndarray:
    """The terms -p · log p of an entropy."""
    return np.where(likely > 0, -likely * np.log(likely), np.float32(0))


def temperature(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Divides the scores; below ``COLDEST`` the quotients would not be finite."""
    return scores / np.float32(max(settings.temperature, COLDEST))


def top_h(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps the likeliest tokens up to a share of the entropy of the 100 likeliest ones."""
    if settings.top_h is None:
        return scores
    order = np.argsort(-scores, kind="stable")[:TOP_H_TOKENS]
    likely = probabilities(scores[order])
    terms, kept = _entropy(likely), np.zeros(len(scores), bool)
    kept[order] = (np.cumsum(terms) <= terms.sum() * np.float32(settings.top_h)) & (likely > 0)
    return _kept(scores, kept)


def top_k(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps so many of the likeliest tokens, and those that are as likely as the last of them."""
    count = settings.top_k
    if not 0 < count < len(scores):
        return scores
    return np.where(scores < np.partition(scores, -count)[-count], NEVER, scores)


def top_p(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps the fewest of the likeliest tokens whose probabilities are together p."""
    if settings.top_p >= 1:
        return scores
    order = np.argsort(scores, kind="stable")
    kept = np.zeros(len(scores), bool)
    kept[order] = np.cumsum(probabilities(scores[order])) > 1 - settings.top_p
    kept[order[-1]] = True
    return np.where(kept, scores, NEVER)


def min_p(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps tokens that are at least so likely beside the likeliest one."""
    if settings.min_p is None:
        return scores
    likely = probabilities(scores)
    return _kept(scores, likely >= np.float32(settings.min_p) * likely.max())


def typical_p(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps the tokens whose -log p is nearest to the entropy, up to probabilities of together p.

    Source: Meister et al., "Locally Typical Sampling", section 4.
    """
    if settings.typical_p >= 1:
        return scores
    shifted = scores - scores.max()
    logarithms = shifted - np.log(np.exp(shifted).sum())
    far = np.abs(-logarithms - _entropy(np.exp(logarithms)).sum())
    order = np.argsort(far, kind="stable")
    together = np.cumsum(probabilities(scores[order]))
    last = min(int((together < np.float32(settings.typical_p)).sum()), len(scores) - 1)
    kept = far <= far[order[last]]
    kept[order[0]] = True
    return np.where(kept, scores, NEVER)


def _likely_enough(scores: np.ndarray, least: float) -> np.ndarray:
    """Keeps tokens of a least probability, and those that are as likely as the likeliest one."""
    return np.where((probabilities(scores) < least) & (scores < scores.max()), NEVER, scores)


def epsilon_cutoff(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps tokens of a least probability. Source: Hewitt et al., "Truncation Sampling as Language
    Model Desmoothing", section 4.1.
    """
    epsilon = settings.epsilon_cutoff
    return _likely_enough(scores, epsilon) if epsilon else scores


def eta_cutoff(settings: Settings, scores: np.ndarray) -> np.ndarray:
    """Keeps tokens of a least probability, which is smaller where the entropy h is large:
    min(ε, √ε · exp(-h)). Source: as ``epsilon_cutoff``, equation 4.
    """
    epsilon = settings.eta_cutoff
    if not epsilon:
        return scores
    entropy = float(_entropy(probabilities(scores)).sum())
    return _likely_enough(scores, min(epsilon, epsilon**0.5 * np.exp(-entropy)))


WARPERS: tuple[Warper, ...] = (
    temperature, top_h, top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff,
)  # fmt: skip
"""In the order of ``transformers``."""
