"""Whether an answer agrees with the model's, by a measure that a user knows.

Three measures are enough for Transformers:

* ``class``: the answer is a score for each class, and the class with the best score counts.
* ``tokens``: the same for each token of a text: decoders, taggers, masked language models.
* ``values``: the numbers count (embeddings, regressions): their cosine with the model's, and their
  error against how the answers vary from input to input.

Errors are measured against the *variation* of the outputs: their standard deviation over inputs,
around the mean of each feature. The mean magnitude would not do: with a bias of 100, a classifier
whose logits vary by 0.15 would be allowed errors as large as these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from atlasc.calibration.measure import kept_tokens
from atlasc.ir.module import Module

Measure = Literal["class", "tokens", "values"]
MEASURES: tuple[Measure, ...] = ("class", "tokens", "values")
PROMISED, NOISE, USUAL = "promised_error", "encryption_error", "usual_error"
MEASURE, VARIATION = "agreement", "variation"
"""Attributes of a poly module; see `Promise`."""
PROMISE = 10.0
"""Times the mean error of the search inputs is what an input usually errs by at most: on real texts
the worst of hundreds errs by three to ten times the mean."""
FINEST = 3e-3
"""Of the variation of the outputs: errors below count as this one, so that a more accurate program
is not judged more strictly."""
LARGEST = 0.1
"""Of the variation: an answer that errs by more is another answer. Around the mean of all answers,
the cosine of an answer with the model's is then about 0.995."""
COSINE = 0.995
"""Least cosine of an answer with the model's."""
LEAST_AGREEMENT: dict[Measure, float] = {"class": 0.99, "tokens": 0.999, "values": 0.99}
"""Share of the held-back inputs, or of their tokens, whose answers must agree with the model's, of
a program that is offered. For tokens more: an input whose class the model hardly decides is
undecided, but a text with some such tokens is safe. Of texts of another kind, up to four times as
many tokens are other ones, and 99.5% of these should agree too (benchmarks/fidelity/safe.py)."""
DESCRIPTIONS = {
    "class": "the same class",
    "tokens": "the same likeliest class of each token",
    "values": f"a cosine of {COSINE:g} or more, and errors of at most {LARGEST:.0%} of how the "
    "answers vary",
}


@dataclass(frozen=True)
class Promise:
    """What a program promises of each answer; it stands in its poly module.

    Attributes:
        measure: what counts.
        error: greatest mean absolute error of an answer against the model's, encryption included.
        noise: what encryption adds to it at most.
        variation: of the model's answers from input to input.
        usual: what answers to inputs like those of calibration err by at most; None for `error`.
    """

    measure: Measure
    error: float
    noise: float = 0.0
    variation: float = float("inf")
    usual: float | None = None

    @property
    def near(self) -> float:
        """If the scores of a model's two best classes differ by no more, it hardly decides."""
        usual = self.error if self.usual is None else self.usual
        return min(usual, LARGEST * self.variation)

    def attributes(self) -> dict[str, Any]:
        """Of the poly module; three digits, because the last ones depend on the order of sums."""
        figures = {PROMISED: self.error, NOISE: self.noise, VARIATION: self.variation}
        if self.usual is not None:
            figures[USUAL] = self.usual
        rounded = {name: float(f"{figure:.3g}") for name, figure in figures.items()}
        return {**rounded, MEASURE: self.measure}

    @staticmethod
    def of(module: Module) -> Promise | None:
        """The promise of a poly module; None where it does not make one."""
        found = module.attributes
        if PROMISED not in found:
            return None
        measure = found.get(MEASURE, "values")
        known = {"noise": NOISE, "variation": VARIATION, "usual": USUAL}
        others = {member: found[name] for member, name in known.items() if name in found}
        return Promise(measure, found[PROMISED], **others)

    def __str__(self) -> str:
        share = f", {self.error / self.variation:.2%} of how answers vary" if self.variation else ""
        noise = f" ({self.noise:.2g} of it by encryption)" if self.noise else ""
        return (
            f"an answer agrees with the model's: {DESCRIPTIONS[self.measure]}; it may err by "
            f"{self.error:.3g}{share}{noise}"
        )


UNKNOWN = Promise("values", float("inf"))
"""Of a program that promises nothing."""


