"""Whether the answers to inputs will be right: one verdict, for whoever asks.

Nothing in a ciphertext says that its numbers are wrong. One cleartext evaluation of the program's
polynomials, beside the functions that they stand for, finds such inputs before they are encrypted
(:mod:`atlasc.simulation.watch`): the answer must agree with the model's
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
        input: what it is called.
        excesses: ranges that it leaves, in the order of the program.
        fault: why it cannot be encrypted (:mod:`atlasc.client.checks`); empty where it can.
        error: mean absolute difference of the polynomials' answer from the model's: that of the
            functions that they stand for.
        promised: the error up to which an answer is right; None where the program does not say.
        disagrees: why the answer is not the model's; empty where it is.
        undecided: why nobody can say which class the answer will have; empty where it is clear.
        cosine: of the polynomials' answer with the model's.
        agreement: how far the polynomials' answer agrees with the model's: 1 for the same class, or
            for values that are near enough, 0 for others; a share where tokens have classes. None
            where the model's answer is not known.
    """

    input: str
    excesses: tuple[Excess, ...] = ()
    fault: str = ""
    error: float = 0.0
    promised: float | None = None
    disagrees: str = ""
    undecided: str = ""
    cosine: float | None = None
    agreement: float | None = None

    @property
    def kind(self) -> str:
        """``safe``: it can be encrypted and its answer will agree with the model's; ``undecided``:
        it can be encrypted, but the model itself hardly decides on a class; ``unsafe``.
        """
        if self._fails:
            return "unsafe"
        return "undecided" if self.undecided else "safe"

    @property
    def safe(self) -> bool:
        """Whether it can be encrypted and its answer will agree with the model's."""
        return self.kind == "safe"

    @property
    def unsafe(self) -> bool:
        """Whether its answer would be wrong; an undecided one is neither safe nor unsafe."""
        return self.kind == "unsafe"

    @property
    def why(self) -> str:
        """Why it is not safe; empty where it is."""
        return self._fails or self.undecided

    @property
    def _fails(self) -> str:
        if self.fault:
            return self.fault
        if deciding := [excess for excess in self.excesses if excess.decides]:
            return str(deciding[0])
        why = self.disagrees
        if not why and self.promised is not None and not self.error <= self.promised:
            why = f"its answer errs by {self.error:.3g}, {self.promised:.3g} was promised"
        # Where it first leaves a range is where to look; small errors may also have added up.
        return why and (f"{why}; {self.first}" if self.first else why)

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
            "verdict": self.kind,
            "why": self.why or None,
            "fault": self.fault or None,
            "error": self.error,
            "promised": self.promised,
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
    """A verdict on each of any number of raw inputs that are finite.

    Args:
        poly: the program's poly module. Bounds of bootstraps, and what is promised, are in it;
            without a promise, an input that leaves a range is unsafe.
        names: what verdicts call the inputs.
        progress: called with the number of inputs that are done.
        exact: the model's answers by output name; None for those of the functions that the poly
            module's sums stand for.
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
            with np.errstate(all="ignore"):  # of an input that leaves a range
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
                    agreement=float(agreement[row]) if known else None,
                    disagrees=beside.disagrees(promise, row),
                    undecided=beside.undecided(promise, row),
                )
            found.append(one)
    return found
