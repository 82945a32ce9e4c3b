"""The range of one nonlinear op: as measured or as certified, widened by a margin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from atlasc.calibration.certified import Bounds
from atlasc.calibration.measure import (
    HALVINGS,
    SHARES,
    TEMPERATURES,
    Measurement,
    Reached,
    require_finite,
)
from atlasc.calibration.tails import FEWEST_FOR_TAIL, tail_bound
from atlasc.ir.files import STRICT

Kind = Literal["scores", "log sum", "variance", "mean square", "argument", "argument of a channel"]

Basis = Literal["measured", "certified", "published", "nominal"]
"""Basis of a range: inputs of the calibration, algebra that holds for every input, a publication,
or plausibility alone."""

Interval = tuple[float, float]
EXP_RANGE = (-8.0, 0.0)
"""Range of the exponential in the paper (Cho et al. 2024)."""
LEAST_MARGIN = 0.05
ACTIVATION_MARGIN = 0.2
"""Least margin of an activation and of its channels. A wider range costs them little, and one of a
thousand channels is soon left by inputs of another kind."""
WIDEST = 2.0**40
"""Greatest ratio of the ends of a range of 1/sqrt in a program. Values on such a range differ by a
factor of 2^20, which uses up the digits of a ciphertext."""
QUANTILES, QUANTILES_OF_CHANNEL = 129, 17
"""Number of quantiles of the seen values, evenly spaced from the least to the greatest."""
DIGITS = 6
LEAST_WIDTH = 1e-3
"""Least width of a channel's range, as a share of the greatest magnitude at the op; needed because
a channel may be constant."""


@dataclass(frozen=True)
class ChannelRanges:
    """Ranges of the channels of an activation's argument.

    Channels differ: of the 1,536 neurons of an MLP in MiniLM a few reach 25, most stay within 4.
    Under CKKS a polynomial may have other coefficients in every slot without an additional level.

    Attributes:
        low, high: [C] ranges with their margins.
        quantiles: [C, Q] evenly spaced quantiles of the seen values, extremes included.
    """

    __pydantic_config__ = STRICT

    low: tuple[float, ...]
    high: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        same = len(self.low) == len(self.high) == len(self.quantiles)
        same &= len(set(map(len, self.quantiles))) == 1
        if not same or not all(low < high for low, high in zip(self.low, self.high)):
            raise ValueError("the ranges of its channels are inconsistent")

    def __hash__(self) -> int:
        return hash((self.low, self.high))  # quantiles are many, and come from the same data


@dataclass(frozen=True)
class Range:
    """The range of one nonlinear op, and further statistics of its argument.

    Attributes:
        value: name of the op's result, which identifies the op in its module.
        op: ``nn.softmax``, ``nn.layer_norm``, ...
        location: module path.
        low, high: the range with its margin: of the scores, of the variance or mean square plus
            epsilon, or of the activation's argument.
        seen_low, seen_high: the values that the calibration inputs reached.
        shares: softmax only: for T = 1, 2, .. 32 the share of T log(keys / visible keys) that is
            added to the scores of a row (see `Softmax.log_keys`) so that its sums vary least.
        scores: softmax only: for each T the range of the scores after this addition.
        row_sums: softmax only: range of the row sums of exp(score - shift), with a margin, for
            T = 1.
        width: softmax only: K, the number of keys in a row.
        log_sums: softmax only: for each T the range of log sum exp(score / T), with a margin.
        quantiles: evenly spaced quantiles of the seen arguments, extremes included; None if
            nothing was measured.
        sum_quantiles, square_quantiles, total_quantiles: softmax only: evenly spaced quantiles of
            each log sum, of the log squares of `measure.Rows`, and of log sum exp(score), for
            each T.
        channels: activations only: ranges of the channels; None if there were too few inputs.
        basis: basis of the range.
    """

    __pydantic_config__ = STRICT

    value: str
    op: str
    location: str
    low: float
    high: float
    seen_low: float
    seen_high: float
    shares: tuple[float, ...] | None = None
    scores: tuple[Interval, ...] | None = None
    row_sums: Interval | None = None
    width: int | None = None
    log_sums: tuple[Interval, ...] | None = None
    quantiles: tuple[float, ...] | None = None
    sum_quantiles: tuple[tuple[float, ...], ...] | None = None
    square_quantiles: tuple[tuple[float, ...], ...] | None = None
    total_quantiles: tuple[tuple[float, ...], ...] | None = None
    channels: ChannelRanges | None = None
    basis: Basis = "measured"

    def __post_init__(self) -> None:
        pairs = [*(self.log_sums or ()), *(self.scores or ()), self.row_sums or (0.0, 1.0)]
        if not self.low < self.high or any(low > high for low, high in pairs):
            raise ValueError(f"the range of {self.op} %{self.value} is inconsistent")

    def sums(self, iterations: int) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Softmax: range and quantiles of the sum of squares before each of ``iterations`` = k
        steps of an iterative softmax.

        The first is the sum of exp(2 (score - shift) / 2^k). Before iteration j > 1 the row holds
        the probabilities of score / 2^(k - j + 1). The squares of K probabilities add up to a
        number between 1 / K and 1, whatever the input is (Cauchy and Schwarz).
        """
        assert self.width and self.log_sums and self.sum_quantiles and self.square_quantiles
        last = iterations - 1
        shift = self.shift(last) / 2**last
        first = self.log_sums[last], self.sum_quantiles[last], shift
        ends = -math.log(self.width), 0.0
        later = ((ends, seen, 0.0) for seen in self.square_quantiles[:last][::-1])
        return [
            (tuple(math.exp(s - shift) for s in ends), tuple(math.exp(s - shift) for s in seen))
            for ends, seen, shift in (first, *later)
        ]

    @property
    def kind(self) -> Kind:
        """The quantity that the range bounds."""
        kinds: dict[str, Kind] = {
            "nn.softmax": "scores", "nn.layer_norm": "variance", "nn.rms_norm": "mean square"
        }  # fmt: skip
        return kinds.get(self.op, "argument")

    @property
    def widest_factor(self) -> float:
        """Logarithm of the ratio of the ends of the first range of 1/sqrt that is needed; 0 for an
        activation. A softmax counts with the greatest number of iterations.
        """
        if self.kind == "argument":
            return 0.0
        if self.kind != "scores":
            return math.log(self.high) - math.log(self.low) if self.low > 0 else math.inf
        low, high = (0.0, 0.0) if self.log_sums is None else self.log_sums[HALVINGS - 1]
        return high - low

    def scores_at(self, halvings: int) -> Interval:
        """Softmax: the range of the scores for T = 2^halvings."""
        return (self.low, self.high) if self.scores is None else self.scores[halvings]

    def shift(self, halvings: int) -> float:
        """Softmax: the constant that is subtracted from the scores for T = 2^halvings: the upper
        end of their range.
        """
        return self.scores_at(halvings)[1]

    def log_keys(self, halvings: int) -> float | None:
        """Softmax: the factor of log(keys / visible keys) for T = 2^halvings; None for no such
        term.
        """
        return None if self.shares is None else self.shares[halvings] * 2**halvings


