"""How far new inputs reach, by the tail of those that were seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

MARGIN_OF_FEW = 0.3
"""Margin, as a share of the width, if there are too few inputs to show a tail."""
RISK = 3e-3
"""Probability that an input leaves some range, if the margin is chosen from the tail."""
TAIL_FRACTION = 0.1
GAP_RISK = 0.01
"""Probability that an exponential tail has what counts as a gap."""
FEWEST_FOR_TAIL = 30
"""Least number of inputs that show a tail."""


def effective_margin(margin: float | None, inputs: int) -> float | None:
    """The margin itself; None, which chooses it from the tail, only if the inputs show a tail."""
    return MARGIN_OF_FEW if margin is None and inputs < FEWEST_FOR_TAIL else margin


def tail_bound(extremes: NDArray[Any], ends: int) -> NDArray[np.float64]:
    """The value that a new input exceeds with probability RISK / ends, for an exponential tail.

    The tail begins at the 90% quantile, or beyond a `gap` among the values above it: these are then
    inputs of another kind, such as short texts whose padding reaches far. Their distance from the
    others says nothing about how far new inputs of their kind reach beyond them.

    Args:
        extremes: [N] extremes of the inputs, or [N, C] for many channels. Few inputs show the tail
            of a channel, so it counts as at least as long as that of the median channel.
        ends: number of ends among which the risk is divided.

    Returns:
        A number, or [C].
    """
    extremes = np.asarray(extremes, dtype=np.float64)
    threshold = np.quantile(extremes, 1 - TAIL_FRACTION, axis=0)
    above = np.sort(np.maximum(extremes - threshold, 0.0), axis=0)[::-1]
    above = above[: math.ceil(TAIL_FRACTION * len(extremes)) + 1]
    count = (above > 0).sum(axis=0)
    excess = above.sum(axis=0) / np.maximum(count, 1)
    start, share, others = _gap(above, count)
    beyond = np.where(above > start, above - start, 0.0).sum(axis=0)
    beyond = np.maximum(beyond / np.maximum((above > start).sum(axis=0), 1), others)
    apart = start > 0
    excess = np.where(apart, beyond, excess)
    excess = np.maximum(excess, np.median(excess))
    share = np.where(apart, share / len(extremes), TAIL_FRACTION)
    return np.asarray(threshold + start + excess * np.log(np.maximum(share * ends / RISK, 1.0)))


def _gap(
    above: NDArray[np.float64], count: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64]]:
    """Where values above a threshold begin anew after a gap that no exponential tail has.

    Let x_1 >= x_2 >= ... be the values. The products j (x_j - x_(j + 1)) of an exponential tail are
    independent, and have the same exponential distribution (Renyi 1953). The greatest of k is a gap
    if it exceeds the mean of the others by more than happens with probability `GAP_RISK`.

    Args:
        above: [M, ...] values minus the threshold, in falling order, followed by zeros.
        count: k, the number of positive values.

    Returns:
        The least value beyond the gap; the number of values from it on; the mean of the other
        products. All are 0 without a gap.
    """
    places = np.arange(1, len(above) + 1).reshape(-1, *[1] * (above.ndim - 1))
    products = places * (above - np.concatenate([above[1:], np.zeros_like(above[:1])]))
    most, place = products.max(axis=0), products.argmax(axis=0)
    free = np.maximum(count - 1, 1)
    others = (products.sum(axis=0) - most) / free
    # The ratio to the mean of k - 1 others exceeds t with probability (1 + t / (k - 1))^(1 - k).
    ratio = free * ((np.maximum(count, 1) / GAP_RISK) ** (1 / free) - 1)
    found = (count > 1) & (most > ratio * others)
    start = np.take_along_axis(above, place[None], axis=0)[0]
    return np.where(found, start, 0.0), np.where(found, place + 1, 0), np.where(found, others, 0.0)
