"""``scale-tokens``: multiplies tokens before a norm, so that the norm sees similar tokens.

Decoders give one token, mostly the first, values that are hundreds of times those of the others
(massive activations: Sun et al. 2024, https://arxiv.org/abs/2402.17762). The range of 1/sqrt then
spans many powers of ten, and no polynomial covers it. A norm undoes a factor on a token. So a token
whose mean squares lie far above those of all other tokens, on all inputs, is multiplied with a
power of two before the norm. This costs a product with a plaintext, of one level. Positions are
public, so the factors are constants.

Outputs stay the same up to the norm's epsilon, which the factor does not multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.calibration.calibrate import Calibration
from atlasc.calibration.measure import nonlinear_ops
from atlasc.calibration.ranges import LEAST_MARGIN, variance_range
from atlasc.calibration.streams import Streams, token_norms
from atlasc.calibration.tails import effective_margin
from atlasc.ir.errors import counted
from atlasc.ir.module import Module
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.calibration.calibrated_pass import CalibratedPass, other_model
from atlasc.passes.framework.pass_base import Report

APART = 8.0
"""Least mean square of a token that is multiplied, by the greatest one of the others."""
FEWEST_INPUTS = 8
"""Least number of inputs that have a token; with fewer it stays as it is."""
MOST_TOKENS = 4
"""Greatest number of tokens of a norm that are multiplied."""
EPSILON = 1e-5
"""Greatest share of the epsilon in a mean square; above it the outputs would change."""
SUFFIX = "_scaled"
"""Suffix of the names of norms with such factors: a calibration of the original does not fit."""

Factors = Mapping[str, Sequence[float] | np.ndarray]
"""Result name of a norm -> a factor for each token."""


@dataclass(frozen=True)
class ScaleTokens(CalibratedPass):
    """Multiply tokens before norms with the factors of a calibration; outputs stay the same.

    Attributes:
        ranges: JSON file of a calibration; without it the pass does nothing.
    """

    name = "scale-tokens"

    def changed(self, module: Module, calibration: Calibration, report: Report) -> Module:
        """Nn module to nn module."""
        return with_scaled_tokens(module, calibration.tokens)


def with_scaled_tokens(module: Module, factors: Factors) -> Module:
    """A new module with the same outputs, with these factors before its norms.

    Norms that have factors already stay as they are.

    Raises:
        AtlasError: the factors belong to another module.
    """
    norms = {op.value.name: op for op in token_norms(module)}
    factors = {name: one for name, one in factors.items() if f"{name}{SUFFIX}" not in norms}
    for name, one in factors.items():
        if name not in norms or len(one) != norms[name].value.tensor.shape[-2]:
            raise other_model(f"the tokens before %{name} cannot be multiplied")
    if not factors:
        return module
    rewriter = Rewriter(module)
    for op in module.ops:
        if op.result is None or op.result.name not in factors:
            rewriter.copy(op)
            continue
        name = op.result.name
        gamma = op.attributes["gamma"].name
        values = np.asarray(factors[name])[:, None].astype(module.symbols[gamma].dtype)
        factor = rewriter.module.constant(f"{gamma}.tokens", values)
        (x,) = rewriter.operands(op)
        scaled = rewriter.module.add("nn.scale", [x], {"factor": factor}, op.location)
        rewriter.values[op.result] = rewriter.module.add(
            op.name, [scaled], op.attributes, op.location, f"{name}{SUFFIX}"
        )
    rewriter.module.symbols = rewriter.module.arrays_used()
    return rewriter.module


def token_factors(
    module: Module,
    streams: Streams,
    note: Callable[[str, str], None] = lambda what, details: None,
    *,
    margin: float | None = LEAST_MARGIN,
) -> dict[str, np.ndarray]:
    """The factors of the norms that have a token far above the others.

    A token is multiplied only if the range of 1/sqrt, with its margin, becomes narrower. Without
    the token, the greatest values may be those of a few inputs, such as the padding of short texts.
    A margin that follows from this tail can be wider than the range with the token.

    Args:
        module: nn module.
        streams: what goes into its norms.
        note: called if one of the first tokens stands out on some inputs alone.
        margin: margin of the ranges, as of `calibrate`.

    Returns:
        Result name of a norm -> [tokens] factors, powers of two; 1 for a token that stays.
    """
    kept, found, apart = streams.kept, {}, {}
    seen, ends = kept.sum(axis=0), 2 * len(nonlinear_ops(module))
    margin = effective_margin(margin, len(kept))

    def width(squares: np.ndarray, epsilon: float) -> float:
        low, high = variance_range(
            squares.min(axis=1) + epsilon, squares.max(axis=1) + epsilon, margin, ends
        )
        return high / low

    for op in token_norms(module):
        name = op.value.name
        least = np.where(kept, streams.squares[name], np.inf).min(axis=0)
        most = np.where(kept, streams.squares[name], 0.0).max(axis=0)
        usable = np.isfinite(least) & (seen >= FEWEST_INPUTS)
        epsilon, squares = op.attributes["epsilon"], streams.squares[name].astype(np.float64)
        factors = _factors(least, most, usable, epsilon)
        if factors is not None and (
            width(squares * np.square(factors), epsilon) < width(squares, epsilon)
        ):
            found[name] = factors
        first, later = most[:MOST_TOKENS].max(), most[MOST_TOKENS:].max(initial=0.0)
        on_all = least[:MOST_TOKENS].max() >= APART * later
        if factors is None and not on_all and first >= APART * later > 0:
            apart[op.location] = float(first / later)
    if apart:
        place = max(apart, key=lambda one: apart[one])
        note(
            f"before {counted(len(apart), 'norm', 'norms')} one of the first tokens stands out on "
            f"some inputs alone: by a factor of {apart[place]:.3g} in {place}",
            "  why: it is multiplied only if it stands out on all inputs; otherwise the range of "
            "1/sqrt is wide, and inputs unlike the data leave it\n"
            "  what to do: begin all texts with the same tokens, as the model's chat template does",
        )
    return found


def _factors(
    least: np.ndarray, most: np.ndarray, usable: np.ndarray, epsilon: float
) -> np.ndarray | None:
    """Factors by the extremes of the mean squares of each token; None if all are 1."""
    order = [int(token) for token in np.argsort(-least) if usable[token]]
    for count in range(1, min(MOST_TOKENS, len(order) - 1) + 1):
        chosen, others = order[:count], np.isfinite(least)
        others[chosen] = False
        low, high = float(least[others].min()), float(most[others].max())
        if least[chosen[-1]] < APART * high or epsilon > EPSILON * low:
            continue
        factors = np.ones(len(least))
        middle = np.sqrt(least[chosen] * most[chosen])
        factors[chosen] = np.exp2(np.round(np.log2(np.sqrt(low * high) / middle) / 2))
        return factors
    return None
