"""Watches, in the clear, whether a program answers an input rightly.

Nothing in a ciphertext shows that an answer is wrong. In the clear three facts show it beforehand:

* A bootstrap is right only for slots in its range. The poly module says which values are
  bootstrapped, and how large they may be (``bound``, see `atlasc.analyses.bounds`).
* A Chebyshev sum explodes outside its domain, sooner or later. It counts as right in its domain,
  and beyond it as long as the fit holds (``valid``); only in its domain if the function of the sum
  is not known.
* The answer differs from the answer computed with the functions that the sums approximate. If all
  functions are known, this decides, whichever ranges are left: a slight excess is a slight error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site
from atlasc.ir.scalar_functions import function
from atlasc.polynomials.fits.chebyshev_sum import valid_range, widened
from atlasc.simulation.agreement import PROMISED
from atlasc.simulation.poly_values import EXPLODED, fused

BOOTSTRAP = "bootstrap"
KNOWS_MODEL = "knows_model"
"""Attribute of a poly module: False if its functions do not give the model's answer."""


@dataclass(frozen=True)
class Excess:
    """A place where an input leaves a range.

    Attributes:
        op: the function that the polynomial approximates: softmax, layer_norm, gelu, ...; or
            bootstrap.
        location: module path.
        reached: the value that the polynomial is evaluated at, or that is bootstrapped.
        low, high: the range in which it is right, in the program's own units.
        decides: whether this alone makes the answer wrong; the effect of other excesses shows in
            the error of the answer.
    """

    op: str
    location: str
    reached: float
    low: float
    high: float
    decides: bool = True

    @property
    def share(self) -> float:
        """Distance outside the range, as a share of the range's width; infinite for NaN."""
        beyond = max(self.low - self.reached, self.reached - self.high)
        return beyond / (self.high - self.low) if np.isfinite(beyond) else float("inf")

    def to_dict(self) -> dict[str, Any]:
        """The excess as JSON values."""
        reached, low, high = self.reached, self.low, self.high
        return {
            "op": self.op, "location": self.location, "reached": reached,
            "range": [low, high], "share": self.share, "decides": self.decides,
        }  # fmt: skip

    def __str__(self) -> str:
        of = "a value to bootstrap" if self.op == BOOTSTRAP else f"an argument of {self.op}"
        return (
            f"{of} in {self.location or 'the model'} reaches {self.reached:.4g}, outside "
            f"[{self.low:g}, {self.high:g}] by "
            + (f"{self.share:.1%} of" if self.share < 10 else f"{self.share:.3g} times")
            + " its width"
        )


@dataclass
class Watch:
    """Observer of an interpretation: checks the arguments of polynomials and bootstrapped values.

    Attributes:
        module: a poly module.
        inputs: number of watched rows.
        found: (row of an input, range that it leaves), in the order of the program.
        exploded: [inputs] whether a polynomial gave a value beyond `EXPLODED`, or NaN.
    """

    module: Module
    inputs: int
    found: list[tuple[int, Excess]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exploded = np.zeros(self.inputs, dtype=bool)
        self._arguments = {op.operands[0] for op in self.module.ops if op.name == "poly.chebyshev"}
        self._extremes: dict[Value, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, op: Op, result: np.ndarray) -> None:
        """Check the result of an op, [batch, ...]."""
        summed, bound = op.name == "poly.chebyshev", op.attributes.get("bound")
        if not (summed or bound is not None or op.value in self._arguments):
            return
        ends = self._ends(result)
        if op.value in self._arguments:
            self._extremes[op.value] = ends
        if summed:
            # Negated, because every comparison with NaN is false.
            self.exploded |= ~((ends[0] >= -EXPLODED) & (ends[1] <= EXPLODED))
            valid = op.attributes.get("valid", (-1.0, 1.0))
            low, high = valid_range(op.attributes["domain"], valid)
            name = op.attributes.get("part", "the polynomial")
            known = "function" in op.attributes and PROMISED in self.module.attributes
            extremes = self._extremes[op.operands[0]]
            self._compare(op, extremes, (low, high), result.dtype, name, decides=not known)
        if bound is not None:
            self._compare(op, ends, (-bound, bound), result.dtype, BOOTSTRAP, decides=True)

    def _compare(
        self,
        op: Op,
        ends: tuple[np.ndarray, np.ndarray],
        limits: tuple[float, float],
        dtype: Any,
        name: str,
        decides: bool,
    ) -> None:
        (least, most), (low, high) = ends, limits
        bottom, top = widened(low, high, dtype)
        for row in map(int, np.flatnonzero(~((bottom <= least) & (most <= top)))):
            # The end that is further out; NaN leaves every range.
            further = most if not high - most[row] >= least[row] - low else least
            reached = float(further[row])
            excess = Excess(name, op.location, reached, low, high, decides)
            self.found.append((row, excess))

    def _ends(self, result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = result[: self.inputs].reshape(self.inputs, -1)
        return rows.min(axis=1), rows.max(axis=1)


def function_values(op: Op, site: Site, x: np.ndarray) -> np.ndarray | None:
    """The values of the function that a Chebyshev sum approximates; None if it is not known."""
    if "function" not in op.attributes:
        return None
    interval = np.asarray(site.constant("interval"), dtype=np.float64)
    (low, high), (start, end) = op.attributes["domain"], interval.T
    own = start + (x.astype(np.float64) - low) * ((end - start) / (high - low))
    values = op.attributes.get("gain", 1.0) * function(op.attributes["function"]).numpy(own)
    return np.asarray(values, dtype=x.dtype)


def knows_model(poly: Module) -> bool:
    """Whether the functions that a module's Chebyshev sums approximate give the model's answer.

    They do if every sum names a function, unless ``compile`` saw that they do not.
    """
    sums = (op for op in poly.ops if op.name == "poly.chebyshev")
    named = all("function" in op.attributes for op in sums)
    return named and bool(poly.attributes.get(KNOWS_MODEL, True))


def both_answers(
    poly: Module,
    inputs: Mapping[str, np.ndarray],
    dtype: Any = np.float64,
    watch: Watch | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The polynomials' answers [inputs, ...] by output name, and the model's, which are computed
    with the functions that the polynomials approximate.

    Both are evaluated together as one batch of twice the size, because linear ops treat them
    alike. The watch sees only the polynomials.
    """

    def override(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
        if op.name != "poly.chebyshev":
            return None
        whole = arrays[0]
        sums = fused(op, site, [whole[:count]])
        functions = function_values(op, site, whole[count:])
        if functions is None:
            functions = fused(op, site, [whole[count:]])
        assert sums is not None and functions is not None
        return np.concatenate([sums, functions])

    count = len(next(iter(inputs.values())))
    doubled = {name: np.concatenate([array, array]) for name, array in inputs.items()}
    # Values outside a range may grow beyond float64; the watch reports such inputs.
    with np.errstate(all="ignore"):
        outputs = interpret(poly, doubled, dtype, override=override, observe=watch)
    first, second = slice(None, count), slice(count, None)
    return {n: y[first] for n, y in outputs.items()}, {n: y[second] for n, y in outputs.items()}
