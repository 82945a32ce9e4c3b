"""Inputs that leave a calibrated range: every quantity that a range bounds is compared with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from atlasc.calibration.measure import SHARES, Measurement, Reached
from atlasc.calibration.ranges import Interval, Kind, Range
from atlasc.ir.files import STRICT


@dataclass(frozen=True)
class Violation:
    """An input that leaves a calibrated range.

    A softmax has ranges for each temperature, an activation for each channel: this is the one of
    them that the input leaves furthest.

    Attributes:
        input: name of the input.
        op, location, kind: the op, its module, and which of its ranges.
        reached: the value that the input reaches.
        low, high: the range that the input leaves.
    """

    __pydantic_config__ = STRICT

    input: str
    op: str
    location: str
    kind: Kind
    reached: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"{self.input} leaves a range of width zero")

    @property
    def excess(self) -> float:
        """How far the input goes outside, as a share of the range's width."""
        beyond = max(self.low - self.reached, self.reached - self.high)
        return beyond / (self.high - self.low)

    def __str__(self) -> str:
        return (
            f"{self.input}: {self.kind} of {self.op} reaches {self.reached:.4g}, outside "
            f"({self.low:.4g}, {self.high:.4g}) by {self.excess:.1%} of its width, "
            f"in {self.location or 'the model'}"
        )


class Bounded(NamedTuple):
    """What the inputs reached of one kind, [N] or [N, P], and its ranges, () or [P]."""

    kind: Kind
    reached: Reached
    low: ArrayLike
    high: ArrayLike


def bounded(measured: Measurement, known: Range) -> Iterator[Bounded]:
    """The quantities of an op that have ranges: its argument, and of a softmax the scores and log
    sums at each temperature, of an activation the channels.
    """
    yield Bounded(known.kind, measured.argument, known.low, known.high)
    parts: tuple[tuple[Kind, Reached | None, Sequence[Interval] | None], ...] = (
        ("scores", measured.scores, known.scores),
        ("log sum", measured.sums, known.log_sums),
    )
    for kind, part, ends in parts:
        if part is not None and ends is not None and known.shares is not None:
            at = slice(None), np.arange(len(known.shares)), np.searchsorted(SHARES, known.shares)
            reached = part._replace(low=part.low[at], high=part.high[at])
            yield Bounded(kind, reached, *np.transpose(ends))
    if measured.channels is not None and known.channels is not None:
        each = known.channels
        yield Bounded("argument of a channel", measured.channels, each.low, each.high)


def violations(
    measured: Measurement, known: Range, names: Sequence[str] | None
) -> Iterator[Violation]:
    """Where inputs leave the ranges of an op: of each quantity the worst place.

    Args:
        measured: what the inputs reached.
        known: the ranges of the op.
        names: names of the inputs; None numbers them.
    """
    for kind, reached, low, high in bounded(measured, known):
        count, width = len(reached.low), np.subtract(high, low)
        beyond = np.stack([np.subtract(low, reached.low), np.subtract(reached.high, high)]) / width
        # A value that is not a number leaves every range.
        beyond = np.where(np.isnan(beyond), np.inf, beyond).swapaxes(0, 1).reshape(count, -1)
        values = np.stack([reached.low, reached.high], axis=1).reshape(count, -1)
        lows, highs = (np.broadcast_to(end, (2, width.size)).ravel() for end in (low, high))
        for row in np.flatnonzero(beyond.max(axis=1) > 0).tolist():
            at = int(beyond[row].argmax())
            name = names[row] if names is not None else f"input {row}"
            figures = map(float, (values[row, at], lows[at], highs[at]))
            yield Violation(name, known.op, known.location, kind, *figures)
