"""Errors of the outputs of a setting against the cleartext outputs.

Two kinds of outputs are told apart:

* Numbers count as they are: the error is the mean absolute difference.
* Scores of the class of each token (the logits of a language model) count by the probabilities that
  they stand for. Most words of a vocabulary are unlikely, and an error of their scores changes
  nothing. So the error is sqrt(2 KL), with KL the mean Kullback-Leibler divergence of the
  probabilities from the model's. For small errors this is the standard deviation of the errors of
  the scores under the model's own probabilities, so it has the unit of scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from atlasc.ir.interpreter import kept_tokens
from atlasc.ir.module import Module
from atlasc.simulation.agreement import Measure, variation
from atlasc.simulation.simulate import PolynomialSimulator

ERRORS: dict[Measure, str] = {
    "class": "mean absolute error of the outputs",
    "tokens": "sqrt(2 KL) of the scores of tokens, KL in nats",
    "values": "mean absolute error of the outputs",
}
"""Measure -> what the error of a setting is, in words."""


class OutputErrors(NamedTuple):
    """Errors of the outputs of one setting; all are infinite if a value is not finite.

    Attributes:
        error: what a search minimises.
        mean_error: mean absolute difference of the outputs; equal to ``error`` if numbers count.
        divergence: mean Kullback-Leibler divergence of the probabilities of a token from the
            model's, in nats; None if numbers count.
        top_1: share of tokens with the model's likeliest class; None if numbers count.
    """

    error: float
    mean_error: float
    divergence: float | None = None
    top_1: float | None = None


@dataclass(frozen=True)
class Reference:
    """Cleartext outputs, with which the outputs of settings are compared.

    Attributes:
        outputs: [N, ...] by name.
        weights: broadcast to each output; None for equal weights. See `error_weights`.
        measure: with "tokens", outputs [N, tokens, classes] are scores of classes.
    """

    outputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray | None]
    measure: Measure = "values"

    @staticmethod
    def of(
        module: Module,
        arrays: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        shares: Sequence[float] | None = None,
        measure: Measure = "values",
    ) -> Reference:
        """The reference of a module's inputs.

        Args:
            module: the module, which tells the input that is a mask.
            arrays: its inputs by name.
            outputs: its cleartext outputs by name.
            shares: weight of each input; None for equal weights.
            measure: what counts in an output.
        """
        weights = {n: error_weights(module, arrays, y, shares) for n, y in outputs.items()}
        return Reference(outputs, weights, measure)

    @property
    def variation(self) -> float:
        """How the outputs vary from input to input; see `agreement.variation`."""
        return variation(self.outputs, self.weights)

    def errors(self, outputs: Mapping[str, np.ndarray]) -> OutputErrors:
        """The errors of outputs, by name."""
        mean = output_error(outputs, self.outputs, self.weights)
        if self.measure != "tokens":
            return OutputErrors(mean, mean)
        totals = np.zeros(3)
        for name, exact in self.outputs.items():
            totals += _token_sums(outputs[name], exact, self.weights[name])
        divergence, top_1 = (float(one) for one in totals[:2] / totals[2])
        if not math.isfinite(divergence + mean):
            return OutputErrors(math.inf, math.inf, math.inf, top_1)
        return OutputErrors(math.sqrt(2 * max(divergence, 0.0)), mean, divergence, top_1)


def simulated_errors(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    shares: Sequence[float] | None = None,
    measure: Measure = "values",
) -> tuple[OutputErrors, float, str | None]:
    """Errors of a module's polynomials against the cleartext module, how its cleartext outputs
    vary (see `OutputErrors`), and the op whose values explode first, if any do.
    """
    simulator = PolynomialSimulator(module)
    inputs = simulator.prepare(arrays)
    simulated = simulator.run(inputs)
    exact = Reference.of(module, arrays, simulator.cleartext(inputs), shares, measure)
    infinite = OutputErrors(math.inf, math.inf)
    errors = exact.errors(simulated.outputs) if simulated.finite else infinite
    return errors, exact.variation, simulated.exploded_at


def _token_sums(
    outputs: np.ndarray, exact: np.ndarray, weights: np.ndarray | None
) -> tuple[float, float, float]:
    """For scores [N, tokens, classes]: weighted sums over tokens of the divergence, and of the
    tokens with the same likeliest class; and the sum of the weights.
    """
    each = np.ones((1, 1, 1)) if weights is None else weights
    each = np.broadcast_to(each, (*exact.shape[:2], 1))[..., 0].astype(np.float64)
    divergence = same = 0.0
    for row, kept in enumerate(each > 0):  # one input at a time: a vocabulary is large
        ours, theirs = outputs[row][kept], exact[row][kept]
        with np.errstate(all="ignore"):
            divergence += float(each[row][kept] @ divergences(ours, theirs))
        same += float(each[row][kept] @ (ours.argmax(axis=-1) == theirs.argmax(axis=-1)))
    return divergence, same, float(each.sum())


def divergences(scores: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence [...] of the probabilities of scores [..., classes] from those of
    the model's scores, in nats; not finite if a score is not.

    With d the difference of the scores and E the mean under the model's probabilities, it is
    log E exp(d - E d), which loses no digits if d is small.
    """
    powers = np.exp((exact - exact.max(axis=-1, keepdims=True)).astype(np.float64))
    total = powers.sum(axis=-1)
    d = np.subtract(scores, exact, dtype=np.float64)
    d -= (np.einsum("...c,...c->...", powers, d) / total)[..., None]
    return np.asarray(np.log1p(np.einsum("...c,...c->...", powers, np.expm1(d)) / total))


def output_error(
    outputs: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray | None],
) -> float:
    """Mean absolute error of outputs, by name; infinite if a value is not finite.

    Weights are broadcast to each output; see ``error_weights``.
    """
    total = weight = 0.0
    for name, expected in reference.items():
        difference = np.abs(outputs[name] - expected)
        kept = weights[name]
        total += float(np.sum(difference if kept is None else difference * kept, dtype=float))
        weight += expected.size if kept is None else float(kept.sum()) * expected.size / kept.size
    error = total / weight
    return error if np.isfinite(error) else float("inf")


def error_weights(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    output: np.ndarray,
    shares: Sequence[float] | None = None,
) -> np.ndarray | None:
    """Weights of the values of an output [B, ...]: 1 for kept tokens times the share of the input;
    None for equal weights.
    """
    kept = kept_tokens(module, arrays, output)
    if shares is None:
        return kept
    each = np.reshape(shares, (-1, *[1] * (output.ndim - 1))).astype(output.dtype)
    return each if kept is None else kept * each
