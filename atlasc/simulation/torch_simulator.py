"""The polynomial simulator on torch: runs many settings at once, for a GPU.

It has the interface of `PolynomialSimulator` and agrees with it up to rounding. Settings that begin
alike share the evaluation up to their first difference. Settings that explode leave the batch.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.ops.masks import keep_mask, positions
from atlasc.ir.ops.tensors import mean_weights
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.polynomials.arithmetic import OPERATORS, Arithmetic
from atlasc.polynomials.description import Approximation
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.simulation.blockwise import algorithm_of
from atlasc.simulation.poly_values import EXPLODED
from atlasc.simulation.simulator import (
    Approximations,
    Simulation,
    Simulator,
    end_after,
    largest_tensor,
)

MEMORY = 4 << 30
"""Bytes for the tensors of a batch of settings."""
TENSORS = 24
"""How many float32 tensors of the largest size a setting may need at once: a Chebyshev sum keeps
its basis in float64."""
Constants = Callable[[str], Any]
"""Gives the constant in an op's attribute, as a tensor."""


@dataclass(frozen=True)
class TorchArithmetic(Arithmetic):
    """Evaluation on tensors of one dtype and device. Rows are summed in float64.

    Attributes:
        like: a tensor of the dtype and device.
        keep: softmax only: the keys that each query may see, broadcast to the scores; None for all.
    """

    like: Any
    keep: Any = None

    def step(self, name: str, *operands: Any, constant: Any = None) -> Any:
        """The result of an operation."""
        a = operands[0]
        match name:
            case "row_sum":
                return a.sum(-1, keepdim=True, dtype=_torch().float64).to(a.dtype)
            case "chebyshev":
                return _chebyshev(a, constant)
            case "filled" | "masked" if self.keep is None:
                return a
            case "filled":
                value, log_keys = constant
                width = a.shape[-1]
                visible = self.keep.expand(*self.keep.shape[:-1], width).sum(-1, keepdim=True)
                hidden = _torch().log(width / visible.clamp(min=1)).to(a.dtype)
                return (a + log_keys * hidden).masked_fill(~self.keep, value)
            case "masked":
                return a.masked_fill(~self.keep, 0)
            case "add_const" | "scale":
                vector = np.ndim(constant) > 0
                operands = *operands, self.like.new_tensor(constant) if vector else float(constant)
        return OPERATORS[name](*operands)


def _chebyshev(a: Any, total: ChebyshevSum) -> Any:
    """The Chebyshev sum, in float64 like the native kernel.

    The sum is regrouped as sum_i T_im q_i with deg q_i < m (see `native/chebyshev.hpp`). All q_i
    are one matrix product with the first m Chebyshev polynomials; m is about the root of the
    degree.
    """
    coefficients, (low, high) = total.coefficients, total.domain
    t = a.to(_torch().float64) * (2 / (high - low)) - (low + high) / (high - low)
    if coefficients.ndim > 1:
        return _clenshaw(t, t.new_tensor(coefficients.T)).to(a.dtype)
    size = 1 << (len(coefficients).bit_length() + 1) // 2
    basis = [t * 0 + 1, t]
    while len(basis) <= size:
        basis.append(2 * t * basis[-1] - basis[-2])
    table = t.new_tensor(grouped(tuple(coefficients.tolist()), size))
    groups = _torch().stack(basis[:size], dim=-1) @ table.T
    return _clenshaw(basis[size], groups.movedim(-1, 0)).to(a.dtype)


def _clenshaw(t: Any, terms: Any) -> Any:
    """sum_i terms[i] T_i(t)."""
    later, latest = t * 0, t * 0 + terms[-1]
    for index in range(len(terms) - 2, 0, -1):
        later, latest = latest, terms[index] + 2 * t * latest - later
    return terms[0] + t * latest - later if len(terms) > 1 else latest


def _torch() -> Any:
    import torch

    return torch


