"""Measures the arguments of nonlinear ops in the clear, input by input."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from threadpoolctl import ThreadpoolController

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.ir.ops.masks import keep_mask, log_hidden
from atlasc.ir.types import TensorType

Result = TypeVar("Result")
WORKING_SET = 128 << 20
"""Greatest bytes of the largest tensor in a chunk of inputs; a chunk needs a few times as much."""
LARGEST_CHUNK = 16
MOST_THREADS = 4
"""Greatest number of chunks evaluated at once, which bounds memory on machines with many cores."""
SAMPLES = 1 << 15
"""Number of values of an op's argument that are kept, of all inputs, to know the distribution."""
CHANNEL_SAMPLES = 1 << 10
"""Number of values that are kept of each channel of an activation's argument, of all inputs."""
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
HALVINGS = 5
"""Greatest number of softmax iterations: an iterative softmax starts with scores / 2^this."""
TEMPERATURES = 2.0 ** np.arange(HALVINGS + 1)
SHARES = np.linspace(0.0, 1.0, 21)
"""Shares of T log(keys / visible keys) that may be added to the scores of a row."""


class Reached(NamedTuple):
    """The values that one quantity, or each of P quantities, reached on N inputs.

    Attributes:
        low, high: [N] or [N, P] extremes of each input.
        samples: [M] or [M, P] values, the same number from each input.
    """

    low: np.ndarray
    high: np.ndarray
    samples: np.ndarray


@dataclass
class Measurement:
    """The values that one nonlinear op reached on N inputs.

    Attributes:
        argument: for a softmax, the unmasked scores, without samples; for a norm, the variance (or
            mean square) plus epsilon; otherwise the op's argument. About `SAMPLES` samples.
        scores: softmax only: [N, 6, S] extremes of scores s + share T log(K / n) (see `Rows`) for
            T = 1, 2, .. 32 and for all `SHARES`, without samples.
        sums: softmax only: [N, 6, S] extremes of the log sums of exp(score / T); about `SAMPLES`
            samples, which are `Rows.logs`.
        channels: activations only: extremes of each channel (the argument's last axis), with about
            `CHANNEL_SAMPLES` samples.
    """

    op: Op
    argument: Reached
    scores: Reached | None = None
    sums: Reached | None = None
    channels: Reached | None = None


def blas_threads(count: int) -> AbstractContextManager[Any]:
    """Let BLAS use ``count`` threads in the whole process; with one, all sums have the same order.

    Fits solve small systems, in which threads of BLAS mostly wait for each other: on shared
    processors a fit with two threads took ten times as long as with one. The same is true of
    OpenMP, whose threads compute torch's functions of the calling thread, and of MKL in torch: it
    follows OpenMP until somebody calls ``torch.set_num_threads``, after which it never does again.
    """
    return cast(AbstractContextManager[Any], ThreadpoolController().limit(limits=count))


def nonlinear_ops(module: Module) -> list[Op]:
    """The nonlinear ops that run on encrypted data, in order of execution."""
    return [op for op in module.ops if op.definition.nonlinear and op.value.tensor.side == "server"]


def input_count(module: Module, arrays: Mapping[str, np.ndarray]) -> int:
    """Number of inputs in the arrays; AtlasError if there are none or the arrays disagree."""
    names = [op.attributes["name"] for op in module.inputs]
    counts = {len(arrays[name]) for name in names if name in arrays}
    if len(counts) != 1 or 0 in counts:
        raise AtlasError(
            "there are no inputs to calibrate on" if counts <= {0} else
            f"the arrays have different numbers of inputs: {sorted(counts)}",
            remedy="give one array for each input of the model, with one row for each example",
        )  # fmt: skip
    return counts.pop()


