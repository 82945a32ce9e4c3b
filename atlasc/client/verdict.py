"""Verdicts: whether the answer to an input will be right.

Nothing in a ciphertext shows that its numbers are wrong. Therefore inputs are checked before they
are encrypted: one cleartext evaluation of the program's polynomials, beside the functions that they
approximate (:mod:`atlasc.simulation.watch`). The answer must agree with the model's
(:mod:`atlasc.simulation.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atlasc.client.program import TOGETHER, ClientProgram, batches, rows_of
from atlasc.ir.module import Module
from atlasc.simulation.agreement import UNKNOWN, Promise, compared
from atlasc.simulation.poly_values import interpret_poly
from atlasc.simulation.watch import Excess, Watch, both_answers, knows_model
from atlasc.targets.base import Progress, no_progress


@dataclass(frozen=True)
class Verdict:
    """Whether the answer to an input will be right.

    Attributes:
        input: name of the input.
        excesses: ranges that the input leaves, in the order of the program.
        fault: why the input cannot be encrypted (:mod:`atlasc.client.checks`); empty if it can.
        error: mean absolute difference of the polynomials' answer from the model's, which is
            computed with the functions that the polynomials approximate.
        promised: error up to which an answer counts as right; None if the program promises none.
        stated: mean absolute error that the encrypted answer to this input stays within; None if
            the program promises none, or if the model's answer is not known.
        disagrees: why the answer differs from the model's; empty if it agrees.
        undecided: why the class of the answer is not certain; empty if it is.
        cosine: cosine of the polynomials' answer and the model's.
        agreement: how far the polynomials' answer agrees with the model's: 1 for the same class or
            for values that are near enough, 0 otherwise; a share if tokens have classes. None if
            the model's answer is not known.
    """

    input: str
    excesses: tuple[Excess, ...] = ()
    fault: str = ""
    error: float = 0.0
    promised: float | None = None
    stated: float | None = None
    disagrees: str = ""
    undecided: str = ""
    cosine: float | None = None
    agreement: float | None = None

    @property
    def kind(self) -> str:
        """``safe``: the input can be encrypted, and its answer will agree with the model's.
        ``undecided``: it can be encrypted, but the scores of the model's best classes are too close
        for the class of the answer to be certain. ``unsafe``: otherwise.
        """
        if self._fails:
            return "unsafe"
        return "undecided" if self.undecided else "safe"

    @property
    def safe(self) -> bool:
        """Whether the input can be encrypted and its answer will agree with the model's."""
        return self.kind == "safe"

    @property
    def unsafe(self) -> bool:
        """Whether the answer would be wrong. An undecided input is neither safe nor unsafe."""
        return self.kind == "unsafe"

    @property
    def why(self) -> str:
        """Why the input is not safe; empty if it is."""
        return self._fails or self.undecided

    @property
    def _fails(self) -> str:
        if self.fault:
            return self.fault
        if deciding := [excess for excess in self.excesses if excess.decides]:
            return str(deciding[0])
        why = self.disagrees
        if not why and self.promised is not None and not self.error <= self.promised:
            why = f"its answer errs by {self.error:.3g}; the program promises {self.promised:.3g}"
        # Look where the input first leaves a range; small errors may also have added up.
        return why and (f"{why}; {self.first}" if self.first else why)

    @property
    def first(self) -> Excess | None:
        """The first range that the input leaves; later excesses may be consequences."""
        return self.excesses[0] if self.excesses else None

    @property
    def worst(self) -> Excess | None:
        """Where the input is furthest outside a range."""
        return max(self.excesses, key=lambda excess: excess.share, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "input": self.input,
            "safe": self.safe,
            "verdict": self.kind,
            "why": self.why or None,
            "fault": self.fault or None,
            "error": self.error,
            "promised": self.promised,
            "stated": self.stated,
            "cosine": self.cosine,
            "agreement": self.agreement,
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
    exact: Mapping[str, np.ndarray] | None = None,
) -> list[Verdict]:
    """A verdict on each raw input. All inputs must be finite; any number is allowed.

    Args:
        client: the client's side of the program.
        poly: the program's poly module, with the ranges of bootstraps and the promise. Without a
            promise, an input that leaves a range is unsafe.
        arrays: raw inputs by name, ``[inputs, ...]``.
        names: names of the inputs in the verdicts.
        progress: called with the number of inputs that are done.
        exact: the model's answers by output name; None computes them with the functions that the
            poly module's polynomials approximate.
    """
    count = rows_of(arrays)
    names = names if names is not None else [f"input {row}" for row in range(count)]
    promise, known = Promise.of(poly), exact is not None or knows_model(poly)
    found: list[Verdict] = []
    for start, part in batches(arrays, TOGETHER):
        progress("", start, count)
        watch, embedded = Watch(poly, rows_of(part)), client.embedded(part)
        if exact is None:
            answers, model = both_answers(poly, embedded, np.float32, watch)
        else:
            with np.errstate(all="ignore"):  # inputs that leave a range overflow
                answers = interpret_poly(poly, embedded, np.float32, observe=watch)
            model = {n: y[start : start + watch.inputs] for n, y in exact.items()}
        beside = compared(promise or UNKNOWN, poly, embedded, answers, model)
        agreement = beside.agreement(promise or UNKNOWN)
        for row, name in enumerate(names[start : start + watch.inputs]):
            excesses = tuple(excess for at, excess in watch.found if at == row)
            error, cosine = float(beside.errors[row]), float(beside.cosines[row])
            one = Verdict(name, excesses, "", error, cosine=cosine)
            if promise is not None:
                one = replace(
                    one,
                    promised=promise.error,
                    stated=promise.stated(error) if known else None,
                    agreement=float(agreement[row]) if known else None,
                    disagrees=beside.disagrees(promise, row),
                    undecided=beside.undecided(promise, row, known),
                )
            found.append(one)
    return found
