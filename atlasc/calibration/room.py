"""Ranges that reach further than calibration asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from atlasc.calibration.calibrate import Calibration
from atlasc.calibration.ranges import Interval, Range
from atlasc.calibration.violations import Violation

LOGARITHMIC = ("variance", "mean square")
"""Kinds of ranges whose width is that of their logarithms."""


def with_room(calibration: Calibration, room: Mapping[str, float]) -> Calibration:
    """A copy of a calibration in which the ranges of some ops reach further.

    Args:
        calibration: the calibration.
        room: for the name of an op's result, how much further each end of its ranges reaches, as a
            share of their width. The width of a range of variances is that of their logarithms.
            Held-back inputs that do not leave the wider ranges are no violations.
    """
    shares = {(r.op, r.location): room.get(r.value, 0.0) for r in calibration.ranges}
    ranges = tuple(wider(known, room.get(known.value, 0.0)) for known in calibration.ranges)
    moved = (
        _against(one, shares.get((one.op, one.location), 0.0)) for one in calibration.violations
    )
    left = tuple(one for one in moved if one.excess > 0 or math.isnan(one.reached))
    return replace(calibration, ranges=ranges, violations=left)


def wider(known: Range, share: float) -> Range:
    """A range whose ends lie further out by a share of its width, with those of its parts: the
    scores and log sums of each temperature, the channels.
    """
    if share == 0:
        return known
    ends = known.low, known.high
    low, high = _ends(known.kind, ends, share)
    known = replace(known, low=low, high=high)
    if known.scores is not None and known.log_sums is not None:
        scores, sums = (
            tuple(_moved(part, share) for part in parts) for parts in (known.scores, known.log_sums)
        )
        return replace(known, scores=scores, log_sums=sums)
    if known.channels is not None:
        moved = [_moved(of, share) for of in zip(known.channels.low, known.channels.high)]
        lows, highs = zip(*moved, strict=True)
        return replace(known, channels=replace(known.channels, low=lows, high=highs))
    return known


def _against(violation: Violation, share: float) -> Violation:
    """A violation, compared with the range that reaches further."""
    low, high = _ends(violation.kind, (violation.low, violation.high), share)
    return replace(violation, low=low, high=high)


def _ends(kind: str, ends: Interval, share: float) -> Interval:
    if kind not in LOGARITHMIC:
        return _moved(ends, share)
    low, high = map(math.exp, _moved((math.log(ends[0]), math.log(ends[1])), share))
    return low, high


def _moved(ends: Interval, share: float) -> Interval:
    further = share * (ends[1] - ends[0])
    return ends[0] - further, ends[1] + further
