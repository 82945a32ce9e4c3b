"""Interpretation of poly modules, and which inputs leave the range of which polynomial.

A Chebyshev sum explodes outside its domain, sooner or later, and nothing in a ciphertext says so.
In the clear it shows beforehand. The range is where the sum is right (`validity`): its domain, and
what lies beyond as long as the fit holds; the domain alone where the function of the sum is not
known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atlasc.ir.interpreter import Observer, interpret
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site
from atlasc.passes.approximation.fits.chebyshev import evaluate
from atlasc.passes.approximation.fits.chebyshev_sum import valid_range, widened

EXPLODED = 1e6
"""A value beyond this is taken for an explosion: hidden states of real models stay far below, and
so does a polynomial that stands for exp of something negative, 1/sqrt or an activation."""


def interpret_poly(
    module: Module,
    inputs: Mapping[str, np.ndarray],
    dtype: Any = np.float64,
    *,
    observe: Observer | None = None,
) -> dict[str, np.ndarray]:
    """``interpret`` for poly modules of real size: Chebyshev sums run in the native kernel."""
    return interpret(module, inputs, dtype, override=fused, observe=observe)


def fused(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
    """A Chebyshev sum by the native kernel: the ``override`` of an interpretation."""
    if op.name != "poly.chebyshev":
        return None
    low, high = site.attributes["domain"]
    return evaluate(arrays[0], site.constant("coefficients"), (low, high))


def evaluated(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray:
    """The result of an op that computes something, fused where it can be."""
    result = fused(op, site, arrays)
    if result is None:
        assert op.definition.evaluate is not None
        result = op.definition.evaluate(site, *arrays)
    return result


@dataclass(frozen=True)
class Excess:
    """An input that leaves the range of a polynomial.

    Attributes:
        input: what the input is called.
        op: the function that the polynomial stands for: softmax, layer_norm, gelu, ...
        location: module path.
        reached: the value that the polynomial is evaluated at.
        low, high: between which it is right, in the program's own units.
    """

    input: str
    op: str
    location: str
    reached: float
    low: float
    high: float

    @property
    def share(self) -> float:
        """How far outside, as a share of the range's width; infinite for what is not a number."""
        beyond = max(self.low - self.reached, self.reached - self.high)
        return beyond / (self.high - self.low) if np.isfinite(beyond) else float("inf")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        reached, low, high = self.reached, self.low, self.high
        return {
            "input": self.input, "op": self.op, "location": self.location, "reached": reached,
            "range": [low, high], "share": self.share,
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.input}: the argument of {self.op} in {self.location or 'the model'} reaches "
            f"{self.reached:.4g}, outside [{self.low:g}, {self.high:g}] by {self.share:.1%} of its "
            "width"
        )


@dataclass
class DomainWatch:
    """Observer of an interpretation: keeps the extremes of what polynomials are evaluated at.

    Attributes:
        module: a poly module.
        names: what the inputs are called; rows beyond them only fill a batch.
        found: which input leaves which range, with the polynomial's op.
        exploded: [inputs] whether a polynomial gave a value beyond `EXPLODED`, or none at all.
    """

    module: Module
    names: Sequence[str]
    found: list[tuple[Op, Excess]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exploded = np.zeros(len(self.names), dtype=bool)
        self._arguments = {op.operands[0] for op in self.module.ops if op.name == "poly.chebyshev"}
        self._extremes: dict[Value, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, op: Op, result: np.ndarray) -> None:
        """Look at the result of an op, [batch, ...]."""
        if op.value in self._arguments:
            self._extremes[op.value] = self._ends(result)
        if op.name != "poly.chebyshev":
            return
        least, most = self._ends(result)
        # Negated, because every comparison with what is not a number is false.
        self.exploded |= ~((least >= -EXPLODED) & (most <= EXPLODED))
        low, high = valid_range(op.attributes["domain"], op.attributes.get("valid", (-1.0, 1.0)))
        bottom, top = widened(low, high, result.dtype)
        function = op.attributes.get("part", "the polynomial")
        least, most = self._extremes[op.operands[0]]
        for row in map(int, np.flatnonzero(~((bottom <= least) & (most <= top)))):
            # The end that is further out; a value that is not a number leaves every range.
            further = most if not high - most[row] >= least[row] - low else least
            reached = float(further[row])
            excess = Excess(self.names[row], function, op.location, reached, low, high)
            self.found.append((op, excess))

    def _ends(self, result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = result[: len(self.names)].reshape(len(self.names), -1)
        return rows.min(axis=1), rows.max(axis=1)