def promised(measure: Measure, error: float, variation: float, noise: float = 0.0) -> Promise:
    """What a program may promise.

    Args:
        error: mean absolute error of the polynomials on the search inputs.
        noise: what encryption adds to an answer at most.
    """
    usual, largest = PROMISE * max(error, FINEST * variation) + noise, LARGEST * variation
    if measure == "values":
        return Promise(measure, min(usual, largest), noise, variation)
    # A class is right or not, whatever its scores err by: of one input they may err by more than
    # of others. A program that usually errs by more says so.
    most = max(usual, largest) if measure == "class" else largest
    return Promise(measure, most, noise, variation, usual)


def variation(outputs: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray | None]) -> float:
    """How outputs [N, ..., features], by name, vary from input to input and from token to token:
    the standard deviation around the mean of each feature. Their magnitude where they do not vary.

    Args:
        weights: broadcast to each output; None for equal ones.
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
    """Answers to N inputs beside the model's, ``[N]`` each.

    Attributes:
        errors: mean absolute difference, without padding tokens; infinite where it is not finite.
        cosines: with the model's answer; 1 for answers of a single number.
        same: share of the tokens with the model's class, 1 or 0 for one class; else 1.
        flips: the largest difference between the model's two best scores at a place where the
            class is another one; 0 where all are the same.
        margins: least difference between the model's two best scores; infinite without classes.
        own_margins: by how much the model's class leads in the answer, at least; likewise.
        unclear: share of the tokens at which the model hardly decides.
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
        """Which answers are not the model's, although the model decides."""
        return np.array([self.disagrees(promise, row) != "" for row in range(len(self.errors))])

    def disagrees(self, promise: Promise, row: int) -> str:
        """Why the answer to an input is not the model's; empty where it is, or where the model
        itself hardly decides.
        """
        error, near = self.errors[row] + promise.noise, promise.near
        if not error <= promise.error:
            return f"its answer errs by {error:.3g}, {promise.error:.3g} was promised"
        if promise.measure == "values":
            if not self.cosines[row] >= COSINE:
                return f"the cosine of its answer with the model's is {self.cosines[row]:.4f}"
            return ""
        if self.flips[row] > near:
            return (
                "its class is not the model's, whose scores of the two differ by at least "
                f"{self.flips[row]:.3g}"
            )
        coarse = promise.error > LARGEST * promise.variation
        if promise.measure == "class" and coarse and near < self.margins[row] <= promise.error:
            return (
                f"its class is chance: the two best scores differ by {self.margins[row]:.3g}, and "
                f"an answer may err by {promise.error:.3g}"
            )
        return ""

    def undecided(self, promise: Promise, row: int) -> str:
        """Why nobody can say that an answer will have the model's class: the scores of two classes
        are too near to each other; empty where they are not.
        """
        margin, own = self.margins[row], self.own_margins[row]
        if promise.measure == "class" and margin <= promise.near:
            return (
                f"the model itself hardly decides: its two best scores differ by {margin:.3g}, and "
                f"an answer may err by {promise.near:.3g}"
            )
        if promise.measure == "class" and own <= 2 * promise.noise:
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
    """Answers [N, ...] by output name, beside those of the model.

    Args:
        module: tells which input is a mask.
        inputs: of the module, by name.
    """
    with np.errstate(all="ignore"):  # what is not finite is infinitely wrong
        parts = [
            _compared(promise, kept_tokens(module, inputs, exact), answers[name], exact)
            for name, exact in model.items()
        ]
    worst = (np.max, np.min, np.min, np.max, np.min, np.min, np.max)
    return Comparison(*(of(values, axis=0) for of, values in zip(worst, zip(*parts), strict=True)))


def _compared(
    promise: Promise, kept: np.ndarray | None, answers: np.ndarray, model: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The members of a `Comparison`, of one output [N, ...]."""
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
        _means(margins <= promise.near, places),
    )


def _classes(answers: np.ndarray, model: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of scores [N, places, classes]: whether the best is the same, by how much the model's best
    leads, and by how much the same class leads in the answers (less than 0 where it does not).
    """
    best = model.argmax(axis=-1)[..., None]
    two = np.partition(model, -2, axis=-1)[..., -2:]
    rest = answers.copy()
    np.put_along_axis(rest, best, -np.inf, axis=-1)
    own = np.take_along_axis(answers, best, axis=-1)[..., 0] - rest.max(axis=-1)
    return answers.argmax(axis=-1) == best[..., 0], two[..., 1] - two[..., 0], own


def _means(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Means [N] of values [N, ...] where they are counted; infinite where one is not finite."""
    axes = tuple(range(1, values.ndim))
    found = np.where(counted, values, 0.0).sum(axis=axes) / counted.sum(axis=axes)
    return np.where(np.isfinite(found), found, np.inf)
