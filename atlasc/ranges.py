"""Inputs tried in the clear before they are encrypted: who leaves the range of which polynomial?

A Chebyshev sum explodes outside its domain, and nothing in a ciphertext says so. Whoever has the
program's polynomials can tell beforehand, at the price of one cleartext evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.client import ClientProgram
from atlasc.ir.module import Module, Op, Value
from atlasc.passes.approximation.fused import interpret_poly

SLACK = 1e-6
"""Rounding at the very end of a range is no violation; as a share of half its width."""


@dataclass(frozen=True)
class Excess:
    """An input that leaves the range of a polynomial.

    Attributes:
        input: what the input is called.
        op: the function that the polynomial stands for: softmax, layer_norm, gelu, ...
        location: module path.
        reached: the value that the polynomial is evaluated at.
        low, high: its range, in the program's own units.
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

    def __str__(self) -> str:
        return (
            f"{self.input}: the argument of {self.op} in {self.location or 'the model'} reaches "
            f"{self.reached:.4g}, outside [{self.low:g}, {self.high:g}] by {self.share:.1%} of its "
            "width"
        )


@dataclass(frozen=True)
class Simulation:
    """The polynomial simulation of some inputs.

    Attributes:
        outputs: by name, ``[count, ...]``.
        excesses: inputs outside a range, in the order of the program.
    """

    outputs: dict[str, np.ndarray]
    excesses: list[Excess]


def simulate(
    client: ClientProgram,
    poly: Module,
    arrays: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Simulation:
    """Evaluate the program in the clear and look at the argument of every polynomial.

    Args:
        client: prepares the raw inputs.
        poly: the program's cleartext meaning.
        arrays: raw inputs by name, any number of them.
        names: what each input is called.
        progress: called as progress(what, done, total) before each batch.
    """
    count = len(next(iter(arrays.values())))
    names = names if names is not None else [f"input {row}" for row in range(count)]
    outputs: dict[str, list[np.ndarray]] = {}
    found: list[tuple[int, Excess]] = []
    positions = {op: position for position, op in enumerate(poly.ops)}
    for start in range(0, count, client.batch):
        if progress is not None:
            progress("", start, count)
        part = {name: array[start : start + client.batch] for name, array in arrays.items()}
        called = names[start : start + client.batch]
        watch = _Watch(called)
        # Values outside a range may grow beyond float64; that is what is being looked for.
        with np.errstate(all="ignore"):
            results = interpret_poly(poly, client.prepare(part), observe=watch)
        for name, array in results.items():
            outputs.setdefault(name, []).append(array[: len(called)])
        found += [(positions[op], excess) for op, excess in watch.found]
    excesses = [excess for _, excess in sorted(found, key=lambda item: item[0])]
    return Simulation({n: np.concatenate(parts) for n, parts in outputs.items()}, excesses)


class _Watch:
    """Observes an interpretation: keeps the extremes of every value, looks at the polynomials."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.extremes: dict[Value, tuple[np.ndarray, np.ndarray]] = {}
        self.found: list[tuple[Op, Excess]] = []

    def __call__(self, op: Op, result: np.ndarray) -> None:
        rows = result[: len(self.names)].reshape(len(self.names), -1)
        self.extremes[op.value] = rows.min(axis=1), rows.max(axis=1)
        if op.name != "poly.chebyshev":
            return
        low, high = op.attributes["domain"]
        slack = SLACK * (high - low) / 2
        function = op.attributes.get("part", "the polynomial")
        for name, *ends in zip(self.names, *self.extremes[op.operands[0]], strict=True):
            least, most = (float(end) for end in ends)
            if low - slack <= least and most <= high + slack:
                continue
            # The end that is further out; a value that is not a number leaves every range.
            reached = most if not high - most >= least - low else least
            self.found.append((op, Excess(name, function, op.location, reached, low, high)))