@lru_cache(maxsize=1024)
def grouped(coefficients: tuple[float, ...], size: int) -> NDArray[np.float64]:
    """Rows q_i with sum_k c_k T_k = sum_i T_(i size) q_i, each in the Chebyshev basis."""
    count = -(-len(coefficients) // size)
    c = np.zeros(count * size)
    c[: len(coefficients)] = coefficients
    for start in range((count - 1) * size, 0, -size):
        # 2 T_im T_j = T_(im + j) + T_(im - j)
        for j in range(1, size):
            c[start - j] -= c[start + j]
            c[start + j] *= 2
    return c.reshape(count, size)


def exact(op: Op, arrays: list[Any], constant: Constants, keep: Any = None) -> Any:
    """The exact function of an op on the server, equal to that of `ir.ops` on NumPy arrays.

    Args:
        op: the op.
        arrays: operands without the mask.
        constant: gives the constants.
        keep: softmax: the keys that each query may see, broadcast to the scores; None for all. Mean
            over the tokens that a mask keeps: the weight of each token, broadcast to the operand.
            Positions: what is added to the scores.
    """
    import torch

    given, x = op.attributes, arrays[0]
    match op.name.removeprefix("nn."):
        case "linear":
            bias = constant("bias") if "bias" in given else None
            return torch.nn.functional.linear(x, constant("weight"), bias)
        case "matmul":
            return x @ (arrays[1].transpose(-1, -2) if given["transpose_b"] else arrays[1])
        case "add":
            return x + arrays[1]
        case "mul":
            return x * arrays[1]
        case "add_constant":
            return x + constant("value")
        case "add_positions":
            return x + keep
        case "scale":
            return x * constant("factor")
        case "transpose":
            return x.permute(*given["permutation"])
        case "reshape":
            return x.reshape(len(x), *given["shape"][1:])
        case "select":
            return x.select(given["axis"], given["index"])
        case "mean":
            if keep is None:
                return x.mean(given["axis"]) * given.get("factor", 1.0)
            return (x * keep).sum(given["axis"])
        case "center":
            return x - x.mean(-1, keepdim=True)
        case "repeat":
            return x.repeat_interleave(given["repeats"], dim=given["axis"])
        case "rotary":
            first, second = x.chunk(2, dim=-1)
            turned = torch.cat([-second, first], dim=-1)
            return x * constant("cos") + turned * constant("sin")
        case "softmax":
            scores = x if keep is None else x.masked_fill(~keep, -torch.inf)
            return torch.softmax(scores, -1).nan_to_num(0.0)
        case "layer_norm" | "rms_norm" as name:
            centred = x - x.mean(-1, keepdim=True) if name == "layer_norm" else x
            square = (centred * centred).mean(-1, keepdim=True) + given["epsilon"]
            y = centred * torch.rsqrt(square) * constant("gamma")
            return y + constant("beta") if "beta" in given else y
        case name if name in ACTIVATIONS:
            return ACTIVATIONS[name].torch(x)
    raise NotImplementedError(op.name)


Uploaded = dict[Value, Any]
"""Inputs of the server, [N, ...]: encrypted values as tensors, masks as NumPy arrays."""


@dataclass
class Batch:
    """Values under several settings; settings that agree so far share a row.

    Attributes:
        values: value -> [rows · N, ...] tensor.
        rows: row of each setting; -1 once it has exploded.
        exploded: op at which each setting exploded.
    """

    values: dict[Value, Any]
    rows: list[int]
    exploded: list[str | None]


class TorchSimulator(Simulator):
    """Simulates one module under many settings on a torch device, in float32.

    Args:
        module: an nn module; approximations of its ops are ignored.
        device: "cpu" or "cuda".
        memory: bytes for a batch of settings.
    """

    def __init__(
        self, module: Module, device: str, memory: int = MEMORY, limit: float = EXPLODED
    ) -> None:
        super().__init__(module, np.float32, limit)
        self.device, self.memory = device, memory
        self._constants: dict[tuple[Op, str], Any] = {}

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Uploaded:
        """Compute the client's part once and bring it to the device."""
        return {
            value: array if value.tensor.side == "public" else self._tensor(array)
            for value, array in self.server_inputs(inputs).items()
        }

    def run(
        self, inputs: Uploaded, approximations: Approximations, *, layers: int | None = None
    ) -> Simulation:
        """See `Simulator`."""
        return next(self.run_all(inputs, [approximations], layers=layers))

    def run_all(
        self, inputs: Uploaded, batch: Iterable[Approximations], *, layers: int | None = None
    ) -> Iterator[Simulation]:
        """Evaluate the module under many settings, as many at once as memory allows."""
        import torch

        bytes_each = 4 * TENSORS * _count(inputs) * largest_tensor(self.segments)
        size = max(1, self.memory // bytes_each)
        remaining = iter(batch)
        while chosen := list(itertools.islice(remaining, size)):
            with torch.inference_mode():
                simulations = self._batch(inputs, chosen, end_after(self.segments, layers))
            yield from simulations

    def _batch(
        self, inputs: Uploaded, chosen: Sequence[Approximations], end: int
    ) -> list[Simulation]:
        public = {v: x for v, x in inputs.items() if v.tensor.side == "public"}
        encrypted = {v: x for v, x in inputs.items() if v not in public}
        batch = Batch(encrypted, [0] * len(chosen), [None] * len(chosen))
        outputs: dict[str, Any] = {}
        for segment in self.segments[:end]:
            for op in segment.ops:
                if all(row < 0 for row in batch.rows):
                    return [Simulation({}, where) for where in batch.exploded]
                if op.result is None:
                    x = batch.values[op.operands[0]]
                    outputs[op.attributes["name"]] = x * op.attributes.get("factor", 1.0)
                    continue
                if op.definition.nonlinear:
                    self._nonlinear(op, inputs, batch, chosen)
                else:
                    arrays = [batch.values[one] for one in op.operands if one not in public]
                    weights = self._of_mask(op, public, len(arrays[0]) // _count(inputs))
                    batch.values[op.result] = exact(op, arrays, self._constant(op), weights)
                for operand in op.operands:
                    if self._last_use[operand] is op:
                        batch.values.pop(operand, None)
        if end < len(self.segments):
            live = self.segments[end].live
            outputs = {v.name: batch.values[v] for v in live if v in batch.values}
        found = {
            name: x.unflatten(0, (-1, _count(inputs))).cpu().numpy() for name, x in outputs.items()
        }
        return [
            Simulation({} if where else {name: x[row] for name, x in found.items()}, where)
            for row, where in zip(batch.rows, batch.exploded, strict=True)
        ]

    def _nonlinear(
        self, op: Op, inputs: Uploaded, batch: Batch, chosen: Sequence[Approximations]
    ) -> None:
        """Evaluate a nonlinear op: one row for each setting prefix that differs from here on."""
        import torch

        name = op.value.name
        pairs: dict[tuple[int, Approximation | None], int] = {}
        for index, row in enumerate(batch.rows):
            if row >= 0:
                key = row, chosen[index].get(name)
                batch.rows[index] = pairs.setdefault(key, len(pairs))
        sources = [row for row, _ in pairs]
        if sources != list(range(len(next(iter(batch.values.values()))) // _count(inputs))):
            chosen_rows = torch.tensor(sources, device=self.device)
            for value, x in batch.values.items():
                rows = x.unflatten(0, (-1, _count(inputs)))
                batch.values[value] = rows.index_select(0, chosen_rows).flatten(0, 1)
        x = batch.values[op.operands[0]].unflatten(0, (-1, _count(inputs)))
        y = torch.empty_like(x)
        alike: dict[Approximation | None, list[int]] = {}
        for (_, approximation), row in pairs.items():
            alike.setdefault(approximation, []).append(row)
        for approximation, rows in alike.items():
            y[rows] = self._evaluate(op, inputs, x[rows], approximation)
        flat = y.flatten(1)
        # A comparison with NaN is false.
        bounded = ((flat <= self.limit) & (flat >= -self.limit)).all(1).tolist()
        for index, row in enumerate(batch.rows):
            if row >= 0 and not bounded[row]:
                batch.rows[index] = -1
                batch.exploded[index] = op.place
        batch.values[op.value] = y.flatten(0, 1)

    def _evaluate(
        self, op: Op, inputs: Uploaded, x: Any, approximation: Approximation | None
    ) -> Any:
        """The op on x [settings, N, ...]."""
        site, kept = op.site(self.symbols), None
        if op.name == "nn.softmax":
            mask = inputs[op.operands[1]] if len(op.operands) > 1 else None
            shape = np.broadcast_to(np.float32(0), tuple(x.shape[1:]))
            keep = keep_mask(site, shape, mask)
            kept = None if keep is None or keep.all() else self._tensor(keep)
        if approximation is None:
            return exact(op, [x], self._constant(op), kept)
        algorithm = algorithm_of(op, site, approximation)
        return TorchArithmetic(x, kept).run(algorithm, x)

    def _of_mask(self, op: Op, public: Uploaded, settings: int) -> Any:
        """What an op makes of a mask, for ``settings`` settings: weights of the tokens, in a mean
        over those that the mask keeps, or what is added to scores.
        """
        masks = [public[operand] for operand in op.operands if operand in public]
        if not masks:
            return None
        site = op.site(self.symbols)
        if op.name == "nn.add_positions":
            slopes = site.constant("slopes")[:, None, None]
            made = slopes * positions(masks[0])[:, None, None, :]
        else:
            made = mean_weights(site, masks[0])
        return self._tensor(np.concatenate([np.asarray(made, np.float32)] * settings))

    def _constant(self, op: Op) -> Constants:
        def constant(name: str) -> Any:
            key = op, name
            if key not in self._constants:
                array = op.site(self.symbols).constant(name, np.float32)
                self._constants[key] = self._tensor(array)
            return self._constants[key]

        return constant

    def _tensor(self, array: np.ndarray) -> Any:
        import torch

        with warnings.catch_warnings():
            # Weights of a mapped file must not be written. Nothing writes to them here.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


def _count(inputs: Uploaded) -> int:
    return len(next(iter(inputs.values())))
