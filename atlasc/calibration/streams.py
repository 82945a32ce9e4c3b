"""Measures what goes into norms, token by token and channel by channel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.calibration.measure import chunk_size, in_chunks, input_count, nonlinear_ops
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
    interpreter = Interpreter(module, np.float32)

    def chunk(start: int, end: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        found: dict[str, tuple[np.ndarray, np.ndarray]] = {}

        def observe(op: Op, values: np.ndarray) -> None:
            for norm in norms.get(op.result, ()) if op.result is not None else ():
                layer_norm = norm.name == "nn.layer_norm"
                centred = values - values.mean(-1, keepdims=True) if layer_norm else values
                real = np.abs(centred[kept[start:end]])
                squares = np.square(centred).mean(axis=-1)
                found[norm.value.name] = squares, real.max(axis=0, initial=0.0)

        with np.errstate(all="ignore"):
            interpreter.run(
                {name: array[start:end] for name, array in arrays.items()}, observe=observe
            )
        return found

    report = None if progress is None else lambda done: progress(done, count)
    parts = in_chunks(count, chunk_size(module), chunk, report)
    return Streams(
        kept,
        {name: np.concatenate([part[name][0] for part in parts]) for name in parts[0]},
        {name: np.max([part[name][1] for part in parts], axis=0) for name in parts[0]},
    )
