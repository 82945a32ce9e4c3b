"""What the arguments of nonlinear ops reach in the clear, input by input."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import ThreadpoolController

from atlasc.ir.errors import AtlasError
from atlasc.ir.functions import keep_mask
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.ir.types import TensorType

WORKING_SET = 128 << 20
"""Bytes that the largest tensor of a chunk of inputs may take; a chunk needs a few times that."""
LARGEST_CHUNK = 64
MOST_THREADS = 4
"""Chunks that are evaluated at once, which bounds memory on a machine of many processors."""
SAMPLES = 1 << 15
"""Values of an op's argument that are kept of all inputs together, to know its distribution."""
CHANNEL_SAMPLES = 1 << 10
"""Values of each channel of an activation's argument that are kept of all inputs together."""
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
HALVINGS = 5
"""Softmax iterations at most: an iterative softmax starts from the scores over 2 to this power."""


@dataclass
class ChannelMeasurement:
    """What the channels of an activation's argument reached, that is along its last axis.

    Attributes:
        low, high: [N, C] extremes of each input.
        samples: [M, C], about `CHANNEL_SAMPLES` of them, equally many of each input.
    """

    low: np.ndarray
    high: np.ndarray
    samples: np.ndarray


@dataclass
class Measurement:
    """What one op reached.

    Attributes:
        op: the nonlinear op.
        low, high: [N] extremes of each input: of the scores that no mask hides, of the variance (or
            mean square) plus epsilon, or of the activation's argument.
        samples: [M] values of the argument of which `low` and `high` are the extremes; of a
            softmax [M, 11] log sums of rows. About `SAMPLES`, equally many of each input.
        rows: softmax only: [N, 11] least and greatest of a row's log sums: S_i = log of the sum of
            exp(score / 2^i) for i = 0..5, then S_i - 2 S_(i+1), the log of the sum of squared
            probabilities of score / 2^(i+1), for i = 0..4 (the log squares).
        channels: activations only.
    """

    op: Op
    low: np.ndarray
    high: np.ndarray
    samples: np.ndarray
    rows: tuple[np.ndarray, np.ndarray] | None = None
    channels: ChannelMeasurement | None = None


def nonlinear_ops(module: Module) -> list[Op]:
    """The nonlinear ops that run on encrypted data, in order of execution."""
    return [op for op in module.ops if op.definition.nonlinear and op.value.tensor.side == "server"]


def input_count(module: Module, arrays: Mapping[str, np.ndarray]) -> int:
    """Number of inputs in the arrays; AtlasError when there are none or they disagree."""
    names = [op.attributes["name"] for op in module.inputs]
    counts = {len(arrays[name]) for name in names if name in arrays}
    if len(counts) != 1 or 0 in counts:
        raise AtlasError(
            "there are no inputs to calibrate on" if counts <= {0} else
            f"the arrays have different numbers of inputs: {sorted(counts)}",
            remedy="give an array for each input of the model, a row for each example",
        )  # fmt: skip
    return counts.pop()


