"""Cuts and concatenations along the tokens and other axes, on the client.

The positions are known, so the client chooses elements by number. On encrypted data only features
are cut and joined (``aten_rules``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, shape
from atlasc.passes.frontend.importer import Importer, Refusal

MOVED = (
    "tokens that move to other places, as in shifted windows (Swin), have no packed form; "
    "a model that attends to all tokens at once (ViT, DeiT, BEiT, DINOv2) can be compiled"
)


def cut(importer: Importer, x: Node, axis: int, chosen: Sequence[int]) -> Value:
    """The elements at some positions of an axis."""
    return importer.add("nn.gather", x, axis=axis, elements=list(chosen))


def rolled(importer: Importer, x: Node, shifts: Sequence[int], axes: Sequence[int] = ()) -> Value:
    """The elements in other places of their axes; Swin shifts its windows so, behind the client."""
    known = axes and all(axis % len(shape(x)) for axis in axes) and importer.stays(x)
    if not known:
        raise Refusal(MOVED)
    value = importer.value(x)
    for shift, axis in zip(shifts, axes, strict=True):
        places = np.roll(np.arange(value.tensor.shape[axis]), shift).tolist()
        value = importer.add("nn.gather", value, axis=axis % len(shape(x)), elements=places)
    return value


def padded(
    importer: Importer,
    x: Node,
    borders: Sequence[int],
    mode: str | float = "constant",
    value: float | None = None,
) -> Value:
    """Zeros around the last axes: on the client by choice, on encrypted features by a layer."""
    value = mode if isinstance(mode, float | int) else value
    if mode not in ("constant", value) or value:
        raise Refusal("only zeros can be put around a private value")
    found = importer.value(x)
    for place in range(len(borders) // 2):
        before, after = borders[2 * place : 2 * place + 2]
        axis, extent = len(shape(x)) - 1 - place, found.tensor.shape[len(shape(x)) - 1 - place]
        if not before and not after:
            continue
        first, last = max(0, -before), extent - max(0, -after)
        elements = [*[-1] * max(0, before), *range(first, last), *[-1] * max(0, after)]
        if axis and importer.stays(x):
            found = importer.add("nn.gather", found, axis=axis, elements=elements)
        elif place == 0 and len(shape(x)) > 1:
            weight = np.zeros((len(elements), extent), np.float32)
            kept = [number for number, element in enumerate(elements) if element >= 0]
            weight[kept, range(first, last)] = 1
            layer = importer.constant("features", weight)
            found = importer.add("nn.linear", found, weight=layer)
        else:
            raise Refusal("tokens are put around others only on the client, before the first block")
    return found


def joined(importer: Importer, parts: Sequence[Node], axis: int) -> Value:
    """A concatenation of private and constant parts: each private part is placed among zeros, and
    the constants are added.
    """
    extent = shape(importer.node)[axis]
    constant = np.zeros(shape(importer.node)[1:], np.float32)
    known: Node | None = None
    total: Value | None = None
    first = 0
    for one in parts:
        width = shape(one)[axis]
        if importer.kinds[one] == "constant":
            place = [slice(None)] * constant.ndim
            place[axis - 1] = slice(first, first + width)
            constant[tuple(place)] = importer.without_batch(one, shape(one)[1:])
            known = known or one
        else:
            after = extent - first - width
            placed = cut(importer, one, axis, [*[-1] * first, *range(width), *[-1] * after])
            total = placed if total is None else importer.add("nn.add", total, placed)
        first += width
    assert total is not None, "a constant is folded"
    if known is None:
        return total
    value = importer.constant(importer.name_of(known), constant)
    return importer.add("nn.add_constant", total, value=value)
