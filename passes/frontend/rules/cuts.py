"""Cuts of features: slices, splits and chunks become rows of the weight before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from atlasc.ir.arrays.lazy import rows_of
from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, arguments, packet, shape
from atlasc.passes.frontend.importer import Importer, Missing, Refusal

SPLITS = ("split", "chunk", "split_with_sizes", "tensor_split", "unbind")
"""Ops whose result is a list of parts."""


def some(importer: Importer, x: Node, axis: int, chosen: Sequence[int]) -> Value:
    """Some indices along the features, or along an axis that was made of them."""
    extents = shape(x)
    axis, last = axis % len(extents), len(extents) - 1
    if axis == last > 0:
        return features(importer, x, chosen)
    if last < 3 or axis == 0:
        raise Refusal(
            f"{len(chosen)} of {extents[axis]} indices along axis {axis} of {list(extents)} cannot "
            "be taken: only features can be cut, also after a view that splits them"
        )
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    turned = importer.add("nn.transpose", x, permutation=order)
    return importer.add("nn.transpose", features(importer, turned, chosen), permutation=order)


def features(importer: Importer, x: Node | Value, chosen: Sequence[int]) -> Value:
    """Some features of the last axis: rows of the linear layer that makes them, or a linear layer
    of ones.
    """
    op, symbols = importer.value(x).op, importer.module.symbols
    if op.name == "nn.linear":
        rows: Any = list(chosen)
        if isinstance(chosen, range):  # a view of the array
            rows = slice(chosen.start, chosen.stop, chosen.step)
        parts = {
            name: importer.constant(f"{given.name}.part", rows_of(symbols[given.name], rows))
            for name, given in op.chosen("weight", "bias").items()
        }
        return importer.add("nn.linear", op.operands[0], **parts)
    weight = np.zeros((len(chosen), op.value.tensor.shape[-1]), np.float32)
    weight[range(len(chosen)), list(chosen)] = 1
    return importer.add("nn.linear", x, weight=importer.constant("features", weight))


def part(importer: Importer, parts: Node, index: int) -> Value:
    """One of the parts into which features are split, or the first result of an op with several."""
    if packet(parts) not in SPLITS and index == 0 and parts in importer.values:
        return importer.values[parts]
    if packet(parts) not in SPLITS:
        raise Missing  # a part of an op's result, and the op is reported already
    x, axis = parts.args[0], arguments(parts).get("dim", 0)
    if packet(parts) == "unbind":
        return importer.add("nn.select", x, axis=axis % len(shape(x)), index=index)
    widths = [one.shape[axis] for one in parts.meta["val"]]
    first = sum(widths[:index])
    return some(importer, x, axis, range(first, first + widths[index]))
