"""Ranges of an activation's argument channel by channel, that is along its last axis.

Channels differ: of the 1,536 neurons of an MLP in MiniLM a few reach 25, most stay within 4. Under
CKKS a polynomial may have other coefficients in every slot, at no level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.files.json_text import STRICT
from atlasc.passes.calibration.measure import ChannelMeasurement
from atlasc.passes.calibration.tails import FEWEST_FOR_TAIL, tail_bound

QUANTILES = 17
"""Of what was seen in a channel, evenly spaced from the least to the greatest value."""
DIGITS = 6
LEAST_WIDTH = 1e-3
"""Of a range, as a share of the greatest magnitude that the op sees: a channel may be constant."""


@dataclass(frozen=True)
class ChannelRanges:
    """What calibration knows of the channels of an activation's argument.

    Attributes:
        low, high: [C] ranges with their margins.
        quantiles: [C, Q] evenly spaced ones of what was seen, extremes included.
    """

    __pydantic_config__ = STRICT

    low: tuple[float, ...]
    high: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]

    def __hash__(self) -> int:
        return hash((self.low, self.high))  # the quantiles are many, and follow from the same data


def channel_ranges(
    measured: ChannelMeasurement, margin: float, ends: int, shared: tuple[float, float]
) -> ChannelRanges | None:
    """Ranges of all channels; None where there are too few inputs to show a tail.

    The bounds are those of the exponential tail of each channel, for a risk that is divided among
    the channels too.

    Args:
        margin: share of a channel's width that its range has beyond what was seen, at least.
        ends: how many ends of ranges the model has, among which the risk is divided.
        shared: the op's range, which the risk of its own ends goes with: no channel leaves it.
    """
    inputs, channels = measured.low.shape
    if inputs < FEWEST_FOR_TAIL:
        return None
    low, high = measured.low.min(axis=0), measured.high.max(axis=0)
    extra = margin * (high - low)
    bottom = np.minimum(low - extra, -tail_bound(-measured.low, ends * channels))
    top = np.maximum(high + extra, tail_bound(measured.high, ends * channels))
    least = LEAST_WIDTH * max(map(abs, shared))
    bottom = np.clip(bottom, shared[0], shared[1] - least)
    top = np.clip(np.maximum(top, bottom + least), None, shared[1])
    inner = np.quantile(measured.samples, np.linspace(0, 1, QUANTILES)[1:-1], axis=0)
    quantiles = np.vstack([low, np.clip(inner, low, high), high])
    return ChannelRanges(_short(bottom), _short(top), tuple(map(_short, quantiles.T)))


def _short(values: NDArray[np.float64]) -> tuple[float, ...]:
    """Few digits, as a manifest holds them."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())
