"""Rotary embeddings: of all features of a head, or of its first ones."""

from __future__ import annotations

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, shape
from atlasc.passes.frontend.importer import Emit, Importer
from atlasc.passes.frontend.rules.cuts import features

_TURNED = "cat([-slice({x}, axis, half, end), slice({x}, axis, 0, half)], last)"
_FIRST = "slice(x, axis, 0, size)"


def _written(x: str) -> str:
    return f"{x} * cos + {_TURNED.format(x=x)} * sin"


WHOLE = _written("x")
PARTIAL = f"cat([{_written(_FIRST)}, slice(x, axis, size, stop)], last)"
"""Forms of `rotary` and of `partial_rotary`; see ``patterns``."""


def rotary(
    importer: Importer, x: Node, cos: Node, sin: Node, axis: int, last: int, half: int, end: int
) -> Emit | None:
    """x·cos + rotate_half(x)·sin with constant tables: nn.rotary."""
    width = shape(x)[-1]
    if not _fits(importer, x, cos, sin, {axis, last}) or not 2 * half == width <= (end or width):
        return None
    return lambda: _emit(importer, importer.value(x), *_tables(importer, x, cos, sin, width))


def partial_rotary(
    importer: Importer,
    x: Node,
    cos: Node,
    sin: Node,
    axis: int,
    last: int,
    size: int,
    half: int,
    end: int,
    stop: int,
) -> Emit | None:
    """A rotary embedding of the first ``size`` features, beside the others: nn.rotary.

    Rotary rotates a feature with the one half a width further. So the features are put in that
    order, where the others are rotated by an angle of 0, and put back. In the product of queries
    and keys the two orders cancel; see ``heads``.
    """
    width = shape(x)[-1]
    whole = _fits(importer, x, cos, sin, {axis, last})
    ends = 2 * half == size <= (end or size) and width <= (stop or width)
    if not whole or not ends or size >= width or width % 2:
        return None
    rest = np.split(np.arange(size, width), 2)
    turned = np.split(np.arange(size), 2)
    order = np.concatenate([turned[0], rest[0], turned[1], rest[1]])

    def emit() -> Value:
        tables = _tables(importer, x, cos, sin, size)
        placed = [np.pad(t, ((0, 0), (0, width - size)), constant_values=fill)[:, order]
                  for t, fill in zip(tables, (1.0, 0.0), strict=True)]  # fmt: skip
        rotated = _emit(importer, features(importer, x, order.tolist()), *placed)
        return features(importer, rotated, np.argsort(order).tolist())

    return emit


def _fits(importer: Importer, x: Node, cos: Node, sin: Node, axes: set[int]) -> bool:
    """Whether all axes are the last one, and both tables are constant."""
    last = axes <= {-1, len(shape(x)) - 1}
    return last and all(importer.kinds.get(table) == "constant" for table in (cos, sin))


def _tables(
    importer: Importer, x: Node, cos: Node, sin: Node, width: int
) -> tuple[np.ndarray, np.ndarray]:
    extents = (shape(x)[-2], width)
    return importer.without_batch(cos, extents), importer.without_batch(sin, extents)


def _emit(importer: Importer, x: Value, cos: np.ndarray, sin: np.ndarray) -> Value:
    tables = {"cos": cos, "sin": sin}
    symbols = {name: importer.constant(f"rotary.{name}", one) for name, one in tables.items()}
    return importer.add("nn.rotary", x, **symbols)
