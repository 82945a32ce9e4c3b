"""Rules that move or pick elements along axes. Slices, splits and flips of features become rows of
the weight before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.framework.rewritings import EQUAL_SCORES
from atlasc.passes.frontend.chosen import layer_of
from atlasc.passes.frontend.exported.graph import Node, arguments, is_node, packet, shape
from atlasc.passes.frontend.importer import Importer, Missing, Refusal
from atlasc.passes.frontend.rules import tokens

SPLITS = ("split", "chunk", "split_with_sizes", "tensor_split", "unbind")
"""Ops whose result is a list of parts."""
ALIKE = {"nn.scale", "nn.add_constant", *(f"nn.{name}" for name in ACTIVATIONS)}
"""Ops that do the same to each feature, if their constant is a number."""
READ_BY_MASK = (
    "which token is read depends on the mask; of a hidden state [batch, tokens, features] only the "
    "last token that the mask keeps is read so: h[arange(batch), (mask * arange(tokens)).argmax(1)]"
)
READ_BY_INPUT = (
    "which element is read depends on an input; a token that the private ids choose can be read "
    "from the answer for all tokens: --outputs last_hidden_state, if the model has it"
)

ONE_FEATURE = (
    "of a private value only a last axis of one element is copied, [batch, tokens, 1] to features; "
    f"{EQUAL_SCORES}"
)


def some(importer: Importer, x: Node | Value, axis: int, chosen: Sequence[int]) -> Value:
    """Some indices along the features, or along an axis that was made of them."""
    extents = importer.value(x).tensor.shape
    axis, last = axis % len(extents), len(extents) - 1
    if axis == last > 0:
        return features(importer, x, chosen)
    if axis == 0:
        raise Refusal("the first axis counts inputs, and each input is answered alone")
    if last == 2 and len(chosen) == 1:
        token = importer.add("nn.select", x, axis=1, index=chosen[0])
        return importer.add("nn.reshape", token, shape=[extents[0], 1, extents[2]])
    if last < 3:
        if sorted(chosen) == list(range(extents[axis])):
            raise Refusal(tokens.MOVED)
        raise Refusal(
            f"{len(chosen)} of {extents[axis]} indices along axis {axis} of {list(extents)} cannot "
            "be taken: only features can be cut, also after a view that splits them"
        )
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    turned = importer.add("nn.transpose", x, permutation=order)
    return importer.add("nn.transpose", features(importer, turned, chosen), permutation=order)


def along(importer: Importer, x: Node | Value, axis: int, chosen: Sequence[int]) -> Value:
    """Some indices along an axis, in any order: of features, or on the client of tokens too."""
    rank = len(importer.value(x).tensor.shape)
    if 0 < axis % rank < rank - 1 and importer.stays(x):
        return tokens.cut(importer, x, axis % rank, chosen)
    return some(importer, x, axis, chosen)


def _require_constant(importer: Importer, *indices: Node) -> None:
    for index in indices:
        if (kind := importer.kinds[index]) != "constant":
            raise Refusal(READ_BY_MASK if kind == "mask" else READ_BY_INPUT)


def picked(importer: Importer, x: Node, axis: int, index: Node) -> Value:
    """The elements at constant positions of an axis, or where a constant is true."""
    _require_constant(importer, index)
    axis, places = axis % len(shape(x)), importer.array(index)
    if places.dtype == bool:
        places = np.flatnonzero(places)
    if places.ndim != 1:
        return _of_features(importer, x, {axis: places})
    return along(importer, x, axis, (places % shape(x)[axis]).tolist())


def _of_features(importer: Importer, x: Node, places: Mapping[int, np.ndarray]) -> Value:
    """The elements at constant positions of neighbouring axes of features: the numbers of features
    show which these are.
    """
    extents, axes = shape(x), list(places)
    if axes[0] < 2 or axes != list(range(axes[0], axes[-1] + 1)):
        raise Refusal("only lists along neighbouring axes of features, or one row, can be read")
    numbers = np.arange(math.prod(extents[2:])).reshape(extents[2:])
    chosen = numbers[tuple(places.get(axis, slice(None)) for axis in range(2, len(extents)))]
    flat = importer.add("nn.reshape", x, shape=[*extents[:2], numbers.size])
    return reshaped(importer, features(importer, flat, chosen.ravel().tolist()))


def gathered(importer: Importer, x: Node, axis: int, index: Node, *options: Any) -> Value:
    """``gather``, if it reads the same constant positions everywhere."""
    _require_constant(importer, index)
    axis, places = axis % len(shape(x)), importer.array(index)
    first = places[tuple(slice(None) if one == axis else slice(1) for one in range(places.ndim))]
    others = list(shape(x)), list(shape(importer.node))
    for extents in others:
        extents[axis] = 0
    if others[0] != others[1] or (places != first).any():
        raise Refusal("the positions differ from place to place: only x[..., places] can be read")
    return along(importer, x, axis, first.ravel().tolist())


def flipped(importer: Importer, x: Node, axes: Sequence[int]) -> Value:
    """The elements of some axes in reverse."""
    value = importer.value(x)
    for axis in axes:
        value = along(importer, value, axis, range(value.tensor.shape[axis] - 1, -1, -1))
    return value


def features(importer: Importer, x: Node | Value, chosen: Sequence[int]) -> Value:
    """Some features of the last axis: rows of the linear layer that makes them, or a linear layer
    of ones.
    """
    operand, arrays = layer_of(
        importer.value(x), chosen, importer.module.symbols, importer.constant
    )
    return importer.add("nn.linear", operand, **arrays)


def as_wide(importer: Importer, x: Node, *others: Node) -> Node | Value:
    """An operand that has one feature, beside others that have several: with as many copies of it
    on the server, where slots do not broadcast.
    """
    value, wanted = importer.value(x), shape(importer.node)
    given = value.tensor.shape
    one = len(given) in (2, 3) and given[-1:] == (1,) != wanted[-1:]
    if one and not importer.stays(x, *others):
        return copied(importer, value, *wanted[-1:])
    if not others and math.prod(given) < math.prod(wanted):  # a constant has more elements
        raise Refusal(ONE_FEATURE)
    return x


def copied(importer: Importer, value: Value, count: int) -> Value:
    """Copies of the only feature of a value: rows of the layer before, where there is one."""
    op = value.op
    if op.name in ALIKE and not any(isinstance(one, Symbol) for one in op.attributes.values()):
        copies = copied(importer, op.operands[0], count)
        return importer.add(op.name, copies, **op.attributes)
    ones = importer.constant("copies", np.ones((count, 1), np.float32))
    return importer.add("nn.linear", value, weight=ones)


def expanded(importer: Importer, x: Node, *options: Any) -> Value:
    """Copies of a last axis of one feature; other axes are copied by what reads them."""
    given, wanted = shape(x), shape(importer.node)
    if given[:-1] != wanted[:-1] or len(given) not in (2, 3):
        raise Refusal(ONE_FEATURE)
    return copied(importer, importer.value(x), wanted[-1])


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


def reshaped(importer: Importer, x: Node | Value, *options: Any) -> Value:
    """The same elements in the shape of the op's result."""
    return importer.add("nn.reshape", x, shape=list(shape(importer.node)))


