"""Ops that only the client computes, in the clear, before it encrypts: convolutions, and choices
of elements along an axis.
"""

from __future__ import annotations

import math

import numpy as np

from atlasc.ir.bounds import is_shape
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site, declare, require
from atlasc.ir.ops import rules
from atlasc.ir.types import TensorType

GREATEST_STEP = 1 << 20
"""Of strides, dilations and borders."""


def _require_client(site: Site) -> None:
    sides = {operand.side for operand in site.types}
    require(sides == {"client"}, "only the client computes it, before anything is encrypted")


def _convolution_type(site: Site) -> TensorType:
    """[batch, channels, *extents] to [batch, positions, out]."""
    _require_client(site)
    shape, kernel = site.shape(), site.constant_shape("weight")
    axes, given = len(kernel) - 2, site.attributes
    require(1 <= axes == len(shape) - 2, f"a kernel {kernel} does not fit an operand {shape}")
    stride, border, dilation = (given[name] for name in ("stride", "border", "dilation"))
    known = len(stride) == len(dilation) == axes and len(border) == 2 * axes
    require(known, f"stride and dilation need {axes} numbers, border {2 * axes}")
    steps = all(1 <= n <= GREATEST_STEP for n in (*stride, *dilation))
    require(steps and all(0 <= n <= GREATEST_STEP for n in border), "a step is out of bounds")
    groups = given["groups"]
    parts = groups >= 1 and kernel[0] % groups == 0 and shape[1] == kernel[1] * groups
    require(parts, f"{groups} groups of {kernel[1]} channels are not the {shape[1]} channels")
    rules.check_bias(site, kernel[0])
    padded = [n + before + after for n, before, after in zip(shape[2:], border[::2], border[1::2])]
    require(is_shape((*shape[:2], *padded)), "the padded operand has too many elements")
    reach = [step * (n - 1) + 1 for step, n in zip(dilation, kernel[2:])]
    fits = all(1 <= one <= extent for one, extent in zip(reach, padded))
    require(fits, f"a kernel {kernel[2:]} does not fit into {padded}")
    positions = [(n - one) // step + 1 for n, one, step in zip(padded, reach, stride)]
    windows = (shape[0], math.prod(positions), math.prod(kernel[1:]))
    require(is_shape(windows), "its windows have too many elements")
    return rules.tensor(site, (*windows[:2], kernel[0]))


def _convolution(site: Site, x: np.ndarray) -> np.ndarray:
    """As a product of the windows under the kernel, group by group."""
    kernel, given = site.like("weight", x), site.attributes
    axes = tuple(range(2, x.ndim))
    pairs = list(zip(given["border"][::2], given["border"][1::2]))
    padded = np.pad(x, [(0, 0), (0, 0), *pairs])
    reach = [step * (n - 1) + 1 for step, n in zip(given["dilation"], kernel.shape[2:])]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    steps = [slice(None, None, step) for step in (*given["stride"], *given["dilation"])]
    windows = windows[tuple([slice(None)] * 2 + steps)]
    inner = (1, *range(x.ndim, windows.ndim))  # channels, and places in a window
    groups = given["groups"]
    parts = zip(np.split(windows, groups, axis=1), np.split(kernel, groups))
    made = [np.tensordot(part, one, (inner, range(1, x.ndim))) for part, one in parts]
    rows = np.concatenate(made, axis=-1).reshape(len(x), -1, len(kernel))
    return rows + site.like("bias", x) if "bias" in given else rows


declare("nn.convolution", "Convolution on the client; the positions become tokens.", "x",
        _convolution_type,
        A("weight", "symbol", "[out, channels / groups, *kernel]"),
        A("bias", "symbol", "[out]", optional=True),
        A("stride", "ints", "step of the kernel along each axis"),
        A("border", "ints", "zeros before and after each axis, in pairs"),
        A("dilation", "ints", "step between the elements under the kernel, along each axis"),
        A("groups", "int", "channels are convolved in so many groups"),
        evaluate=_convolution)  # fmt: skip


def _gather_type(site: Site) -> TensorType:
    _require_client(site)
    shape, axis, chosen = site.shape(), site.attributes["axis"], site.attributes["elements"]
    require(1 <= axis < len(shape), f"axis = {axis} is not among the {len(shape)} axes after the "
            "batch")  # fmt: skip
    known = chosen and all(-1 <= one < shape[axis] for one in chosen)
    require(known, f"an element is not from -1 to {shape[axis] - 1}")
    result = (*shape[:axis], len(chosen), *shape[axis + 1 :])
    require(is_shape(result), "the result has too many elements")
    return rules.tensor(site, result)


def _gather(site: Site, x: np.ndarray) -> np.ndarray:
    axis, chosen = site.attributes["axis"], np.asarray(site.attributes["elements"])
    kept = (chosen >= 0).reshape(-1, *[1] * (x.ndim - axis - 1))
    return np.where(kept, np.take(x, chosen, axis), x.dtype.type(0))


declare("nn.gather", "Elements along an axis by number, on the client; −1 gives zeros.", "x",
        _gather_type, A("axis", "int", "from 1"), A("elements", "ints", "their numbers"),
        evaluate=_gather)  # fmt: skip
