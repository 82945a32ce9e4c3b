"""What the arguments of nonlinear ops reach in the clear, input by input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.functions import keep_mask
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.ir.types import TensorType

WORKING_SET = 128 << 20
"""Bytes that the largest tensor of a chunk of inputs may take; a chunk needs a few times that."""
LARGEST_CHUNK = 64
HALVINGS = 5
"""Softmax iterations at most: an iterative softmax starts from the scores over 2 to this power."""


@dataclass
class Measurement:
    """What one op reached.

    Attributes:
        op: the nonlinear op.
        low, high: [N] extremes of each input: of the scores that no mask hides, of the variance (or
            mean square) plus epsilon, or of the activation's argument.
        log_sums: softmax only: [N, 6] least and greatest S_i = log of a row's sum of
            exp(score / 2^i), for i = 0..5.
        log_squares: softmax only: [N, 5] least and greatest S_i - 2 S_(i+1), the log of a row's sum
            of squared probabilities of score / 2^(i+1), for i = 0..4.
    """

    op: Op
    low: np.ndarray
    high: np.ndarray
    log_sums: tuple[np.ndarray, np.ndarray] | None = None
    log_squares: tuple[np.ndarray, np.ndarray] | None = None


def nonlinear_ops(module: Module) -> list[Op]:
    """The nonlinear ops that run on encrypted data, in order of execution."""
    return [
        op
        for op in module.ops
        if op.definition.nonlinear and getattr(op.value.type, "side", "") == "server"
    ]


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
        (int(np.prod(op.result.type.shape[1:])) for op in module.ops
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
    count, size = input_count(module, arrays), chunk_size(module)
    parts: dict[Op, list[list[np.ndarray]]] = {op: [] for op in nonlinear_ops(module)}

    def record(op: Op, site: Site, operands: list[np.ndarray]) -> None:
        if op in parts:
            parts[op].append(_extremes(op, site, operands))

    interpreter = Interpreter(module, np.float32, override=record)
    for start in range(0, count, size):
        with np.errstate(all="ignore"):
            interpreter.run({name: array[start : start + size] for name, array in arrays.items()})
        if progress is not None:
            progress(min(start + size, count))
    return [_joined(op, pieces) for op, pieces in parts.items()]


def _joined(op: Op, pieces: list[list[np.ndarray]]) -> Measurement:
    low, high, *sums = (np.concatenate(column) for column in zip(*pieces, strict=True))
    if not sums:
        return Measurement(op, low, high)
    return Measurement(op, low, high, (sums[0], sums[1]), (sums[2], sums[3]))


def _extremes(op: Op, site: Site, operands: list[np.ndarray]) -> list[np.ndarray]:
    x = operands[0]
    if op.name == "nn.softmax":
        return _score_extremes(site, x, operands[1] if len(operands) > 1 else None)
    if op.name in ("nn.layer_norm", "nn.rms_norm"):
        centred = x - x.mean(axis=-1, keepdims=True) if op.name == "nn.layer_norm" else x
        x = np.square(centred).mean(axis=-1) + np.float32(op.attributes["epsilon"])
    rows = x.reshape(len(x), -1)
    return [rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)]


def _score_extremes(site: Site, scores: np.ndarray, mask: np.ndarray | None) -> list[np.ndarray]:
    keep = keep_mask(site, scores, mask)
    seen = scores if keep is None else np.where(keep, scores, -np.inf)
    least = scores if keep is None else np.where(keep, scores, np.inf)
    axes = tuple(range(1, scores.ndim))
    top = seen.max(axis=-1, keepdims=True)
    powers = np.exp((seen - top) / 2**HALVINGS)
    logs = []
    for halvings in range(HALVINGS, -1, -1):
        logs.append(np.log(powers.sum(axis=-1)) + top[..., 0] / 2**halvings)
        powers = np.square(powers)
    sums = np.stack(logs[::-1], axis=-1)
    squares = sums[..., :-1] - 2 * sums[..., 1:]
    rows = tuple(range(1, sums.ndim - 1))
    found = [least.min(axis=axes), seen.max(axis=axes)]
    found += [
        sums.min(axis=rows),
        sums.max(axis=rows),
        squares.min(axis=rows),
        squares.max(axis=rows),
    ]
    return [extreme.astype(np.float64) for extreme in found]
