"""Calibration: on which ranges the nonlinear functions of a model have to be approximated.

A Chebyshev sum explodes outside its domain, and nothing in a ciphertext says so. The ranges are
therefore measured in the clear on all given inputs, widened by a margin, and validated on inputs
that were held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT, Amount, Count, Schema, read_json
from atlasc.ir.files.plain import MIB
from atlasc.ir.module import Module, Op
from atlasc.passes.calibration.measure import Measurement, input_count, measure, nonlinear_ops
from atlasc.passes.calibration.ranges import (
    EXP_RANGE,
    FEWEST_FOR_TAIL,
    LEAST_MARGIN,
    MARGIN_OF_FEW,
    Kind,
    Range,
    measured_range,
)

MAX_CALIBRATION = 256 * MIB
"""Bytes of a calibration, most of which are quantiles of channels."""
NOMINAL = {"softmax": EXP_RANGE, "norm": (1e-2, 1e1), "activation": (-8.0, 8.0)}
"""Plausible ranges of each family, for a model without data."""
TAIL = 0.9
"""Quantile that the distance of an extreme is measured with; see `standing_out`."""


@dataclass(frozen=True)
class Violation:
    """An input that leaves a calibrated range.

    Attributes:
        input: what the input is called.
        op, location, kind: which op, and what of it.
        reached: the value that the input reaches.
        low, high: the range that it leaves.
    """

    __pydantic_config__ = STRICT

    input: str
    op: str
    location: str
    kind: Kind
    reached: float
    low: float
    high: float

    @property
    def excess(self) -> float:
        """How far outside, as a share of the range's width."""
        beyond = max(self.low - self.reached, self.reached - self.high)
        return beyond / (self.high - self.low)

    def __str__(self) -> str:
        return (
            f"{self.input}: {self.kind} of {self.op} reaches {self.reached:.4g}, outside "
            f"({self.low:.4g}, {self.high:.4g}) by {self.excess:.1%} of its width, "
            f"in {self.location or 'the model'}"
        )


@dataclass
class Calibration:
    """Ranges of all nonlinear ops of a module.

    Attributes:
        ranges: by the name of the op's result.
        inputs: how many inputs they were measured on.
        margin: the margin, or None where it was chosen from the tail.
        held_back: how many other inputs the ranges were validated on.
        violations: where these leave a range.
        keys: what was added to the keys of softmaxes before (see `centre_keys`).
        extremes: positions of the extreme inputs (see `standing_out`).
    """

    ranges: dict[str, Range]
    inputs: int
    margin: float | None
    held_back: int = 0
    violations: list[Violation] = field(default_factory=list)
    keys: dict[str, tuple[float, ...]] = field(default_factory=dict)
    extremes: tuple[int, ...] = ()

    @property
    def leaving(self) -> int:
        """How many held-back inputs leave some range."""
        return len({violation.input for violation in self.violations})

    def of(self, op: Op) -> Range:
        """The range of an op.

        Raises:
            AtlasError: the calibration does not know it.
        """
        known = self.ranges.get(op.value.name)
        if known is None or (known.op, known.location) != (op.name, op.location):
            raise AtlasError(
                f"the calibration has no range for {op.name} %{op.value.name}",
                where=op.location,
                why="it belongs to another model or to another trace of it",
                remedy="calibrate this module",
            )
        return known

    def table(self) -> list[dict[str, Any]]:
        """A row for each op: location, op, kind, low, high, seen_low, seen_high, and how many
        held-back inputs leave the range.
        """
        leaving: dict[tuple[str, str], set[str]] = {}
        for violation in self.violations:
            leaving.setdefault((violation.location, violation.op), set()).add(violation.input)
        return [
            {
                "location": r.location, "op": r.op, "kind": r.kind, "low": r.low, "high": r.high,
                "seen_low": r.seen_low, "seen_high": r.seen_high,
                "leaving": len(leaving.get((r.location, r.op), ())),
            }
            for r in self.ranges.values()
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "ranges": [asdict(r) for r in self.ranges.values()]}


class _File(Schema):
    """The JSON form of a calibration."""

    ranges: tuple[Range, ...]
    inputs: Count
    margin: Amount | None
    held_back: Count
    violations: list[Violation]
    keys: dict[str, tuple[float, ...]]
    extremes: tuple[Count, ...]

    @model_validator(mode="after")
    def _ranges_suit(self) -> _File:
        if len({r.value for r in self.ranges}) < len(self.ranges):
            raise ValueError("an op has two ranges")
        for r in self.ranges:
            if not r.well_formed:
                raise ValueError(f"the range of {r.op} %{r.value} makes no sense")
        for violation in self.violations:
            if not violation.low < violation.high:
                raise ValueError(f"{violation.input} leaves a range of no width")
        return self


