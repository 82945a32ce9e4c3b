"""Measures what goes into norms, token by token and channel by channel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.calibration.measure import chunk_size, input_count, nonlinear_ops
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op, Value, family_of


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
    """Evaluate the cleartext model in float32, in chunks, and record what goes into its norms.

    Args:
        module: nn module.
        arrays: inputs by name, [N, ...].
        progress: called with (inputs done, all inputs).
    """
    norms, count = defaultdict[Value, list[Op]](list), input_count(module, arrays)
    for op in token_norms(module):
        norms[op.operands[0]].append(op)
    if not norms:
        return Streams(np.ones((count, 1), bool), {}, {})
    tokens = next(iter(norms)).tensor.shape[1]
    public = [arrays[op.attributes["name"]] for op in module.inputs
              if op.attributes["side"] == "public"]  # fmt: skip
    masks = [mask.astype(bool) for mask in public if mask.shape == (count, tokens)]
    kept = masks[0] if masks else np.ones((count, tokens), bool)
    squares: dict[str, list[np.ndarray]] = defaultdict(list)
    channels: dict[str, np.ndarray] = {}
    start, size = 0, chunk_size(module)

    def observe(op: Op, values: np.ndarray) -> None:
        for norm in norms.get(op.result, ()) if op.result is not None else ():
            name, layer_norm = norm.value.name, norm.name == "nn.layer_norm"
            centred = values - values.mean(-1, keepdims=True) if layer_norm else values
            squares[name].append(np.square(centred).mean(axis=-1))
            real = np.abs(centred[kept[start : start + size]])
            most = real.max(axis=0, initial=0.0)
            channels[name] = np.maximum(channels.get(name, 0.0), most)

    interpreter = Interpreter(module, np.float32)
    for start in range(0, count, size):
        with np.errstate(all="ignore"):
            interpreter.run(
                {name: array[start : start + size] for name, array in arrays.items()},
                observe=observe,
            )
        if progress is not None:
            progress(min(start + size, count), count)
    return Streams(kept, {name: np.concatenate(parts) for name, parts in squares.items()}, channels)
