"""Whether an answer agrees with the model's, by a measure that users know.

Three measures are enough for Transformers:

* ``class``: the answer is a score for each class, and the class with the best score counts.
* ``tokens``: the class of each token of a text counts: decoders, taggers, masked language models.
* ``values``: the numbers count (embeddings, regressions): their cosine with the model's, and their
  error in relation to how the answers vary from input to input.

Errors are measured against the *variation* of the outputs: their standard deviation over inputs,
around the mean of each feature. The mean magnitude would not do: with a bias of 100, a classifier
whose logits vary by 0.15 would be allowed errors as large as its logits' differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from atlasc.ir.interpreter import kept_tokens
from atlasc.ir.module import Module

Measure = Literal["class", "tokens", "values"]
MEASURES: tuple[Measure, ...] = ("class", "tokens", "values")
PROMISED, NOISE, USUAL = "promised_error", "encryption_error", "usual_error"
MEASURE, VARIATION = "agreement", "variation"
"""Attributes of a poly module; see `Promise`."""
PROMISE = 10.0
"""An input usually errs by at most this many times the mean error of the search inputs: on real
texts the worst of hundreds errs by three to ten times the mean."""
FINEST = 3e-3
"""Least error that is promised, as a share of the variation, so that a more accurate program is not
judged more strictly."""
LARGEST = 0.1
"""Greatest error of an answer that agrees, as a share of the variation. At this error, the cosine
with the model's answer is about 0.995, measured around the mean of all answers."""
COSINE = 0.995
"""Least cosine of an answer with the model's."""
LEAST_AGREEMENT: dict[Measure, float] = {"class": 0.99, "tokens": 0.999, "values": 0.99}
"""Share of the held-back inputs, or of their tokens, whose answers must agree with the model's if a
program is offered. It is larger for tokens: an input on whose class the model hardly decides is
undecided, but a text with some such tokens is safe. Of texts of another kind, up to four times as
many tokens get another class, and 99.5% of these should agree too (benchmarks/fidelity/safe.py)."""
ROUNDING = 1e-4
"""Difference between the exact functions and the model that may come from rounding, as a share of
how the outputs vary."""
SINGLE = 1e-5
"""Error of an answer that is computed in single precision, as a share of the variation: forty times
what was measured on six layers."""
CHUNK = 1 << 24
"""Values of answers that are compared at once."""
ERROR = "the mean absolute difference of an answer's numbers from the model's"
"""What an error of an answer is, wherever one is stated. Its unit is that of the output; padding is
left out."""
MEAN_ERROR = {"class": "mean error", "tokens": "error sqrt(2 KL)", "values": "mean error"}
"""Measure -> name of the figure by which settings are compared."""
DESCRIPTIONS = {
    "class": "the same class",
    "tokens": "the same likeliest class of each token",
    "values": f"a cosine of {COSINE:g} or more, and errors of at most {LARGEST:.0%} of how the "
    "answers vary",
}


@dataclass(frozen=True)
class Promise:
    """The promise of a program for each answer; its poly module keeps it.

    Attributes:
        measure: how agreement is judged.
        error: greatest mean absolute error of an answer against the model's, encryption included.
        noise: greatest part of this error that encryption adds.
        variation: variation of the model's answers from input to input.
        usual: greatest error of answers to inputs like those of calibration; None for `error`.
    """

    measure: Measure
    error: float
    noise: float = 0.0
    variation: float = float("inf")
    usual: float | None = None

    @property
    def near(self) -> float:
        """Difference of a model's two best scores up to which the model hardly decides."""
        usual = self.error if self.usual is None else self.usual
        return min(usual, LARGEST * self.variation)

    @property
    def coarse(self) -> bool:
        """Whether answers usually err so much that a class may be right by chance.

        ``error`` does not tell: it is `LARGEST` of the variation otherwise, and attributes of a
        module round both.
        """
        usual = self.error if self.usual is None else self.usual
        return usual > LARGEST * self.variation

    @property
    def doubt(self) -> float:
        """How far a score of the encrypted answer may be from the polynomials' own, which the check
        computes: by encryption, and by rounding.
        """
        return min(self.near, self.noise + ROUNDING * self.variation)

    def stated(self, error: float) -> float:
        """Greatest mean absolute error of the encrypted answer to an input.

        Args:
            error: of the polynomials' answer, as the check measured it.
        """
        varying = self.variation if np.isfinite(self.variation) else 0.0
        return error + self.noise + SINGLE * varying

    def attributes(self) -> dict[str, Any]:
        """Attributes of the poly module, with three digits: further ones depend on the order of
        sums.
        """
        figures = {PROMISED: self.error, NOISE: self.noise, VARIATION: self.variation}
        if self.usual is not None:
            figures[USUAL] = self.usual
        rounded = {name: float(f"{figure:.3g}") for name, figure in figures.items()}
        return {**rounded, MEASURE: self.measure}

    @staticmethod
    def of(module: Module) -> Promise | None:
        """The promise of a poly module; None if it makes none."""
        found = module.attributes
        if PROMISED not in found:
            return None
        measure = found.get(MEASURE, "values")
        known = {"noise": NOISE, "variation": VARIATION, "usual": USUAL}
        others = {member: found[name] for member, name in known.items() if name in found}
        return Promise(measure, found[PROMISED], **others)

    def __str__(self) -> str:
        share = (
            f", {self.error / self.variation:.2%} of how answers vary," if self.variation else ""
        )
        noise = f"; encryption adds at most {self.noise:.2g}" if self.noise else ""
        return (
            f"an answer agrees with the model's: {DESCRIPTIONS[self.measure]}; one that errs by "
            f"more than {self.error:.3g}{share} counts as wrong{noise}; an error is {ERROR}"
        )


