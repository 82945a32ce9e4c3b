"""Calibration: the ranges on which the nonlinear functions of a model must be approximated.

A Chebyshev sum explodes outside its domain, and nothing in a ciphertext shows it. The ranges are
therefore measured in the clear on all given inputs, widened by a margin, and validated on held-back
inputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atlasc.calibration.certified import require_certified
from atlasc.calibration.measure import (
    HALVINGS,
    Measurement,
    Reached,
    input_count,
    measure,
    nonlinear_ops,
    require_finite,
)
from atlasc.calibration.ranges import (
    EXP_RANGE,
    LEAST_MARGIN,
    WIDEST,
    Range,
    measured_range,
)
from atlasc.calibration.tails import effective_margin
from atlasc.calibration.violations import Violation, bounded, violations
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, STRICT, Amount, Count, parse_json, read_json
from atlasc.ir.module import Module, Op

Padding = Literal["", "first", "last"]
"""What padding holds: its own values, or copies of the first or last real token."""
MAX_CALIBRATION = 256 * MIB
"""Greatest size in bytes of a calibration, which consists mostly of quantiles of channels."""
NOMINAL = {"softmax": EXP_RANGE, "norm": (1e-2, 1e1), "activation": (-8.0, 12.0)}
"""Plausible ranges of each family of ops, for a model without data."""
TAIL = 0.9
"""Quantile in units of which the distance of an extreme is measured; see `standing_out`."""


OUTLIER_TITLES = ("what stands out", "most, by the median", "before norms", "done", "cost")


@dataclass(frozen=True)
class Outlier:
    """Tokens or a channel that reach far more than the median one before norms.

    Attributes:
        what: ``first token``, ``last token``, ``another token``, ``padding`` or ``channel 7``.
        location: module path of the norm before which it stands out most.
        factor: there, its greatest mean square (tokens) or magnitude (a channel) by the median one.
        norms: number of norms before which it stands out.
        scaled: tokens: number of these norms before which it is multiplied (see `scale_tokens`).
        levels: tokens: levels that the polynomials of all these norms take more because of it.
        bits: channels: bits of precision that the median channel lacks where the value is
            bootstrapped, because the greatest channel sets the scale.
    """

    __pydantic_config__ = STRICT

    what: str
    location: str
    factor: Amount
    norms: Count
    scaled: Count
    levels: int | None
    bits: Amount | None

    def row(self) -> tuple[str, str, str, str, str]:
        """The texts of a line under `OUTLIER_TITLES`."""
        done = f"multiplied before {self.scaled} of them" if self.scaled else "stays as it is"
        levels = "1 level" if self.levels == 1 else f"{self.levels} levels"
        cost = f"{levels} of polynomials" + (" and the products" if self.scaled else "")
        if self.bits is not None:
            cost = f"{self.bits:.1f} bits of the other channels in a bootstrap"
        return self.what, f"{self.factor:.3g} × in {self.location}", f"{self.norms}", done, cost


@dataclass(frozen=True)
class Calibration:
    """Ranges of all nonlinear ops of a module, and the schema of their JSON form.

    Attributes:
        ranges: range of each op, in order of execution.
        inputs: number of inputs that the ranges were measured on.
        margin: the margin; None if it was chosen from the tail.
        held_back: number of other inputs that the ranges were validated on.
        violations: places where these inputs leave a range.
        keys: constants that were added to the keys of softmaxes beforehand (see `centre_keys`).
        extremes: positions of the extreme inputs (see `standing_out`).
        tokens: factors of tokens that were put before norms (see `scale_tokens`).
        padding: what padding holds (see `fill_padding`).
        outliers: tokens and channels that stand out (see `outliers`).
    """

    __pydantic_config__ = STRICT

    ranges: tuple[Range, ...]
    inputs: Count
    margin: Amount | None
    held_back: Count
    violations: tuple[Violation, ...]
    keys: dict[str, tuple[float, ...]]
    extremes: tuple[Count, ...]
    tokens: dict[str, tuple[float, ...]] = field(default_factory=dict)
    padding: Padding = ""
    outliers: tuple[Outlier, ...] = ()

    def __post_init__(self) -> None:
        if len({r.value for r in self.ranges}) < len(self.ranges):
            raise ValueError("an op has two ranges")

    @property
    def leaving(self) -> int:
        """Number of held-back inputs that leave some range."""
        return len({violation.input for violation in self.violations})

    def of(self, op: Op) -> Range:
        """The range of an op.

        Raises:
            AtlasError: the calibration does not know it.
        """
        known = next((r for r in self.ranges if r.value == op.value.name), None)
        if known is None or (known.op, known.location) != (op.name, op.location):
            raise AtlasError(
                f"the calibration has no range for {op.name} %{op.value.name}",
                where=op.location,
                why="it belongs to another model, or to another trace of this model",
                remedy="calibrate this module",
            )
        return known

    def table(self) -> list[dict[str, Any]]:
        """One row for each op: location, op, kind, low, high, seen_low, seen_high, basis, and the
        number of held-back inputs that leave the range.
        """
        leaving: dict[tuple[str, str], set[str]] = {}
        for violation in self.violations:
            leaving.setdefault((violation.location, violation.op), set()).add(violation.input)
        keys = "location", "op", "kind", "low", "high", "seen_low", "seen_high", "basis"
        rows = ({key: getattr(known, key) for key in keys} for known in self.ranges)
        return [{**r, "leaving": len(leaving.get((r["location"], r["op"]), ()))} for r in rows]

    def to_dict(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return asdict(self)


def calibrate(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    *,
    held_back: Mapping[str, np.ndarray] | None = None,
    margin: float | None = LEAST_MARGIN,
    names: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    certified: bool = False,
    known: Sequence[Measurement] | None = None,
) -> Calibration:
    """Measure the ranges of a module's nonlinear ops and validate them on the held-back inputs.

    With a margin m, a range of scores or arguments grows by m of its width at each end, and a range
    of variances (low, high) becomes (low / (1 + m), high (1 + m)). Ranges of arguments always
    contain 0, because the padding slots of a ciphertext are 0.

    With `margin=None` each end is chosen from the observed tail. Let e be the extremes of the
    inputs at that end (of log-variances for norms), u their 90% quantile and b the mean excess over
    u. If the tail is exponential, a new input goes beyond u + b log(0.1 / q) with probability q.
    A few inputs of another kind are a tail of their own (see `tail_bound`).
    q is `RISK` divided by the number of ends, so that an input leaves any range at all with
    probability `RISK` at most. The margin is at least 5% of the width. Fewer than 30 inputs show no
    tail: they get a margin of 30%.

    Args:
        module: nn module.
        arrays, held_back: inputs by name, [N, ...] each.
        names: names of the held-back inputs.
        progress: called with (inputs done, all inputs).
        certified: take ranges that hold for every input (see `certified`), with the least margin
            if none is given; inputs then only show where values lie in these ranges.
        known: what the ops reach on the arrays, if it was measured before.

    Raises:
        AtlasError: there are no inputs, the cleartext model gets values that are not finite, or an
            op has no certified range on which a polynomial could be of use.
    """
    bounds = require_certified(module) if certified else {}
    if margin is not None and margin < 0:
        raise AtlasError(f"a margin cannot be {margin}", remedy="give a margin such as 0.05")
    count = input_count(module, arrays)
    held = 0 if held_back is None else input_count(module, held_back)
    own = count if known is None else 0

    def measured(some: Mapping[str, np.ndarray], before: int) -> list[Measurement]:
        step = (lambda done: progress(before + done, own + held)) if progress else None
        return measure(module, some, progress=step)

    seen = measured(arrays, 0) if known is None else known
    effective = effective_margin(margin, count)
    if margin is None and certified:
        effective = LEAST_MARGIN
    ranges = tuple(
        measured_range(one, effective, 2 * len(seen), bounds.get(one.op.value.name)) for one in seen
    )
    found: list[Violation] = []
    if held_back is not None and held:
        for one, of in zip(measured(held_back, own), ranges, strict=True):
            require_finite(one, "held-back inputs")
            found += violations(one, of, names)
    extremes = standing_out(
        [
            part.reached
            for pair in zip(seen, ranges, strict=True)
            for part in bounded(*pair)
            if part.kind != "argument of a channel"  # of a thousand channels each has extremes
        ]
    )
    return Calibration(ranges, count, effective, held, tuple(found), {}, extremes)


def require_coverable(ranges: Sequence[Range]) -> None:
    """Raise AtlasError if a range is too wide for every polynomial that a program could have."""
    wide = [known for known in ranges if known.widest_factor > math.log(WIDEST)]
    if not wide:
        return
    known = wide[0]
    others = f" ({len(wide)} ops have such a range)" if len(wide) > 1 else ""
    what, remedy = {
        "scores": (
            "the sums of its rows differ by a factor of e^{:.0f} even with all "
            f"{HALVINGS} halvings of the scores",
            "use a model with smaller scores: smaller weights of queries and keys, or a larger "
            "divisor of the scores",
        ),
    }.get(known.kind, (
        "its greatest and least value differ by a factor of e^{:.0f}",
        "give inputs whose rows vary alike, or a model with a larger epsilon",
    ))  # fmt: skip
    raise AtlasError(
        f"no polynomial covers the {known.kind} of {known.op}",
        where=known.location,
        why=f"the inputs reach ({known.seen_low:.4g}, {known.seen_high:.4g}), and with their "
        f"margin ({known.low:.4g}, {known.high:.4g}), so {what.format(known.widest_factor)}; "
        f"at most e^{math.log(WIDEST):.0f} can be encrypted{others}",
        remedy=f"{remedy}; also look for inputs unlike the others, or give a narrower margin "
        "of --ranges, such as 0.3",
    )


def nominal_calibration(module: Module) -> Calibration:
    """The same plausible ranges for every op, without measured inputs.

    They serve to compute costs, but not to run a program. The cost of a polynomial depends on its
    degree and, at high degrees, on its range: on a narrow range fewer terms count. So the lowered
    program of a bare config has about the levels, products and key switches of a real one.
    """
    ranges = []
    for op in nonlinear_ops(module):
        family, name, width, sums = op.definition.family, op.value.name, None, None
        if family == "softmax":
            width = op.operands[0].tensor.shape[-1]
            sums = (width * 1e-2, float(width))
        low, high = NOMINAL[family]
        seen = low, high
        place = name, op.name, op.location
        ranges.append(Range(*place, low, high, *seen, row_sums=sums, width=width, basis="nominal"))
    return Calibration(tuple(ranges), 0, None, 0, (), {}, ())


def standing_out(quantities: Sequence[Reached]) -> tuple[int, ...]:
    """Positions of the extreme inputs, which reach an end of some quantity; the most extreme first.

    The distance of an extreme from the median is counted in distances from the median to the 90%
    quantile.
    """
    found: dict[int, float] = {}
    ends = (end for part in quantities for end in (-part.low, part.high))
    for values in (column for end in ends for column in end.reshape(len(end), -1).T):
        middle, tail = np.quantile(values, [0.5, TAIL])
        first = int(values.argmax())
        if tail > middle:
            distance = float((values[first] - middle) / (tail - middle))
            found[first] = max(found.get(first, 0.0), distance)
    return tuple(sorted(found, key=lambda position: (-found[position], position)))


def outliers_of(facts: Mapping[str, Any]) -> tuple[Outlier, ...]:
    """The outliers of a calibration that was written as JSON values, as a bundle has it.

    Raises:
        AtlasError: they are damaged.
    """
    try:
        return parse_json(json.dumps(facts.get("outliers", [])), tuple[Outlier, ...])
    except ValueError as error:
        raise AtlasError("the outliers of a calibration are damaged", why=str(error)) from None


def calibration_of(facts: Mapping[str, Any]) -> Calibration:
    """A calibration that was written as JSON values, as a bundle has it.

    Raises:
        AtlasError: it is damaged.
    """
    try:
        return parse_json(json.dumps(facts), Calibration)
    except ValueError as error:
        raise AtlasError("the calibration of a bundle is damaged", why=str(error)) from None


def read_calibration(path: Path) -> Calibration:
    """The calibration in a JSON file.

    Raises:
        AtlasError: the file cannot be read, or is no calibration.
    """
    remedy = "write a calibration with atlasc calibrate -o"
    return read_json(path, Calibration, "the calibration", MAX_CALIBRATION, remedy=remedy)
