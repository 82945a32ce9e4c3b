"""Confidence intervals of figures that were measured on some inputs."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def wilson(right: float, inputs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of a share, if ``right`` of a random sample of ``inputs`` are right (Wilson 1927)."""
    from scipy.stats import norm

    if inputs == 0:
        return 0.0, 1.0
    z, share = float(norm.ppf((1 + confidence) / 2)), right / inputs
    middle = share + z * z / (2 * inputs)
    half = z * math.sqrt(share * (1 - share) / inputs + (z / (2 * inputs)) ** 2)
    scale = 1 + z * z / inputs
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def fisher(correlation: float, inputs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of a correlation that was measured on ``inputs`` pairs (Fisher 1915)."""
    from scipy.stats import norm

    if inputs < 4 or abs(correlation) >= 1:
        return (-1.0, 1.0) if inputs < 4 else (correlation, correlation)
    half = float(norm.ppf((1 + confidence) / 2)) / math.sqrt(inputs - 3)
    middle = math.atanh(correlation)
    return math.tanh(middle - half), math.tanh(middle + half)
