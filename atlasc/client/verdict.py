"""Whether the answers to inputs will be right: one verdict, for whoever asks.

Nothing in a ciphertext says that its numbers are wrong. One cleartext evaluation of the program's
polynomials finds such inputs before they are encrypted (:mod:`atlasc.passes.simulation.watch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.client.program import TOGETHER, ClientProgram, batches, rows_of
from atlasc.ir.module import Module
from atlasc.passes.simulation.watch import PROMISED, Excess, Watch, errors_of_answers
from atlasc.targets.base import Progress, no_progress


@dataclass(frozen=True)
class Verdict:
    """Whether the answer to an input will be right.

    Attributes:
        input: what it is called.
        excesses: ranges that it leaves, in the order of the program.
        fault: why it cannot be encrypted (:mod:`atlasc.client.checks`); empty where it can.
        error: mean absolute difference of the polynomials' answer from that of the functions they
            stand for.
        promised: the error up to which an answer is right; None where the program does not say.
    """

    input: str
    excesses: tuple[Excess, ...] = ()
    fault: str = ""
    error: float = 0.0
    promised: float | None = None

    @property
    def safe(self) -> bool:
        """Whether it can be encrypted and its answer will be right."""
        return not self.why

    @property
    def why(self) -> str:
        """Why it is unsafe; empty where it is safe."""
        if self.fault:
            return self.fault
        if deciding := [excess for excess in self.excesses if excess.decides]:
            return str(deciding[0])
        if self.promised is None or self.error <= self.promised:
            return ""
        # Where it first leaves a range is where to look; small errors may also have added up.
        first = f"; {self.first}" if self.first else ""
        return f"its answer errs by {self.error:.3g}, {self.promised:.3g} was promised{first}"

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
            "why": self.why or None,
            "fault": self.fault or None,
            "error": self.error,
            "promised": self.promised,
            "first": self.first and self.first.to_dict(),
            "worst": self.worst and self.worst.to_dict(),
            "ops": len(self.excesses),
        }


def verdicts(
    client: ClientProgram,
    poly: Module,
    arrays: Mapping[str, np.ndarray],
    names: Sequence[str] | None = None,
    progress: Progress = no_progress,
) -> list[Verdict]:
    """A verdict on each of any number of raw inputs that are finite.

    Args:
        poly: the program's poly module. Bounds of bootstraps, and the error that is promised, are
            in it; without a promise, an input that leaves a range is unsafe.
        names: what verdicts call the inputs.
        progress: called with the number of inputs that are done.
    """
    count = rows_of(arrays)
    names = names if names is not None else [f"input {row}" for row in range(count)]
    promised = poly.attributes.get(PROMISED)
    found: list[Verdict] = []
    for start, part in batches(arrays, TOGETHER):
        progress("", start, count)
        watch = Watch(poly, rows_of(part))
        errors = errors_of_answers(poly, client.embedded(part), watch, np.float32)
        for row, name in enumerate(names[start : start + watch.inputs]):
            excesses = tuple(excess for at, excess in watch.found if at == row)
            found.append(Verdict(name, excesses, "", float(errors[row]), promised))
    return found
