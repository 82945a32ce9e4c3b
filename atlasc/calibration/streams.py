"""Measures what goes into norms, token by token and channel by channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atlasc.calibration.measure import Measurement, input_count, measure, nonlinear_ops, reached
from atlasc.ir.module import Module, Op, family_of


@dataclass(frozen=True)
class Streams:
    """The operands of the norms of whole tokens, on N inputs of n tokens.

    Attributes:
        kept: [N, n] True for real tokens, False for padding.
        squares: result name of a norm -> [N, n] variance or mean square of each token.
        channels: result name of a norm -> greatest magnitude of each feature in real tokens; after
            centring for a LayerNorm.
    """

    kept: np.ndarray
    squares: dict[str, np.ndarray]
    channels: dict[str, np.ndarray]


def token_norms(module: Module) -> list[Op]:
    """Norms of whole tokens on encrypted data: [batch, tokens, features].

    A model with two sequences of other lengths has norms of both; these are those of the first.
    """
    norms = [op for op in nonlinear_ops(module) if family_of(op.name) == "norm"]
    whole = [op for op in norms if len(op.value.tensor.shape) == 3]
    return [op for op in whole if op.value.tensor.shape[1] == whole[0].value.tensor.shape[1]]


def streams_of(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    progress: Callable[[int, int], None] | None = None,
) -> Streams:
    """What goes into the norms of the cleartext model; see `measured_streams`."""
    return measured_streams(module, arrays, progress)[0]


def measured_streams(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Streams, list[Measurement]]:
    """Measure the nonlinear ops of the cleartext model, and what goes into its norms, in one
    evaluation.

    Args:
        module: nn module.
        arrays: inputs by name, [N, ...].
        progress: called with (inputs done, all inputs).
    """
    norms, count = set(token_norms(module)), input_count(module, arrays)
    tokens = max((op.value.tensor.shape[1] for op in norms), default=1)
    public = [arrays[op.attributes["name"]] for op in module.inputs
              if op.attributes["side"] == "public"]  # fmt: skip
    masks = [mask.astype(bool) for mask in public if norms and mask.shape == (count, tokens)]
    kept = masks[0] if masks else np.ones((count, tokens), bool)
    squares = {op: np.empty((count, tokens), np.float32) for op in norms}
    channels: dict[Op, list[np.ndarray]] = {op: [] for op in norms}

    def look(op: Op, x: np.ndarray, start: int) -> None:
        if op in norms:
            some = slice(start, start + len(x))
            centred = x - x.mean(-1, keepdims=True) if op.name == "nn.layer_norm" else x
            real = np.abs(centred[kept[some]])
            squares[op][some] = np.square(centred).mean(axis=-1)
            channels[op].append(real.max(axis=0, initial=0.0))

    report = None if progress is None else lambda done: progress(done, count)
    measured = measure(module, arrays, progress=report, look=look)
    streams = Streams(
        kept,
        {op.value.name: found for op, found in squares.items()},
        {op.value.name: np.max(found, axis=0) for op, found in channels.items()},
    )
    return streams, measured


def rescaled(
    measured: Sequence[Measurement],
    module: Module,
    streams: Streams,
    factors: Mapping[str, np.ndarray],
) -> list[Measurement]:
    """The measurements of a module whose norms see their tokens times some factors.

    Norms undo the factors, so nothing but their own arguments changes.

    Args:
        measured: measurements without the factors.
        module: the module with them (see `scale_tokens`).
        streams: what goes into its norms without the factors.
        factors: result name of such a norm -> [n] factor of each token.
    """
    found = []
    for one, op in zip(measured, nonlinear_ops(module), strict=True):
        one, name = replace(one, op=op), one.op.value.name
        if name in factors:
            squares = streams.squares[name] * np.square(factors[name]).astype(np.float32)
            spread = squares + np.float32(op.attributes["epsilon"])
            one = replace(one, argument=reached(spread, 0, len(spread)))
        found.append(one)
    return found