def measured_range(
    measured: Measurement, margin: float | None, ends: int, bounds: Bounds | None = None
) -> Range:
    """The range of an op with its margin.

    Args:
        measured: the values that the op's arguments reached.
        margin: share of the width; None chooses it from the tail (see `calibrate`).
        ends: number of ends of all ranges of the model, among which the risk is divided.
        bounds: finite bounds that hold for every input, used in place of the measured extremes.
            Their margin then only covers the errors of other polynomials.

    Raises:
        AtlasError: a value is not finite.
    """
    op, (lows, highs, samples) = measured.op, measured.argument
    require_finite(measured)
    seen = float(lows.min()), float(highs.max())
    basis: Basis = "measured"
    if bounds is not None:
        basis = "certified"
        lows, highs = np.array([bounds.low]), np.array([bounds.high])
    family = op.definition.family
    if family == "norm":
        low, high = variance_range(lows, highs, margin, ends)
    else:
        least = LEAST_MARGIN
        if family == "activation":
            lows, highs, least = np.minimum(lows, 0), np.maximum(highs, 0), ACTIVATION_MARGIN
        low, high = _widened(lows, highs, margin, ends, least=least)
    low, high = _apart(low, high)
    known = Range(op.value.name, op.name, op.location, low, high, *seen, basis=basis)
    if measured.sums is not None and measured.scores is not None:
        return _with_sums(known, measured, margin, ends)
    known = replace(known, quantiles=_quantiles(samples, *seen))
    if measured.channels is None:
        return known
    least, certified = ACTIVATION_MARGIN if margin is None else margin, bounds and bounds.channels
    channels = channel_ranges(measured.channels, least, ends, (low, high), certified)
    return replace(known, channels=channels)


def variance_range(
    lows: NDArray[Any], highs: NDArray[Any], margin: float | None, ends: int
) -> Interval:
    """The range of a norm's variance or mean square, with its margin.

    Args:
        lows, highs: [N] extremes of the inputs, epsilon included.
        margin, ends: as of `measured_range`.
    """
    exponents = _widened(np.log(lows), np.log(highs), margin, ends, log=True)
    low, high = np.exp(exponents).tolist()
    return low, high


def _apart(low: float, high: float) -> Interval:
    """The interval itself; for a constant, some interval around it."""
    if low < high:
        return low, high
    return low - max(1e-6, abs(low) * 1e-3), high + max(1e-6, abs(high) * 1e-3)