def chunk_size(module: Module) -> int:
    """Number of inputs that are evaluated at once, so that memory stays small."""
    largest = max(
        (int(np.prod(op.result.tensor.shape[1:])) for op in module.ops
         if op.result is not None and isinstance(op.result.type, TensorType)),
        default=1,
    )  # fmt: skip
    return int(np.clip(WORKING_SET // (4 * largest), 1, LARGEST_CHUNK))


def in_chunks(
    count: int,
    size: int,
    chunk: Callable[[int, int], Result],
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """The results of ``chunk(start, end)`` for all inputs, in their order, on a few threads.

    Matrix products have one thread, so that last bits never vary; with more, the small products of
    attention wait for each other most of the time.

    Args:
        count: number of inputs.
        size: number of inputs of a chunk.
        chunk: evaluates the inputs from ``start`` to before ``end``.
        progress: called with the number of inputs that are done.
    """
    starts, found = range(0, count, size), []
    threads = max(1, min(MOST_THREADS, os.cpu_count() or 1, len(starts)))
    ends = [min(start + size, count) for start in starts]
    with blas_threads(1), ThreadPoolExecutor(threads) as pool:
        for end, result in zip(ends, pool.map(chunk, starts, ends), strict=True):
            found.append(result)
            if progress is not None:
                progress(end)
    return found


def measure(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    *,
    progress: Callable[[int], None] | None = None,
    look: Callable[[Op, np.ndarray, int], None] | None = None,
) -> list[Measurement]:
    """Evaluate the cleartext model in float32, in chunks, and record the nonlinear ops' arguments.

    Args:
        module: nn module.
        arrays: inputs by name, [N, ...] each.
        progress: called with the number of inputs that are done.
        look: called with each nonlinear op, its argument on one chunk of the inputs, and the
            number of the chunk's first input; by several threads.
    """
    count = input_count(module, arrays)
    # Rounding depends on the size of chunks, so their number must not depend on the machine.
    size = min(chunk_size(module), -(-count // MOST_THREADS))
    ops = nonlinear_ops(module)

    def chunk(start: int, end: int) -> dict[Op, dict[str, Reached]]:
        found: dict[Op, dict[str, Reached]] = {}

        def record(op: Op, site: Site, operands: list[np.ndarray]) -> None:
            if op in wanted:
                found[op] = reached_by(op, site, operands, start, count)
                if look is not None:
                    look(op, operands[0], start)

        interpreter = Interpreter(module, np.float32, override=record)
        with np.errstate(all="ignore"):
            interpreter.run({name: array[start:end] for name, array in arrays.items()})
        return found

    wanted = set(ops)
    chunks = in_chunks(count, size, chunk, progress)
    return [
        Measurement(op, **{
            name: Reached(*map(np.concatenate, zip(*(found[op][name] for found in chunks))))
            for name in chunks[0][op]
        })
        for op in ops
    ]  # fmt: skip


def reached_by(
    op: Op, site: Site, operands: list[np.ndarray], first: int, count: int
) -> dict[str, Reached]:
    """Attribute of `Measurement` -> the values that the inputs of one chunk reached.

    The chunk begins with input number `first` of `count`.
    """
    x, inputs = operands[0], len(operands[0])
    family = op.definition.family
    if family == "softmax":
        least, top, logs = row_sums(x, keep_mask(site, *operands))
        # All heads see the same keys. raised: [B, Q, 1, S]; warm: [B, Q, 6, S]
        raised = logs[:, 0, :, :1, None].astype(np.float64) * SHARES
        warm, sums = raised * TEMPERATURES[:, None], logs[..., 1 : len(TEMPERATURES) + 1]
        scores, summed = (
            ((low.min(axis=1)[..., None] + more).min(axis=1),
             (high.max(axis=1)[..., None] + more).max(axis=1))
            for low, high, more in ((least[..., None], top[..., None], warm), (sums, sums, raised))
        )  # fmt: skip
        rows = logs.reshape(inputs, -1, logs.shape[-1]).astype(np.float64)
        samples = _sampled(rows, first, -(-SAMPLES // count))
        low, high = (part.reshape(inputs, -1).astype(np.float64) for part in (least, top))
        return {
            "argument": Reached(low.min(axis=1), high.max(axis=1), np.empty(0)),
            "scores": Reached(*scores, np.empty(0)),
            "sums": Reached(*summed, samples),
        }
    if family == "activation":
        by_channel = x.reshape(inputs, -1, x.shape[-1])
        return {
            "argument": reached(x.reshape(inputs, -1), first, count),
            "channels": reached(by_channel, first, count, channels=True),
        }
    centred = x - x.mean(axis=-1, keepdims=True) if op.name == "nn.layer_norm" else x
    spread = np.square(centred).mean(axis=-1) + np.float32(op.attributes["epsilon"])
    return {"argument": reached(spread.reshape(inputs, -1), first, count)}


def reached(values: np.ndarray, first: int, count: int, *, channels: bool = False) -> Reached:
    """Extremes and samples of values [B, M], or with `channels` [B, M, P], of some inputs: those
    from number `first` on, of `count`.
    """
    dtype, samples = (values.dtype, CHANNEL_SAMPLES) if channels else (np.float64, SAMPLES)
    low, high = values.min(axis=1).astype(dtype), values.max(axis=1).astype(dtype)
    return Reached(low, high, _sampled(values, first, -(-samples // count)))


def _sampled(values: np.ndarray, first: int, share: int) -> np.ndarray:
    """`share` values of each input, from [B, M, ...]; the choice depends only on the input's
    number.

    Multiples of the golden ratio, taken modulo 1, fall evenly and follow no stride of a tensor.
    """
    inputs, size = values.shape[:2]
    if share >= size:
        return values.reshape(inputs * size, *values.shape[2:])
    numbers = (first + np.arange(inputs))[:, None] * share + np.arange(share)
    places = (np.modf(numbers * GOLDEN_RATIO)[0] * size).astype(np.int64)
    return values[np.arange(inputs)[:, None], places].reshape(inputs * share, *values.shape[2:])


def require_finite(measured: Measurement, those: str = "inputs of calibration") -> None:
    """Raise AtlasError if an input reaches a value that is not finite.

    Args:
        measured: the values that an op reached.
        those: name of the set of inputs.
    """
    op, sums = measured.op, measured.sums
    for part in (measured.argument, sums):
        ends = [] if part is None else [part.low, part.high]
        wrong = [~np.isfinite(end).reshape(len(end), -1).all(axis=1) for end in ends]
        if not np.any(wrong):
            continue
        inputs = np.flatnonzero(np.any(wrong, axis=0)).tolist()
        which = f"in number {inputs[0]} of the {those}"
        which += f" and in {len(inputs) - 1} others" if inputs[1:] else ""
        if part is sums:
            raise AtlasError(
                f"a query of {op.name} sees no key: all keys are masked",
                where=op.location,
                why=f"{which}; such a row has no softmax",
                remedy="pad texts on the right, and keep at least one token of each",
            )
        raise AtlasError(
            f"{op.name} gets values that are not finite in the cleartext model",
            where=op.location,
            why=which,
            remedy="check the weights and the inputs",
        )


class Rows(NamedTuple):
    """Sums of each row of scores s; B inputs, H heads, Q queries, K keys, of which n are visible.

    Attributes:
        least, top: [B, H, Q] least and greatest score.
        logs: [B, H, Q, 12]: log(K / n); the log of the sum of exp(s / T) for T = 1, 2, .. 32; the
            log of the sum of squared probabilities of s / 2T for T = 1, 2, .. 16.
    """

    least: np.ndarray
    top: np.ndarray
    logs: np.ndarray


def row_sums(scores: np.ndarray, keep: np.ndarray | None) -> Rows:
    """Sums of each row of scores [B, H, Q, K].

    Args:
        scores: the scores, [B, H, Q, K].
        keep: True for scores that no mask hides; None if none is hidden.
    """
    seen = scores if keep is None else np.where(keep, scores, -np.inf)
    least = (scores if keep is None else np.where(keep, scores, np.inf)).min(axis=-1)
    top = seen.max(axis=-1)
    powers = np.exp((seen - top[..., None]) / 2**HALVINGS)
    logs = []
    for halvings in range(HALVINGS, -1, -1):
        logs.append(np.log(powers.sum(axis=-1)) + top / 2**halvings)
        powers = np.square(powers)
    sums = np.stack(logs[::-1], axis=-1)
    squares = sums[..., :-1] - 2 * sums[..., 1:]
    parts = np.broadcast_to(log_hidden(scores, keep), (*top.shape, 1)), sums, squares
    return Rows(least, top, np.concatenate(parts, axis=-1))
