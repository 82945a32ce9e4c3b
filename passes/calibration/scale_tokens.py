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
from atlasc.calibration.measure import chunk_size, input_count, nonlinear_ops
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op, Value, family_of
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
    norms = {op.value.name: op for op in _norms(module)}
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
    arrays: Mapping[str, np.ndarray],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, np.ndarray]:
    """The factors of the norms that have a token far above the others.

    Args:
        module: nn module.
        arrays: inputs by name, [N, ...].
        progress: called with (inputs done, all inputs).

    Returns:
        Result name of a norm -> [tokens] factors, powers of two; 1 for a token that stays.
    """
    norms: dict[Value, list[Op]] = {}
    for op in _norms(module):
        norms.setdefault(op.operands[0], []).append(op)
    mask = next((arrays[op.attributes["name"]] for op in module.inputs
                 if op.attributes["side"] == "public"), None)  # fmt: skip
    least: dict[str, np.ndarray] = {}
    most: dict[str, np.ndarray] = {}
    keep = np.ones((1, 1), bool)

    def observe(op: Op, values: np.ndarray) -> None:
        for norm in norms.get(op.result, ()) if op.result is not None else ():
            variance = norm.name == "nn.layer_norm"
            centred = values - values.mean(-1, keepdims=True) if variance else values
            squares, name = np.square(centred).mean(axis=-1), norm.value.name
            low = np.where(keep, squares, np.inf).min(axis=0)
            high = np.where(keep, squares, 0.0).max(axis=0)
            least[name] = np.minimum(least.get(name, np.inf), low)
            most[name] = np.maximum(most.get(name, 0.0), high)

    if not norms:
        return {}
    interpreter, step = Interpreter(module, np.float32), chunk_size(module)
    count = input_count(module, arrays)
    for start in range(0, count, step):
        chunk = {name: array[start : start + step] for name, array in arrays.items()}
        if mask is not None:
            keep = mask[start : start + step].astype(bool)
        interpreter.run(chunk, observe=observe)
        if progress is not None:
            progress(min(start + step, count), count)
    seen = count if mask is None else mask.astype(bool).sum(axis=0)
    found = {}
    for op in _norms(module):
        name = op.value.name
        usable = np.isfinite(least[name]) & (seen >= FEWEST_INPUTS)
        factors = _factors(least[name], most[name], usable, op.attributes["epsilon"])
        if factors is not None:
            found[name] = factors
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


def _norms(module: Module) -> list[Op]:
    """Norms of whole tokens on encrypted data: [batch, tokens, features]."""
    return [
        op
        for op in nonlinear_ops(module)
        if family_of(op.name) == "norm" and len(op.value.tensor.shape) == 3
    ]