def chunk_size(module: Module) -> int:
    """Inputs that are evaluated at once, so that memory stays small."""
    largest = max(
        (int(np.prod(op.result.tensor.shape[1:])) for op in module.ops
         if op.result is not None and isinstance(op.result.type, TensorType)),
        default=1,
    )  # fmt: skip
    return int(np.clip(WORKING_SET // (4 * largest), 1, LARGEST_CHUNK))


def measure(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Measurement]:
    """Evaluate the cleartext model in float32, in chunks, and record the nonlinear ops' arguments.

    Args:
        arrays: inputs by name, [N, ...] each.
        progress: called with the number of inputs that are done.
    """
    count = input_count(module, arrays)
    # Enough chunks for all threads, however many a machine has: rounding depends on their size.
    size = min(chunk_size(module), -(-count // MOST_THREADS))
    ops, share, share_of_channel = (
        nonlinear_ops(module), -(-SAMPLES // count), -(-CHANNEL_SAMPLES // count)
    )  # fmt: skip

    def chunk(start: int) -> dict[Op, list[np.ndarray]]:
        found: dict[Op, list[np.ndarray]] = {}

        def record(op: Op, site: Site, operands: list[np.ndarray]) -> None:
            if op in wanted:
                *extremes, values = _observed(op, site, operands)
                if op.definition.family == "activation":
                    x = operands[0].reshape(len(operands[0]), -1, operands[0].shape[-1])
                    extremes += [x.min(axis=1), x.max(axis=1), _sampled(x, start, share_of_channel)]
                found[op] = [*extremes, _sampled(values, start, share)]

        interpreter = Interpreter(module, np.float32, override=record)
        with np.errstate(all="ignore"):
            interpreter.run({name: array[start : start + size] for name, array in arrays.items()})
        return found

    wanted, starts = set(ops), range(0, count, size)
    threads = max(1, min(MOST_THREADS, os.cpu_count() or 1, len(starts)))
    limit = (os.cpu_count() or 1) // threads
    chunks = []
    # A thread for each chunk: functions, unlike matrix products, have no threads of their own.
    with (
        ThreadpoolController().limit(limits=limit, user_api="blas"),
        ThreadPoolExecutor(threads) as pool,
    ):
        for start, found in zip(starts, pool.map(chunk, starts), strict=True):
            chunks.append(found)
            if progress is not None:
                progress(min(start + size, count))
    return [_joined(op, [found[op] for found in chunks]) for op in ops]


def _joined(op: Op, pieces: list[list[np.ndarray]]) -> Measurement:
    low, high, *more, samples = (np.concatenate(column) for column in zip(*pieces, strict=True))
    if len(more) == 3:
        return Measurement(op, low, high, samples, channels=ChannelMeasurement(*more))
    return Measurement(op, low, high, samples, (more[0], more[1]) if more else None)


def _sampled(values: np.ndarray, first: int, share: int) -> np.ndarray:
    """`share` values of each input, of [B, M, ...]; which ones depends on the input's number alone.

    Multiples of the golden ratio, taken modulo 1, fall evenly and follow no stride of a tensor.
    """
    inputs, size = values.shape[:2]
    if share >= size:
        return values.reshape(inputs * size, *values.shape[2:])
    numbers = (first + np.arange(inputs))[:, None] * share + np.arange(share)
    places = (np.modf(numbers * GOLDEN_RATIO)[0] * size).astype(np.int64)
    return values[np.arange(inputs)[:, None], places].reshape(inputs * share, *values.shape[2:])


def _observed(op: Op, site: Site, operands: list[np.ndarray]) -> list[np.ndarray]:
    """Least and greatest of each input, and all values [B, M].

    Of a softmax the least and greatest log sums of rows are there too, and the values are those
    [B, M, 11].
    """
    x = operands[0]
    if op.name != "nn.softmax":
        if op.definition.family == "norm":
            centred = x - x.mean(axis=-1, keepdims=True) if op.name == "nn.layer_norm" else x
            x = np.square(centred).mean(axis=-1) + np.float32(op.attributes["epsilon"])
        flat = x.reshape(len(x), -1)
        return [*_extremes(flat), flat]
    keep = keep_mask(site, x, operands[1] if len(operands) > 1 else None)
    seen = x if keep is None else np.where(keep, x, -np.inf)
    least = x if keep is None else np.where(keep, x, np.inf)
    sums = row_log_sums(seen, seen.max(axis=-1, keepdims=True))
    values = np.concatenate([sums, sums[..., :-1] - 2 * sums[..., 1:]], axis=-1)
    values = values.reshape(len(values), -1, values.shape[-1])
    low, high = (scores.reshape(len(x), -1) for scores in (least, seen))
    return [_extremes(low)[0], _extremes(high)[1], *_extremes(values), values]


def _extremes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the second axis."""
    return values.min(axis=1).astype(np.float64), values.max(axis=1).astype(np.float64)


def row_log_sums(seen: np.ndarray, top: np.ndarray) -> np.ndarray:
    """[..., 6] S_i = log of a row's sum of exp(score / 2^i), for i = 0..5.

    Args:
        seen: [..., n] scores, -inf where a mask hides a key.
        top: [..., 1] their maxima.
    """
    powers = np.exp((seen - top) / 2**HALVINGS)
    logs = []
    for halvings in range(HALVINGS, -1, -1):
        logs.append(np.log(powers.sum(axis=-1)) + top[..., 0] / 2**halvings)
        powers = np.square(powers)
    return np.stack(logs[::-1], axis=-1)


def kept_tokens(
    module: Module, arrays: Mapping[str, np.ndarray], output: np.ndarray
) -> np.ndarray | None:
    """1 for the tokens of an output [B, n, ...] that a mask keeps; padding is not compared."""
    for op in module.inputs:
        mask = arrays.get(op.attributes["name"])
        if op.attributes["side"] != "public" or mask is None or output.ndim <= 2:
            continue
        if mask.shape == output.shape[:2]:
            return mask.reshape(*mask.shape, *[1] * (output.ndim - 2)).astype(output.dtype)
    return None
