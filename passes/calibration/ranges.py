"""The range of one nonlinear op: what calibration saw, widened by a margin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT
from atlasc.passes.approximation.description import family_of
from atlasc.passes.calibration.channels import ChannelRanges, channel_ranges
from atlasc.passes.calibration.measure import Measurement
from atlasc.passes.calibration.tails import tail_bound

Kind = Literal["scores", "variance", "mean square", "argument"]

EXP_RANGE = (-8.0, 0.0)
"""Of the exponential in the paper (Cho et al. 2024)."""
MARGIN_OF_FEW = 0.3
LEAST_MARGIN = 0.05
QUANTILES = 129
"""Of what was seen, evenly spaced from the least to the greatest value."""
DIGITS = 6


@dataclass(frozen=True)
class Range:
    """What calibration knows of one nonlinear op.

    Attributes:
        value: name of the op's result, which identifies the op in its module.
        op: ``nn.softmax``, ``nn.layer_norm``, ...
        location: module path.
        low, high: the range with its margin: of the scores, of the variance or mean square plus
            epsilon, or of the activation's argument.
        seen_low, seen_high: what the calibration inputs reached.
        row_sums: softmax only: range of the row sums of exp(score - high), with a margin.
        width: softmax only: keys in a row.
        log_sums, log_squares: softmax only: ranges, with a margin, of what `Measurement` calls so.
        quantiles: evenly spaced ones of what was seen of the argument, extremes included; None
            where nothing was measured.
        sum_quantiles, square_quantiles: softmax only: likewise of each log sum and log square.
        channels: activations only: the ranges of their channels; None where too few inputs were
            seen.
    """

    __pydantic_config__ = STRICT

    value: str
    op: str
    location: str
    low: float
    high: float
    seen_low: float
    seen_high: float
    row_sums: tuple[float, float] | None = None
    width: int | None = None
    log_sums: tuple[tuple[float, float], ...] | None = None
    log_squares: tuple[tuple[float, float], ...] | None = None
    quantiles: tuple[float, ...] | None = None
    sum_quantiles: tuple[tuple[float, ...], ...] | None = None
    square_quantiles: tuple[tuple[float, ...], ...] | None = None
    channels: ChannelRanges | None = None

    def sum_ranges(self, iterations: int) -> tuple[tuple[float, float], ...]:
        """Softmax: range of the sum of squares before each of k iterations of an iterative softmax.

        The first is the sum of exp(2 (score - shift) / 2^k); before iteration j > 1 the row holds
        the probabilities of score / 2^(k - j + 1).
        """
        assert self.log_sums is not None and self.log_squares is not None
        halvings = iterations - 1
        first = tuple(math.exp(end - self.shift / 2**halvings) for end in self.log_sums[halvings])
        later = [
            tuple(math.exp(end) for end in self.log_squares[iterations - j])
            for j in range(2, iterations + 1)
        ]
        return tuple((low, high) for low, high in (first, *later))

    def sum_quantiles_of(self, iterations: int) -> tuple[tuple[float, ...], ...]:
        """Softmax: likewise what was seen, as evenly spaced quantiles."""
        assert self.sum_quantiles is not None and self.square_quantiles is not None
        halvings = iterations - 1
        shift = self.shift / 2**halvings
        first = tuple(math.exp(s - shift) for s in self.sum_quantiles[halvings])
        later = (self.square_quantiles[iterations - j] for j in range(2, iterations + 1))
        return (first, *(tuple(math.exp(s) for s in seen) for seen in later))

    @property
    def well_formed(self) -> bool:
        """Whether the ends are in order, and all channels are described alike."""
        pairs = [*(self.log_sums or ()), *(self.log_squares or ())]
        pairs += [] if self.row_sums is None else [self.row_sums]
        if not self.low < self.high or any(low > high for low, high in pairs):
            return False
        channels = self.channels
        return channels is None or (
            len(channels.low) == len(channels.high) == len(channels.quantiles)
            and len(set(map(len, channels.quantiles))) == 1
            and all(low < high for low, high in zip(channels.low, channels.high, strict=True))
        )

    @property
    def kind(self) -> Kind:
        """What the range is of."""
        return kind_of(self.op)

    @property
    def shift(self) -> float:
        """Softmax: the constant that is subtracted from the scores, the top of their range."""
        return self.high


def kind_of(op_name: str) -> Kind:
    """What the range of an op is of."""
    if op_name == "nn.layer_norm":
        return "variance"
    if op_name == "nn.rms_norm":
        return "mean square"
    return "scores" if op_name == "nn.softmax" else "argument"


def measured_range(measured: Measurement, margin: float | None, ends: int) -> Range:
    """The range of an op with its margin.

    Args:
        measured: what the op's arguments reached.
        margin: share of the width, or None to choose it from the tail (see `calibrate`).
        ends: how many ends of ranges the model has, among which the risk is divided.

    Raises:
        AtlasError: a value is not finite.
    """
    op = measured.op
    low, high = float(measured.low.min()), float(measured.high.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise AtlasError(
            f"{op.name} gets values that are not finite in the cleartext model",
            where=op.location,
            remedy="check the weights and the inputs",
        )
    known = Range(op.value.name, op.name, op.location, 0.0, 1.0, low, high)
    family = family_of(op.name)
    if family != "softmax":
        known = replace(known, quantiles=_quantiles(measured.samples, low, high))
    if family == "norm":
        bottom, top = _widened(np.log(measured.low), np.log(measured.high), margin, ends, log=True)
        return _with(known, float(np.exp(bottom)), float(np.exp(top)))
    if family == "activation":
        low_end, high_end = np.minimum(measured.low, 0), np.maximum(measured.high, 0)
        known = _with(known, *_widened(low_end, high_end, margin, ends))
        assert measured.channels is not None
        room = LEAST_MARGIN if margin is None else margin
        channels = channel_ranges(measured.channels, room, ends, (known.low, known.high))
        return replace(known, channels=channels)
    bottom, top = _widened(measured.low, measured.high, margin, ends)
    assert measured.log_sums is not None and measured.log_squares is not None
    width = int(op.operands[0].tensor.shape[-1])
    log_width = float(np.log(width))
    log_sums = tuple(
        _widened(low, high, margin, ends, log=True)
        for low, high in zip(*(end.T for end in measured.log_sums), strict=True)
    )
    log_squares = tuple(
        (max(bottom, -log_width), min(top, 0.0))
        for bottom, top in (
            _widened(low, high, margin, ends, log=True)
            for low, high in zip(*(end.T for end in measured.log_squares), strict=True)
        )
    )
    # A row sum is never below that of its greatest score alone, nor above that of equal scores.
    least, greatest = log_sums[0]
    sums = float(np.exp(least - top)), float(np.exp(min(greatest - top, log_width)))
    seen = [
        _quantiles(column, float(lows.min()), float(highs.max()))
        for column, lows, highs in zip(
            measured.samples.T,
            [*measured.log_sums[0].T, *measured.log_squares[0].T],
            [*measured.log_sums[1].T, *measured.log_squares[1].T],
            strict=True,
        )
    ]
    count = len(log_sums)
    return _with(known, bottom, top, row_sums=sums, width=width, log_sums=log_sums,
                 log_squares=log_squares, sum_quantiles=tuple(seen[:count]),
                 square_quantiles=tuple(seen[count:]))  # fmt: skip


def _with(known: Range, low: float, high: float, **more: Any) -> Range:
    if low == high:  # a constant: any interval around it will do
        low, high = low - max(1e-6, abs(low) * 1e-3), high + max(1e-6, abs(high) * 1e-3)
    return replace(known, low=low, high=high, **more)


def _quantiles(samples: np.ndarray, low: float, high: float) -> tuple[float, ...]:
    """Of samples, between the extremes of everything; few digits, as a manifest holds them."""
    found = np.quantile(samples.astype(np.float64), np.linspace(0, 1, QUANTILES)[1:-1])
    short = [float(f"{value:.{DIGITS}g}") for value in found]
    return low, *np.clip(short, low, high).tolist(), high


def _widened(
    lows: np.ndarray, highs: np.ndarray, margin: float | None, ends: int, log: bool = False
) -> tuple[float, float]:
    """The range of the extremes of all inputs, with its margin at both ends."""
    low, high = float(lows.min()), float(highs.max())
    least = LEAST_MARGIN if margin is None else margin
    extra = np.log1p(least) if log else least * (high - low)
    bottom, top = low - extra, high + extra
    if margin is None:
        bottom = min(bottom, -float(tail_bound(-lows, ends)))
        top = max(top, float(tail_bound(highs, ends)))
    return float(bottom), float(top)
