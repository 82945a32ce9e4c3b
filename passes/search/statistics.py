"""Figures about rankings."""

from __future__ import annotations

from collections.abc import Sequence


def spearman(estimates: Sequence[float], errors: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where one side is constant, or empty."""
    from scipy.stats import spearmanr

    if min(len(set(estimates)), len(set(errors))) < 2:
        return None
    return float(spearmanr(estimates, errors).statistic)