UNKNOWN = Promise("values", float("inf"))
"""The promise of a program that promises nothing."""


def promised(measure: Measure, error: float, variation: float, noise: float = 0.0) -> Promise:
    """The promise that a program may make.

    Args:
        measure: how agreement is judged.
        error: mean absolute error of the polynomials on the search inputs.
        variation: variation of the model's answers.
        noise: greatest error that encryption adds to an answer.
    """
    usual, largest = PROMISE * max(error, FINEST * variation) + noise, LARGEST * variation
    if measure == "values":
        return Promise(measure, min(usual, largest), noise, variation)
    # A class is right or wrong, however much its scores err, so a single input may err by more than
    # others. A program that usually errs by more says so.
    most = max(usual, largest) if measure == "class" else largest
    return Promise(measure, most, noise, variation, usual)


def variation(outputs: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray | None]) -> float:
    """How outputs [N, ..., features], by name, vary from input to input and from token to token:
    the standard deviation around the mean of each feature, or their magnitude if they do not vary.

    Args:
        weights: weights broadcast to each output; None for equal weights.
    """
    squares = sizes = total = 0.0
    for name, output in outputs.items():
        if output.ndim < 2:
            output = output.reshape(len(output), 1)
        kept = weights[name]
        whole = 1.0 if kept is None else kept.reshape(*kept.shape, *[1] * (output.ndim - kept.ndim))
        each = np.broadcast_to(whole, (*output.shape[:-1], 1)).reshape(-1).astype(np.float64)
        rows = output.reshape(-1, output.shape[-1])[each > 0].astype(np.float64)
        each = each[each > 0]
        centre = (each @ rows) / each.sum()
        squares += float((each @ np.square(rows - centre)).sum())
        sizes += float((each @ np.abs(rows)).sum())
        total += float(each.sum()) * rows.shape[1]
    spread, magnitude = float(np.sqrt(squares / total)), sizes / total
    return spread if spread > 1e-9 * magnitude else magnitude or 1.0


@dataclass(frozen=True)
class Comparison:
    """Comparison of the answers to N inputs with the model's; all attributes are [N].

    Attributes:
        errors: mean absolute difference, without padding tokens; infinite if it is not finite.
        cosines: cosine with the model's answer; 1 for answers of a single number.
        same: share of tokens with the model's class; for one class 1 or 0; without classes 1.
        flips: largest difference of the model's two best scores at a place where the class
            differs; 0 if no class differs.
        margins: least difference of the model's two best scores; infinite without classes.
        own_margins: least lead of the model's class in the answer; infinite without classes.
        unclear: share of tokens whose class encryption may change, or that differs.
    """

    errors: np.ndarray
    cosines: np.ndarray
    same: np.ndarray
    flips: np.ndarray
    margins: np.ndarray
    own_margins: np.ndarray
    unclear: np.ndarray

    def agreement(self, promise: Promise) -> np.ndarray:
        """How far each answer agrees with the model's, from 0 to 1."""
        finite = np.isfinite(self.errors)
        if promise.measure != "values":
            return np.where(finite, self.same, 0.0)
        near = self.errors + promise.noise <= LARGEST * promise.variation
        return np.where(finite & near & (self.cosines >= COSINE), 1.0, 0.0)

    def wrong(self, promise: Promise) -> np.ndarray:
        """Whether each answer differs from the model's although the model decides; [N]."""
        return np.array([self.disagrees(promise, row) != "" for row in range(len(self.errors))])

    def disagrees(self, promise: Promise, row: int) -> str:
        """Why the answer to an input differs from the model's; empty if it agrees, or if the model
        itself hardly decides.
        """
        error, near = self.errors[row] + promise.noise, promise.near
        if not error <= promise.error:
            return f"its answer errs by {error:.3g}; the program promises {promise.error:.3g}"
        if promise.measure == "values":
            if not self.cosines[row] >= COSINE:
                return f"the cosine of its answer with the model's is {self.cosines[row]:.4f}"
            return ""
        if self.flips[row] > near:
            return (
                "its class differs from the model's, although the model's scores differ by at "
                "least "
                f"{self.flips[row]:.3g}"
            )
        if (
            promise.measure == "class"
            and promise.coarse
            and near < self.margins[row] <= promise.error
        ):
            return (
                f"its class is chance: the two best scores differ by {self.margins[row]:.3g}, but "
                f"an answer may err by {promise.error:.3g}"
            )
        return ""

    def undecided(self, promise: Promise, row: int, known: bool = True) -> str:
        """Why it is uncertain that an answer will have the model's class; empty if it is certain.

        The polynomials' answer and the model's are both known here, so only the errors of
        encryption and of rounding are left to chance, however much other answers err. Under a
        coarse program the class itself may be right by chance.

        Args:
            promise: the program's promise.
            row: the input.
            known: whether ``margins`` are those of the model itself; otherwise its scores may be as
                far off as answers usually are.
        """
        margin, own = self.margins[row], self.own_margins[row]
        chance = margin <= promise.near and (promise.coarse or not known)
        if promise.measure == "class" and (own <= 0 or chance):
            return (
                f"the model itself hardly decides: its two best scores differ by {margin:.3g}, but "
                f"an answer may err by {promise.near:.3g}"
            )
        if promise.measure == "class" and own <= 2 * promise.doubt:
            return f"errors of encryption may change its class: two scores differ by {own:.3g}"
        if promise.measure == "tokens" and self.unclear[row] > 0.5:
            return f"the model itself hardly decides {self.unclear[row]:.0%} of its tokens"
        return ""