def _with_sums(known: Range, measured: Measurement, margin: float | None, ends: int) -> Range:
    """The range of a softmax, completed with the ranges of its rows' sums.

    For each T, the share of T log(keys / visible keys) is added that makes the range of sums
    narrowest. Probabilities do not change, and rows with few keys become as easy as rows with many.
    If the scores are certified, all of it is added: then the mean of a row's exp(score / T) lies
    between the values for the least and the greatest score.
    """
    op, scores, sums = measured.op, measured.scores, measured.sums
    assert scores is not None and sums is not None
    width, certified = op.operands[0].tensor.shape[-1], known.basis == "certified"
    masked = len(op.operands) > 1 or any(op.chosen("causal", "window").values())
    shares, of_scores, log_sums, seen, totals = [], [], [], [], []
    hidden, squares = sums.samples[:, 0], sums.samples[:, len(TEMPERATURES) + 1 :]
    for number, temperature in enumerate(TEMPERATURES.tolist()):

        def widened(of: Reached, share: int, log: bool, number: int = number) -> Interval:
            return _widened(of.low[:, number, share], of.high[:, number, share], margin, ends, log)

        best = len(SHARES) - 1
        if certified:
            most = temperature * math.log(width) if masked else 0.0
            of_scores.append((known.low, known.high + most))
            ends_of_mean = known.low / temperature, known.high / temperature
            log_sums.append((math.log(width) + ends_of_mean[0], math.log(width) + ends_of_mean[1]))
        else:
            found = [widened(sums, share, True) for share in range(len(SHARES))]
            widths = [high - low for low, high in found]
            best = max(range(len(SHARES)), key=lambda share: (-widths[share], share))
            of_scores.append(_apart(*widened(scores, best, False)))
            log_sums.append(_apart(*found[best]))
        share = float(SHARES[best])
        shares.append(share)
        ends_seen = sums.low[:, number, best].min(), sums.high[:, number, best].max()
        seen.append(
            _quantiles(sums.samples[:, number + 1] + share * hidden, *map(float, ends_seen))
        )
        total = sums.samples[:, 1] + share * temperature * hidden
        totals.append(_quantiles(total, float(total.min()), float(total.max())))
    (least, greatest), shift = log_sums[0], of_scores[0][1]
    # A row sum never exceeds the sum of a row of equal scores.
    row_sums = least - shift, min(greatest - shift, math.log(width))
    return replace(
        known,
        shares=tuple(shares),
        scores=tuple(of_scores),
        row_sums=tuple(np.exp(row_sums).tolist()),
        width=width,
        log_sums=tuple(log_sums),
        sum_quantiles=tuple(seen),
        square_quantiles=tuple(
            _quantiles(of, float(of.min()), float(of.max())) for of in squares.T
        ),
        total_quantiles=tuple(totals),
    )


def channel_ranges(
    measured: Reached,
    margin: float,
    ends: int,
    shared: Interval,
    certified: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> ChannelRanges | None:
    """Ranges of all channels; None if there are too few inputs to show a tail.

    The bounds come from the exponential tail of each channel. The risk is divided among the
    channels, too.

    Args:
        measured: the values that each channel reached.
        margin: least margin of a channel's range, as a share of its width.
        ends: number of ends of all ranges of the model, among which the risk is divided.
        shared: the op's own range, which has its own share of the risk; no channel's range
            exceeds it.
        certified: [C] ends that hold for every input, used with the margin in place of the tail.
    """
    inputs, channels = measured.low.shape
    if inputs < FEWEST_FOR_TAIL:
        return None
    low, high = measured.low.min(axis=0), measured.high.max(axis=0)
    if certified is not None:
        bottom, top = certified
        extra = margin * (top - bottom)
        bottom, top = bottom - extra, top + extra
    else:
        extra = margin * (high - low)
        bottom = np.minimum(low - extra, -tail_bound(-measured.low, ends * channels))
        top = np.maximum(high + extra, tail_bound(measured.high, ends * channels))
    least = LEAST_WIDTH * max(map(abs, shared))
    bottom = np.clip(bottom, shared[0], shared[1] - least)
    top = np.clip(np.maximum(top, bottom + least), None, shared[1])
    shares = np.linspace(0, 1, QUANTILES_OF_CHANNEL)[1:-1]
    inner = np.quantile(measured.samples, shares, axis=0)
    quantiles = np.vstack([low, np.clip(inner, low, high), high])
    return ChannelRanges(_short(bottom), _short(top), tuple(map(_short, quantiles.T)))


def _quantiles(samples: np.ndarray, low: float, high: float) -> tuple[float, ...]:
    """Evenly spaced quantiles of samples, between the given extremes of all values."""
    shares = np.linspace(0, 1, QUANTILES)[1:-1]
    short = _short(np.quantile(samples.astype(np.float64), shares))
    return low, *np.clip(short, low, high).tolist(), high


def _short(values: NDArray[np.float64]) -> tuple[float, ...]:
    """The values, rounded to the few digits that a manifest keeps."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())


def _widened(
    lows: np.ndarray,
    highs: np.ndarray,
    margin: float | None,
    ends: int,
    log: bool = False,
    least: float = LEAST_MARGIN,
) -> tuple[float, float]:
    """The range around the extremes of all inputs, with its margin on both sides."""
    low, high = float(lows.min()), float(highs.max())
    least = least if margin is None else margin
    extra = np.log1p(least) if log else least * (high - low)
    bottom, top = low - extra, high + extra
    if margin is None:
        bottom = min(bottom, -float(tail_bound(-lows, ends)))
        top = max(top, float(tail_bound(highs, ends)))
    return float(bottom), float(top)
