"""How far outputs are from those of the cleartext model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from atlasc.ir.module import Module
from atlasc.passes.calibration.measure import kept_tokens


def output_error(
    outputs: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray | None],
) -> float:
    """Mean absolute error of outputs; infinite where a value is not finite.

    Args:
        outputs, reference: arrays by name.
        weights: of values, broadcast to each output; see ``error_weights``.
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
    """Weights of the values of an output [B, ...]: those of kept tokens, and of its input; None for
    equal ones.

    Args:
        shares: weight of each input; None for equal ones.
    """
    kept = kept_tokens(module, arrays, output)
    if shares is None:
        return kept
    each = np.reshape(shares, (-1, *[1] * (output.ndim - 1))).astype(output.dtype)
    return each if kept is None else kept * each