def _transpose(importer: Importer, x: Node, first: int = 0, second: int = 1) -> Value:
    order = list(range(len(shape(importer.node))))
    order[first], order[second] = order[second], order[first]
    return importer.add("nn.transpose", x, permutation=order)


def _permute(importer: Importer, x: Node, axes: Sequence[int]) -> Value:
    return importer.add("nn.transpose", x, permutation=[axis % len(axes) for axis in axes])


def _select(importer: Importer, x: Node, axis: int, index: int) -> Value:
    axis %= len(shape(x))
    if is_node(index):
        raise Refusal(READ_BY_INPUT)
    if shape(x)[axis] == 1:
        others = [extent for place, extent in enumerate(shape(x)) if place != axis]
        return importer.add("nn.reshape", x, shape=others)
    return importer.add("nn.select", x, axis=axis, index=index % shape(x)[axis])


def _slice(
    importer: Importer, x: Node, axis: int, start: int | None, end: int | None, step: int = 1
) -> Value:
    if is_node(start) or is_node(end):
        raise Refusal(READ_BY_INPUT)
    extent, count = shape(x)[axis], shape(importer.node)[axis]
    axis, last = axis % len(shape(x)), len(shape(x)) - 1
    chosen = range(*slice(start, end, step).indices(extent))
    if count == 1 and axis < last:
        return reshaped(importer, _select(importer, x, axis, start or 0))
    if axis and importer.stays(x) and (axis < last or importer.layered):
        return tokens.cut(importer, x, axis, chosen)
    return some(importer, x, axis, chosen)


