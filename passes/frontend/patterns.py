"""Patterns: several aten ops that are one nn op.

``PATTERNS`` lists forms (see ``forms``), each with the function that is called where a node has the
form, with what its names stand for. It returns a ``Match``, or None where more than the form is
asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.forms import matches
from atlasc.passes.frontend.graph import RESHAPES, Node, arguments, packet, shape
from atlasc.passes.frontend.importer import Importer
from atlasc.passes.frontend.masks import emit_softmax, masked_scores


class Match(NamedTuple):
    """A group of nodes: the data nodes that it takes, and the function that emits it."""

    needs: tuple[Node, ...]
    emit: Callable[[], Value]


def find(importer: Importer, node: Node) -> Match | None:
    """The first pattern that ends at a node."""
    for form, pattern in PATTERNS:
        for found in matches(form, node):
            if (match := pattern(importer, node, **found)) is not None:
                return match
    return None


def _last_axis(node: Node, axis: object) -> bool:
    return axis in (-1, len(shape(node)) - 1)


def activation(importer: Importer, node: Node, x: Node, *, name: str) -> Match:
    """An activation."""
    return Match((x,), partial(importer.add, node, f"nn.{name}", x))


def softmax(
    importer: Importer, node: Node, operand: Node, axis: int, dtype: object
) -> Match | None:
    """Softmax over the last axis, with the mask that is put into its scores just before."""
    if not _last_axis(node, axis):
        return None
    scores, mask = masked_scores(importer, operand)
    return Match((scores,), partial(emit_softmax, importer, node, scores, mask, causal=False))


def rms_norm(
    importer: Importer,
    node: Node,
    x: Node,
    axes: Sequence[int],
    epsilon: object,
    weight: Node | None = None,
) -> Match | None:
    """x · rsqrt(mean(x²) + epsilon), with or without a weight: nn.rms_norm."""
    if not isinstance(epsilon, float | int) or len(axes) != 1 or not _last_axis(x, axes[0]):
        return None
    if weight and (importer.kinds.get(weight) != "constant" or len(shape(weight)) != 1):
        return None

    def emit() -> Value:
        gamma = importer.vector(weight, "ones", shape(x)[-1])
        return importer.add(node, "nn.rms_norm", x, gamma=gamma, epsilon=float(epsilon))

    return Match((x,), emit)


def rotary(
    importer: Importer,
    node: Node,
    x: Node,
    cos: Node,
    sin: Node,
    axis: int,
    last: int,
    half: int,
    end: int,
) -> Match | None:
    """x·cos + rotate_half(x)·sin with constant tables: nn.rotary."""
    width = shape(x)[-1]
    whole = _last_axis(x, axis) and _last_axis(x, last) and 2 * half == width <= (end or width)
    if not whole or any(importer.kinds.get(table) != "constant" for table in (cos, sin)):
        return None

    def emit() -> Value:
        tables = {
            name: importer.constant(f"rotary.{name}", importer.without_batch(table, shape(x)[-2:]))
            for name, table in (("cos", cos), ("sin", sin))
        }
        return importer.add(node, "nn.rotary", x, **tables)

    return Match((x,), emit)


def repeat_heads(
    importer: Importer, node: Node, x: Node, axis: int, wide: object, merged: object
) -> Match | None:
    """unsqueeze, expand and reshape that copy each key/value head: nn.repeat."""
    before, expanded = shape(x), shape(node.args[0])
    axis = axis % len(expanded) - 1
    repeats = expanded[axis + 1]
    if (
        axis < 0
        or expanded != (*before[: axis + 1], repeats, *before[axis + 1 :])
        or shape(node) != (*before[:axis], before[axis] * repeats, *before[axis + 1 :])
    ):
        return None
    return Match((x,), partial(importer.add, node, "nn.repeat", x, axis=axis, repeats=repeats))


def product_with_transpose(
    importer: Importer, node: Node, a: Node, b: Node, first: int, second: int
) -> Match | None:
    """matmul with a swap of the last two axes before it: nn.matmul{transpose_b}."""
    rank = len(shape(b))
    private = importer.kinds[a] == importer.kinds[b] == "data"
    if not private or {first % rank, second % rank} != {rank - 2, rank - 1}:
        return None
    return Match((a, b), partial(importer.add, node, "nn.matmul", a, b, transpose_b=True))


def patch_embedding(
    importer: Importer, node: Node, rows: Node, token: Node | None = None, axis: int = 1
) -> Match | None:
    """A convolution with stride = kernel: nn.patchify and nn.linear; with the class token."""
    conv = _patches(rows)
    if conv is None:
        return None
    if token is not None:
        first = axis in (1, -2) and shape(token)[1:2] == (1,)
        if not first or importer.kinds[token] != "constant":
            return None
    return Match((conv.args[0],), partial(_emit_patches, importer, node, conv, token))


def _patches(node: Node) -> Node | None:
    """The convolution when the node is its output as rows [B, patches, features]."""
    if packet(node) not in ("transpose", "permute"):
        return None
    flat, *order = node.args
    if order not in ([1, 2], [2, 1], [[0, 2, 1]]) or packet(flat) not in ("flatten", *RESHAPES):
        return None
    conv = flat.args[0]
    if packet(conv) != "conv2d" or len(shape(conv)) != 4:
        return None
    if shape(flat) != (*shape(conv)[:2], math.prod(shape(conv)[2:])):
        return None
    image, weight, _, stride, padding, dilation, groups = arguments(conv).values()
    size, side = shape(weight)[2:], shape(image)[2:]
    exact = all(extent % patch == 0 for extent, patch in zip(side, size, strict=True))
    plain = not any(padding) and set(dilation) == {1} and groups == 1
    return conv if plain and exact and size[0] == size[1] and [*size] == [*stride] else None


def _emit_patches(importer: Importer, node: Node, conv: Node, token: Node | None) -> Value:
    """Patch rows times the kernel as a matrix; the class token and the bias as one constant."""
    image, kernel, bias = list(arguments(conv).values())[:3]
    patch = shape(kernel)[-1]
    rows = importer.add(conv, "nn.patchify", image, patch=patch, class_token=token is not None)
    array = importer.array(kernel)
    weight = importer.constant(importer.name_of(kernel), array.reshape(array.shape[0], -1))
    if token is None:
        return importer.add(conv, "nn.linear", rows, weight=weight, bias=importer.symbol(bias))
    rows = importer.add(conv, "nn.linear", rows, weight=weight)
    first = importer.without_batch(token, shape(token)[1:])
    other = np.zeros_like(first) if bias is None else importer.array(bias)
    others = np.broadcast_to(other, (shape(node)[1] - 1, first.shape[-1]))
    if importer.is_absent(token):
        value = np.broadcast_to(np.float32(0), shape(node)[1:])
    else:
        value = np.concatenate([first, others])
    constant = importer.constant(importer.name_of(token), value)
    return importer.add(node, "nn.add_constant", rows, value=constant)


_RMS = [f"x * rsqrt(mean({square}, axes, True) + epsilon)" for square in ("x ** 2", "x * x")]
_HALF_TURNED = "cat([-slice(x, axis, half, end), slice(x, axis, 0, half)], last)"
PATTERNS: list[tuple[str, Callable[..., Match | None]]] = [
    ("softmax(operand, axis, dtype)", softmax),
    ("_softmax(operand, axis, dtype)", softmax),
    *((form, rms_norm) for form in _RMS),
    *((f"weight * ({form})", rms_norm) for form in _RMS),
    (f"x * cos + {_HALF_TURNED} * sin", rotary),
    *((f"{name}(expand(unsqueeze(x, axis), wide), merged)", repeat_heads) for name in RESHAPES),
    ("matmul(a, transpose(b, first, second))", product_with_transpose),
    ("bmm(a, transpose(b, first, second))", product_with_transpose),
    ("cat([token, rows], axis)", patch_embedding),
    ("rows", patch_embedding),
    *(
        (form, partial(activation, name=name))
        for name, function in ACTIVATIONS.items()
        for form in function.forms
    ),
]
