"""Arithmetic and cleartext ops on torch tensors: what the simulator needs to run on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.module import Op
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.approximation.arithmetic import OPERATORS, Arithmetic
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum

Constants = Callable[[str], Any]
"""The constant in an op's attribute, as a tensor."""


@dataclass(frozen=True)
class TorchArithmetic(Arithmetic):
    """Evaluation on tensors of one dtype and device. Rows are summed in float64.

    Attributes:
        like: a tensor of that dtype and device.
        keep: of a softmax, which keys a query may see, broadcast to the scores; None for all.
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
            case "filled" | "masked":
                value = constant if name == "filled" else 0
                return a if self.keep is None else a.masked_fill(~self.keep, value)
            case "add_const" | "scale":
                vector = np.ndim(constant) > 0
                operands = *operands, self.like.new_tensor(constant) if vector else float(constant)
        return OPERATORS[name](*operands)


def _chebyshev(a: Any, total: ChebyshevSum) -> Any:
    """The Chebyshev sum, in float64 as the native kernel does it.

    Regrouped as sum_i T_im q_i with deg q_i < m (see `native/chebyshev.hpp`): all q_i are one
    matrix product of the first m Chebyshev polynomials, and m is about the root of the degree.
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
    """The cleartext meaning of an op on the server, as `ir.ops` has it on NumPy arrays.

    Args:
        arrays: operands; a mask is not among them.
        constant: gives the constants.
        keep: of a softmax, which keys a query may see, broadcast to the scores; None for all.
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
        case "scale":
            return x * constant("factor")
        case "transpose":
            return x.permute(*given["permutation"])
        case "reshape":
            return x.reshape(len(x), *given["shape"][1:])
        case "select":
            return x.select(given["axis"], given["index"])
        case "mean":
            return x.mean(given["axis"]) * given.get("factor", 1.0)
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