def compared(
    promise: Promise,
    module: Module,
    inputs: Mapping[str, np.ndarray],
    answers: Mapping[str, np.ndarray],
    model: Mapping[str, np.ndarray],
) -> Comparison:
    """Compare answers [N, ...], by output name, with the model's.

    Args:
        promise: how agreement is judged.
        module: the module, which tells the input that is a mask.
        inputs: inputs of the module, by name.
        answers, model: answers of the program and of the model, by output name.
    """
    with np.errstate(all="ignore"):  # values that are not finite count as infinitely wrong
        parts = [
            _in_chunks(promise, kept_tokens(module, inputs, exact), answers[name], exact)
            for name, exact in model.items()
        ]
    worst = (np.max, np.min, np.min, np.max, np.min, np.min, np.max)
    return Comparison(*(of(values, axis=0) for of, values in zip(worst, zip(*parts), strict=True)))


def _in_chunks(
    promise: Promise, kept: np.ndarray | None, answers: np.ndarray, model: np.ndarray
) -> tuple[np.ndarray, ...]:
    """`_compared`, some inputs at a time: scores of a vocabulary at each token are many."""
    step = max(1, CHUNK // max(1, model[:1].size))
    parts = [
        _compared(promise, None if kept is None else kept[rows], answers[rows], model[rows])
        for rows in (slice(start, start + step) for start in range(0, len(model), step))
    ]
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def _compared(
    promise: Promise, kept: np.ndarray | None, answers: np.ndarray, model: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The members of a `Comparison` for one output [N, ...]."""
    count = len(model)
    whole = np.ones((count, *[1] * (model.ndim - 1))) if kept is None else kept
    counted = np.broadcast_to(whole, model.shape) > 0
    errors = _means(np.abs(answers - model), counted)
    ours, theirs = (np.where(counted, a, 0.0).reshape(count, -1) for a in (answers, model))
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosines = np.nan_to_num((ours * theirs).sum(axis=1) / norms, nan=0.0)
    cosines[norms == 0] = (errors == 0)[norms == 0]
    if ours.shape[1] < 2:
        cosines = np.isfinite(errors).astype(np.float64)
    if promise.measure == "values" or model.ndim < 2 or model.shape[-1] < 2:
        ones = np.ones(count)
        return errors, cosines, ones, 0 * ones, np.inf * ones, np.inf * ones, 0 * ones
    places = counted[..., 0].reshape(count, -1)
    shape = (*places.shape, model.shape[-1])
    same, margins, own = _classes(answers.reshape(shape), model.reshape(shape))
    return (
        errors,
        cosines,
        _means(same, places),
        np.where(places & ~same, margins, 0.0).max(axis=1),
        np.where(places, margins, np.inf).min(axis=1),
        np.where(places, own, np.inf).min(axis=1),
        _means(own <= 2 * promise.doubt, places),
    )


def _classes(answers: np.ndarray, model: np.ndarray) -> tuple[np.ndarray, ...]:
    """For scores [N, places, classes]: whether the best class is the same, by how much it leads in
    the model, and by how much it leads in the answers (negative if it does not lead).
    """
    best = model.argmax(axis=-1)[..., None]
    two = np.partition(model, -2, axis=-1)[..., -2:]
    rest = answers.copy()
    np.put_along_axis(rest, best, -np.inf, axis=-1)
    own = np.take_along_axis(answers, best, axis=-1)[..., 0] - rest.max(axis=-1)
    return answers.argmax(axis=-1) == best[..., 0], two[..., 1] - two[..., 0], own


def _means(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Means [N] of the counted values in [N, ...]; infinite if one of them is not finite."""
    axes = tuple(range(1, values.ndim))
    found = np.where(counted, values, 0.0).sum(axis=axes) / counted.sum(axis=axes)
    return np.where(np.isfinite(found), found, np.inf)
