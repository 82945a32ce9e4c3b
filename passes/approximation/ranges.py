"""The range of one nonlinear op: what calibration saw, widened by a margin."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.description import family_of
from atlasc.passes.approximation.measure import Measurement

Kind = Literal["scores", "variance", "mean square", "argument"]

RISK = 1e-3
"""Probability with which an input may leave some range, when the margin is chosen from the tail."""
TAIL_FRACTION = 0.1
FEWEST_FOR_TAIL = 30
MARGIN_OF_FEW = 0.3
LEAST_MARGIN = 0.05


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
    """

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
    if family == "norm":
        bottom, top = _widened(np.log(measured.low), np.log(measured.high), margin, ends, log=True)
        return _with(known, float(np.exp(bottom)), float(np.exp(top)))
    if family == "activation":
        low_end, high_end = np.minimum(measured.low, 0), np.maximum(measured.high, 0)
        return _with(known, *_widened(low_end, high_end, margin, ends))
    bottom, top = _widened(measured.low, measured.high, margin, ends)
    assert measured.log_sums is not None and measured.log_squares is not None
    width = int(op.operands[0].type.shape[-1])  # type: ignore[union-attr]
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
    return _with(known, bottom, top, row_sums=sums, width=width, log_sums=log_sums,
                 log_squares=log_squares)  # fmt: skip


def _with(known: Range, low: float, high: float, **more: Any) -> Range:
    if low == high:  # a constant: any interval around it will do
        low, high = low - max(1e-6, abs(low) * 1e-3), high + max(1e-6, abs(high) * 1e-3)
    return Range(**{**asdict(known), "low": low, "high": high, **more})


def _widened(
    lows: np.ndarray, highs: np.ndarray, margin: float | None, ends: int, log: bool = False
) -> tuple[float, float]:
    """The range of the extremes of all inputs, with its margin at both ends."""
    low, high = float(lows.min()), float(highs.max())
    least = LEAST_MARGIN if margin is None else margin
    extra = np.log1p(least) if log else least * (high - low)
    bottom, top = low - extra, high + extra
    if margin is None:
        bottom = min(bottom, -tail_bound(-lows, ends))
        top = max(top, tail_bound(highs, ends))
    return float(bottom), float(top)


def tail_bound(extremes: np.ndarray, ends: int) -> float:
    """The value that a new input exceeds with probability RISK / ends, by an exponential tail."""
    threshold = float(np.quantile(extremes, 1 - TAIL_FRACTION))
    beyond = extremes[extremes > threshold]
    if not len(beyond):
        return threshold
    excess = float(np.mean(beyond)) - threshold
    return threshold + excess * float(np.log(TAIL_FRACTION * ends / RISK))