def calibrate(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    *,
    held_back: Mapping[str, np.ndarray] | None = None,
    margin: float | None = LEAST_MARGIN,
    names: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Measure the ranges of a module's nonlinear ops and validate them on the held-back inputs.

    With a margin m, a range of scores or arguments grows by m of its width at each end, and a range
    of variances (low, high) becomes (low / (1 + m), high (1 + m)). Ranges of arguments hold 0, as
    the slots that pad a ciphertext do.

    With `margin=None` each end is chosen from the tail that was seen. Let e be the extremes of the
    inputs at that end (of log-variances for norms), u their 90% quantile and b the mean excess over
    u. If the tail is exponential, a new input goes beyond u + b log(0.1 / q) with probability q.
    q is `RISK` over the number of ends, so that an input leaves any range at all with probability
    `RISK` at most; the margin is never less than 5% of the width. Fewer than 30 inputs show no
    tail: they get a margin of 30%.

    Args:
        arrays: inputs by name, [N, ...] each.
        held_back: other inputs of the same kind.
        names: what the held-back inputs are called.
        progress: called with (inputs done, all inputs).

    Raises:
        AtlasError: no inputs, or values that are not finite in the cleartext model.
    """
    if margin is not None and margin < 0:
        raise AtlasError(f"a margin cannot be {margin}", remedy="give one such as 0.05")
    count = input_count(module, arrays)
    held = 0 if held_back is None else input_count(module, held_back)
    total = count + held
    step = (lambda done: progress(done, total)) if progress is not None else None
    seen = measure(module, arrays, progress=step)
    effective = MARGIN_OF_FEW if margin is None and count < FEWEST_FOR_TAIL else margin
    ends = sum(2 for _ in seen)
    ranges = {m.op.value.name: measured_range(m, effective, ends) for m in seen}
    calibration = Calibration(ranges, count, effective, held, extremes=standing_out(seen))
    if held_back is not None and held:
        later = (lambda done: progress(count + done, total)) if progress is not None else None
        measured = measure(module, held_back, progress=later)
        calibration.violations = list(_violations(measured, calibration, names))
    return calibration


def check(
    module: Module,
    calibration: Calibration,
    arrays: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
) -> list[Violation]:
    """Where inputs leave the calibrated ranges: what a client asks before it encrypts them."""
    return list(_violations(measure(module, arrays), calibration, names))


def nominal_calibration(module: Module) -> Calibration:
    """The same plausible ranges for every op, as if no input had been measured.

    They give costs, and nothing that may be run: what a polynomial costs depends on its degree and
    hardly on its range, so that the lowered program of a bare configuration shows the levels,
    products and key switches of a real one.
    """
    ranges = {}
    for op in nonlinear_ops(module):
        family, name, width, sums = op.definition.family, op.value.name, None, None
        if family == "softmax":
            width = op.operands[0].tensor.shape[-1]
            sums = (width * 1e-2, float(width))
        low, high = NOMINAL[family]
        ranges[name] = Range(name, op.name, op.location, low, high, low, high, sums, width)
    return Calibration(ranges, inputs=0, margin=None)


def standing_out(measured: Sequence[Measurement]) -> tuple[int, ...]:
    """The inputs that reach an end of some range, those first that are furthest from the others.

    An end is the least or the greatest of any quantity that a `Measurement` holds. How far its
    extreme lies from the median is counted in distances from the median to the 90% quantile.

    Args:
        measured: of all nonlinear ops, on the same inputs.

    Returns:
        positions of inputs, each once.
    """
    found: dict[int, float] = {}
    pairs = [pair for one in measured for pair in ((one.low, one.high), one.rows) if pair]
    ends = (end.reshape(len(end), -1) for low, high in pairs for end in (-low, high))
    for values in (column for end in ends for column in end.T):
        middle, tail = np.quantile(values, [0.5, TAIL])
        first = int(values.argmax())
        if tail > middle:
            distance = float((values[first] - middle) / (tail - middle))
            found[first] = max(found.get(first, 0.0), distance)
    return tuple(sorted(found, key=lambda position: (-found[position], position)))


def _violations(
    measured: Iterable[Measurement], calibration: Calibration, names: Sequence[str] | None
) -> Iterable[Violation]:
    for measurement in measured:
        op, known = measurement.op, calibration.of(measurement.op)
        for row, (low, high) in enumerate(zip(measurement.low, measurement.high, strict=True)):
            name = names[row] if names is not None else f"input {row}"
            for reached in (low, high):
                # A value that is not a number leaves every range.
                if not known.low <= reached <= known.high:
                    yield Violation(
                        name, op.name, op.location, known.kind, float(reached), known.low,
                        known.high,
                    )  # fmt: skip


def read_calibration(path: Path) -> Calibration:
    """The calibration in a JSON file.

    Raises:
        AtlasError: it cannot be read, or is none.
    """
    remedy = "write it with atlasc calibrate -o"
    data = read_json(path, _File, "the calibration", MAX_CALIBRATION, remedy=remedy)
    ranges = {r.value: r for r in data.ranges}
    return Calibration(
        ranges, data.inputs, data.margin, data.held_back, data.violations, data.keys, data.extremes
    )
