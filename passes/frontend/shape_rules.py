"""Rules of the aten ops that move or pick elements along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.graph import Node, argument, axis_of, shape
from atlasc.passes.frontend.report import Refusal

if TYPE_CHECKING:
    from atlasc.passes.frontend.import_export import Importer

Rule = Callable[["Importer", Node], Value]


def reshape(importer: Importer, node: Node) -> Value:
    """Any change of extents that keeps the elements in order."""
    return importer.add(node, "nn.reshape", [node.args[0]], {"shape": list(shape(node))})


def transpose(importer: Importer, node: Node) -> Value:
    """Swap of two axes."""
    order = list(range(len(shape(node))))
    first, second = (axis_of(node, axis) for axis in node.args[1:3])
    order[first], order[second] = order[second], order[first]
    return importer.add(node, "nn.transpose", [node.args[0]], {"permutation": order})


def permute(importer: Importer, node: Node) -> Value:
    """Permutation of all axes."""
    order = [axis_of(node, axis) for axis in node.args[1]]
    return importer.add(node, "nn.transpose", [node.args[0]], {"permutation": order})


def select(importer: Importer, node: Node) -> Value:
    """One index along an axis."""
    x, axis, index = node.args
    extents = shape(x)
    attributes = {"axis": axis % len(extents), "index": index % extents[axis % len(extents)]}
    return importer.add(node, "nn.select", [x], attributes)


def slice_one(importer: Importer, node: Node) -> Value:
    """A slice of a single index."""
    x, axis, start = node.args[0], axis_of(node, argument(node, 1, "dim", 0)), node.args[2] or 0
    extent = shape(x)[axis]
    if shape(node)[axis] != 1:
        raise Refusal(f"a slice of {shape(node)[axis]} of {extent} elements has no op")
    index = start + extent if start < 0 else start
    row = importer.add(node, "nn.select", [x], {"axis": axis, "index": index})
    return importer.add(node, "nn.reshape", [row], {"shape": list(shape(node))})


def index_row(importer: Importer, node: Node) -> Value:
    """x[arange(batch), i] with one constant i: the same row of every sentence."""
    x, indices = node.args
    if len(indices) != 2 or any(i is None or importer.kinds[i] != "constant" for i in indices):
        raise Refusal("which element is read may not depend on an input")
    batch, row = (importer.array(index).reshape(-1) for index in indices)
    extents = shape(x)
    if not np.array_equal(batch, np.arange(extents[0])) or len(set(row.tolist())) != 1:
        raise Refusal("only one row, the same for every sentence, is taken")
    index = int(row[0]) % extents[1]
    return importer.add(node, "nn.select", [x], {"axis": 1, "index": index})


def concatenate(importer: Importer, node: Node) -> Value:
    """No op: a class token before patches and rotated halves are patterns."""
    raise Refusal("only one class token before the patches, or a rotary embedding, is understood")


def mean(importer: Importer, node: Node) -> Value:
    """Mean along one axis."""
    x, axes = node.args[0], argument(node, 1, "dim")
    if axes is None or len(axes) != 1:
        raise Refusal("a mean is taken along one axis")
    result = importer.add(node, "nn.mean", [x], {"axis": axes[0] % len(shape(x))})
    if len(shape(node)) == len(shape(x)):
        result = importer.add(node, "nn.reshape", [result], {"shape": list(shape(node))})
    return result


SHAPE_RULES: dict[str, Rule] = {
    "aten.view.default": reshape,
    "aten.reshape.default": reshape,
    "aten._unsafe_view.default": reshape,
    "aten.flatten.using_ints": reshape,
    "aten.unflatten.int": reshape,
    "aten.unsqueeze.default": reshape,
    "aten.squeeze.dim": reshape,
    "aten.squeeze.default": reshape,
    "aten.transpose.int": transpose,
    "aten.t.default": lambda importer, node: importer.add(
        node, "nn.transpose", [node.args[0]], {"permutation": [1, 0]}
    ),
    "aten.permute.default": permute,
    "aten.select.int": select,
    "aten.slice.Tensor": slice_one,
    "aten.index.Tensor": index_row,
    "aten.cat.default": concatenate,
    "aten.mean.dim": mean,
}