def _index(importer: Importer, x: Node, indices: Sequence[Node | None]) -> Value:
    """A constant list of features; or x[arange(batch), i] with one constant i: the same row of
    every sentence.
    """
    known = {axis: index for axis, index in enumerate(indices) if index is not None}
    _require_constant(importer, *known.values())
    if len(known) == 1:
        ((axis, index),) = known.items()
        return picked(importer, x, axis, index)
    if list(known) != [0, 1]:
        return _of_features(importer, x, {axis: importer.array(one) for axis, one in known.items()})
    batch, row = (importer.array(index).reshape(-1) for index in known.values())
    if not np.array_equal(batch, np.arange(shape(x)[0])) or len(set(row.tolist())) != 1:
        raise Refusal("only one row can be read, the same for every sentence")
    value = _select(importer, x, 1, int(row[0]))
    same = value.tensor.shape == shape(importer.node)
    return value if same else reshaped(importer, value)


def _concatenate(importer: Importer, parts: Sequence[Node], axis: int = 0) -> Value:
    """Features concatenated, as a sum of linear layers; on the client, any axis. Rotated halves
    are a pattern.
    """
    width, rank = shape(importer.node)[-1], len(shape(importer.node))
    parts = [one for one in parts if 0 not in shape(one)]
    if axis % rank != rank - 1:
        private = [one for one in parts if importer.kinds[one] != "constant"]
        if axis % rank and importer.stays(*private):
            return tokens.joined(importer, parts, axis % rank)
        raise Refusal(
            "along tokens parts are joined only on the client, before the first block; the halves "
            "of a rotary embedding are joined along the features"
        )
    total: Value | None = None
    constant = np.zeros(shape(importer.node), np.float32)
    first = 0
    for one in parts:
        last = first + shape(one)[-1]
        if importer.kinds[one] == "constant":
            constant[..., first:last] = importer.array(one)
        else:
            weight = np.zeros((width, last - first), np.float32)
            weight[range(first, last), range(last - first)] = 1
            placed = importer.add("nn.linear", one, weight=importer.constant("features", weight))
            total = placed if total is None else importer.add("nn.add", total, placed)
        first = last
    assert total is not None, "a constant is folded"
    if constant.any():
        total = importer.add("nn.add_constant", total, value=importer.reduced(parts[0], constant))
    return total


CUT_RULES: dict[Callable[..., Value], str] = {
    reshaped: "view.default reshape.default _unsafe_view.default flatten.using_ints unflatten.int "
    "unsqueeze.default squeeze.dim squeeze.dims squeeze.default reshape_as.default view_as.default",
    _transpose: "transpose.int t.default",
    lambda importer, x: _transpose(importer, x, -2, -1): "mT.default",
    _permute: "permute.default",
    expanded: "expand.default",
    _select: "select.int",
    _slice: "slice.Tensor",
    _index: "index.Tensor",
    picked: "index_select.default",
    flipped: "flip.default",
    gathered: "gather.default",
    lambda importer, x, index, axis: gathered(importer, x, axis, index): "take_along_dim.default",
    _concatenate: "cat.default",
    tokens.rolled: "roll.default",
    tokens.padded: "constant_pad_nd.default pad.default",
}
"""Rule -> ops, as in ``aten_rules``."""
