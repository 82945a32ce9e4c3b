"""Inputs evaluated in the clear before they are encrypted: which one leaves a polynomial's range?

A Chebyshev sum explodes outside its range, and nothing in a ciphertext says so. One cleartext
evaluation of the program's polynomials finds such inputs beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.client.program import ClientProgram, batches, rows_of
from atlasc.ir.module import Module
from atlasc.passes.simulation.poly_values import DomainWatch, Excess, interpret_poly


@dataclass(frozen=True)
class CleartextRun:
    """The program's polynomials, evaluated on some inputs in the clear.

    Attributes:
        outputs: by name, ``[count, ...]``.
        excesses: inputs outside a range, in the order of the program.
    """

    outputs: dict[str, np.ndarray]
    excesses: list[Excess]

    def verdicts(self, names: Sequence[str]) -> list[Verdict]:
        """A verdict on each input, in the order of the names."""
        left: dict[str, list[Excess]] = {name: [] for name in names}
        for excess in self.excesses:
            left[excess.input].append(excess)
        return [Verdict(name, tuple(excesses)) for name, excesses in left.items()]


@dataclass(frozen=True)
class Verdict:
    """Whether an input stays inside all ranges.

    Attributes:
        input: what it is called.
        excesses: where it does not, in the order of the program.
        fault: why it cannot be encrypted (:mod:`atlasc.client.admission`); empty where it can.
    """

    input: str
    excesses: tuple[Excess, ...] = ()
    fault: str = ""

    @property
    def safe(self) -> bool:
        """Whether it stays inside all ranges and can be encrypted."""
        return not self.excesses and not self.fault

    @property
    def first(self) -> Excess | None:
        """Where it first leaves a range; later excesses may be consequences of this one."""
        return self.excesses[0] if self.excesses else None

    @property
    def worst(self) -> Excess | None:
        """Where it is furthest outside."""
        return max(self.excesses, key=lambda excess: excess.share, default=None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "input": self.input,
            "safe": self.safe,
            "fault": self.fault or None,
            "first": None if self.first is None else self.first.to_dict(),
            "worst": None if self.worst is None else self.worst.to_dict(),
            "ops": len(self.excesses),
        }


def simulate(
    client: ClientProgram,
    poly: Module,
    arrays: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> CleartextRun:
    """Evaluate the program in the clear and look at the argument of every polynomial.

    Args:
        client: prepares the raw inputs.
        poly: the program's polynomials.
        arrays: raw inputs by name, any number of them.
        names: of the inputs, for messages.
        progress: called as progress(what, done, total) before each batch.
    """
    count = rows_of(arrays)
    names = names if names is not None else [f"input {row}" for row in range(count)]
    outputs: dict[str, list[np.ndarray]] = {}
    found: list[tuple[int, Excess]] = []
    positions = {op: position for position, op in enumerate(poly.ops)}
    for start, part in batches(arrays, client.batch):
        if progress is not None:
            progress("", start, count)
        called = names[start : start + client.batch]
        watch = DomainWatch(poly, called)
        # Values outside a range may grow beyond float64: such inputs are being looked for.
        with np.errstate(all="ignore"):
            results = interpret_poly(poly, client.prepare(part), observe=watch)
        for name, array in results.items():
            outputs.setdefault(name, []).append(array[: len(called)])
        found += [(positions[op], excess) for op, excess in watch.found]
    excesses = [excess for _, excess in sorted(found, key=lambda item: item[0])]
    return CleartextRun({n: np.concatenate(parts) for n, parts in outputs.items()}, excesses)
