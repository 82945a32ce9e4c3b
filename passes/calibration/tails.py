"""How far inputs that nobody has seen may go, from the tail of those that were seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RISK = 3e-3
"""Probability with which an input may leave some range, when the margin is chosen from the tail."""
TAIL_FRACTION = 0.1
FEWEST_FOR_TAIL = 30


def tail_bound(extremes: NDArray[Any], ends: int) -> NDArray[np.float64]:
    """The value that a new input exceeds with probability RISK / ends, by an exponential tail.

    Args:
        extremes: [N] of the inputs, or [N, C] for many channels. The tail of a channel shows on few
            inputs: it is never taken for shorter than that of the median channel.
        ends: among which the risk is divided.

    Returns:
        a number, or [C].
    """
    extremes = np.asarray(extremes, dtype=np.float64)
    threshold = np.quantile(extremes, 1 - TAIL_FRACTION, axis=0)
    beyond = extremes > threshold
    excess = np.where(beyond, extremes - threshold, 0.0).sum(axis=0)
    excess = excess / np.maximum(beyond.sum(axis=0), 1)
    excess = np.maximum(excess, np.median(excess))
    return np.asarray(threshold + excess * np.log(TAIL_FRACTION * ends / RISK))
