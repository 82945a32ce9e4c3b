"""Patterns: several aten ops that are one nn op.

A pattern looks backwards from the last op of a group. It returns a ``Match`` (the nodes that the
group takes, and how to emit it) or None. Patterns are tried in the order of ``PATTERNS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.activations import activation
from atlasc.passes.frontend.forms import Match, pairs
from atlasc.passes.frontend.graph import Node, shape, target
from atlasc.passes.frontend.softmax import emit_softmax, masked_scores

if TYPE_CHECKING:
    from atlasc.passes.frontend.import_export import Importer

RESHAPES = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")


Pattern = Callable[["Importer", "Node"], Match | None]


def find(importer: Importer, node: Node) -> Match | None:
    """The first pattern that ends at a node."""
    for pattern in PATTERNS:
        found = pattern(importer, node)
        if found is not None:
            return found
    return None


def _last_axis(node: Node, axis: object) -> bool:
    return axis in (-1, len(shape(node)) - 1)


def _normalised(node: Node) -> tuple[Node, float] | None:
    """x and epsilon when the node is x · rsqrt(mean(x²) + epsilon)."""
    if target(node) != "aten.mul.Tensor":
        return None
    for x, inverse in pairs(node):
        if target(inverse) != "aten.rsqrt.default":
            continue
        shifted = inverse.args[0]
        if target(shifted) != "aten.add.Tensor" or not isinstance(shifted.args[1], float | int):
            continue
        mean = shifted.args[0]
        if target(mean) != "aten.mean.dim" or list(mean.args[2:3]) != [True]:
            continue
        square, axes = mean.args[0], mean.args[1]
        if len(axes) != 1 or not _last_axis(x, axes[0]):
            continue
        power = target(square) == "aten.pow.Tensor_Scalar" and square.args == (x, 2)
        if power or (target(square) == "aten.mul.Tensor" and square.args == (x, x)):
            return x, float(shifted.args[1])
    return None


def rms_norm(importer: Importer, node: Node) -> Match | None:
    """pow, mean, rsqrt and mul, with or without a weight: nn.rms_norm."""
    if target(node) != "aten.mul.Tensor":
        return None
    weight: Node | None = None
    found = _normalised(node)
    if found is None:
        for constant, inner in pairs(node):
            if importer.kinds[constant] == "constant" and len(shape(constant)) == 1:
                weight, found = constant, _normalised(inner)
    if found is None:
        return None
    x, epsilon = found

    def emit() -> Value:
        if weight is None:
            gamma = importer.constant("ones", np.ones(shape(x)[-1], dtype=np.float32))
        else:
            gamma = importer.symbol(weight)
        attributes = {"gamma": gamma, "epsilon": epsilon}
        return importer.add(node, "nn.rms_norm", [x], attributes)

    return Match((x,), emit)


def _half_turned(node: Node) -> Node | None:
    """x when the node is cat([-x[..., d/2:], x[..., :d/2]])."""
    if target(node) != "aten.cat.default" or len(node.args[0]) != 2:
        return None
    if not _last_axis(node, node.args[1] if len(node.args) > 1 else 0):
        return None
    negative, low = node.args[0]
    if target(negative) != "aten.neg.default":
        return None
    high, half = negative.args[0], shape(node)[-1] // 2
    x = low.args[0] if low.args else None
    for part, start in ((low, 0), (high, half)):
        good = (
            target(part) == "aten.slice.Tensor"
            and part.args[0] is x
            and _last_axis(part, part.args[1])
            and part.args[2] == start
            and shape(part)[-1] == half
        )
        if not good:
            return None
    return x


def rotary(importer: Importer, node: Node) -> Match | None:
    """x·cos + rotate_half(x)·sin with constant tables: nn.rotary."""
    if target(node) != "aten.add.Tensor":
        return None
    for plain, turned in pairs(node):
        if target(plain) != "aten.mul.Tensor" or target(turned) != "aten.mul.Tensor":
            continue
        for half, sin in pairs(turned):
            x = _half_turned(half)
            for same, cos in pairs(plain):
                constants = {importer.kinds[sin], importer.kinds[cos]} == {"constant"}
                if x is None or same is not x or not constants:
                    continue
                return _rotary_match(importer, node, x, cos, sin)
    return None


def _rotary_match(importer: Importer, node: Node, x: Node, cos: Node, sin: Node) -> Match:
    def emit() -> Value:
        tables = {
            name: importer.constant(name, importer.without_batch(table, shape(x)[-2:]))
            for name, table in (("rotary.cos", cos), ("rotary.sin", sin))
        }
        attributes = {"cos": tables["rotary.cos"], "sin": tables["rotary.sin"]}
        return importer.add(node, "nn.rotary", [x], attributes)

    return Match((x,), emit)


def repeat_heads(importer: Importer, node: Node) -> Match | None:
    """unsqueeze, expand and reshape that copy each key/value head: nn.repeat."""
    if target(node) not in RESHAPES or target(node.args[0]) != "aten.expand.default":
        return None
    expanded = node.args[0]
    lifted = expanded.args[0]
    if target(lifted) != "aten.unsqueeze.default":
        return None
    x, wide = lifted.args[0], shape(expanded)
    axis = lifted.args[1] % len(wide) - 1
    repeats = wide[axis + 1]
    before = shape(x)
    merged = (*before[:axis], before[axis] * repeats, *before[axis + 1 :])
    if axis < 0 or wide != (*before[: axis + 1], repeats, *before[axis + 1 :]):
        return None
    if shape(node) != merged:
        return None
    return Match(
        (x,), lambda: importer.add(node, "nn.repeat", [x], {"axis": axis, "repeats": repeats})
    )


def product_with_transpose(importer: Importer, node: Node) -> Match | None:
    """matmul with a swap of the last two axes before it: nn.matmul{transpose_b}."""
    if target(node) not in ("aten.matmul.default", "aten.bmm.default"):
        return None
    a, b = node.args[0], node.args[1]
    if target(b) != "aten.transpose.int" or {importer.kinds[a], importer.kinds[b]} != {"data"}:
        return None
    rank = len(shape(b))
    if {axis % rank for axis in b.args[1:3]} != {rank - 2, rank - 1}:
        return None
    inner = b.args[0]
    return Match(
        (a, inner), lambda: importer.add(node, "nn.matmul", [a, inner], {"transpose_b": True})
    )


def _patches(node: Node) -> Node | None:
    """The convolution when the node is its output as rows [B, patches, features]."""
    if target(node) not in ("aten.transpose.int", "aten.permute.default"):
        return None
    if list(node.args[1:]) not in ([1, 2], [2, 1], [[0, 2, 1]]):
        return None
    flat = node.args[0]
    if target(flat) not in ("aten.flatten.using_ints", *RESHAPES) or len(shape(flat)) != 3:
        return None
    conv = flat.args[0]
    if target(conv) != "aten.conv2d.default" or len(shape(conv)) != 4:
        return None
    if shape(flat) != (*shape(conv)[:2], math.prod(shape(conv)[2:])):
        return None
    _, weight, _, stride, padding, dilation, groups = (*conv.args, *(None,) * 7)[:7]
    size = shape(weight)[2:]
    side = shape(conv.args[0])[2:]
    exact = all(extent % patch == 0 for extent, patch in zip(side, size, strict=True))
    plain = not any(padding or []) and set(dilation or [1]) == {1} and groups in (None, 1)
    return conv if plain and exact and size[0] == size[1] and [*size] == [*stride] else None


def patch_embedding(importer: Importer, node: Node) -> Match | None:
    """A convolution with stride = kernel: nn.patchify and nn.linear; with the class token."""
    if target(node) == "aten.cat.default":
        parts = node.args[0]
        if node.args[1:] not in ((1,), (-2,)) or len(parts) != 2 or shape(parts[0])[1:2] != (1,):
            return None
        token, conv = parts[0], _patches(parts[1])
        if conv is None or importer.kinds[token] != "constant":
            return None
    else:
        token, conv = None, _patches(node)
        if conv is None:
            return None
    return Match((conv.args[0],), lambda: _emit_patches(importer, node, conv, token))


def _emit_patches(importer: Importer, node: Node, conv: Node, token: Node | None) -> Value:
    """Patch rows times the kernel as a matrix; the class token and the bias as one constant."""
    image, kernel = conv.args[0], conv.args[1]
    bias = conv.args[2] if len(conv.args) > 2 else None
    patch = shape(kernel)[-1]
    attributes: dict = {"patch": patch, "class_token": token is not None}
    rows = importer.add(conv, "nn.patchify", [image], attributes)
    weight = importer.array(kernel)
    symbol = importer.constant(importer.name_of(kernel), weight.reshape(weight.shape[0], -1))
    attributes = {"weight": symbol}
    if token is None:
        if bias is not None:
            attributes["bias"] = importer.symbol(bias)
        return importer.add(conv, "nn.linear", [rows], attributes)
    rows = importer.add(conv, "nn.linear", [rows], attributes)
    first = importer.without_batch(token, shape(token)[1:])
    other = np.zeros_like(first) if bias is None else importer.array(bias)
    others = np.broadcast_to(other, (shape(node)[1] - 1, first.shape[-1]))
    if importer.is_absent(token):
        value = np.broadcast_to(np.float32(0), shape(node)[1:])
    else:
        value = np.concatenate([first, others])
    constant = importer.constant(importer.name_of(token), value)
    return importer.add(node, "nn.add_constant", [rows], {"value": constant})


def softmax(importer: Importer, node: Node) -> Match | None:
    """Softmax over the last axis, with the mask that is put into its scores just before."""
    if target(node) not in ("aten.softmax.int", "aten._softmax.default"):
        return None
    if not _last_axis(node, node.args[1]):
        return None
    scores, mask = masked_scores(importer, node.args[0])
    return Match((scores,), lambda: emit_softmax(importer, node, scores, mask, causal=False))


PATTERNS: tuple[Pattern, ...] = (
    softmax,
    rms_norm,
    rotary,
    repeat_heads,
    product_with_transpose,
    patch_embedding,
    activation,
)
