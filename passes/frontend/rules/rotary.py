"""Rotary embeddings, however they are written: halves, pairs of neighbours, some features alone,
complex numbers.

The tables are not read from the expression. It is evaluated on single features: each feature of the
result must be a sum of itself and of one partner, with factors that depend on the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.constants import evaluate
from atlasc.passes.frontend.exported.graph import RESHAPES, Node, is_float, packet, shape
from atlasc.passes.frontend.importer import Emit, Importer
from atlasc.passes.frontend.rules.cuts import SPLITS, features

TURNS = {"slice", "cat", "stack", "select", "view_as_complex", *SPLITS}
"""Ops of which a rotary embedding has at least one, beside a product with a table."""
_PARTS = {"mul", "add", "sub", "neg", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose",
          "permute", "expand", "view_as_real", *RESHAPES, *TURNS}  # fmt: skip
_ENDS = {"add", "sub", "cat", "flatten", *RESHAPES}
MOST_PARTS = 60
"""Greatest number of ops of one embedding."""
EXACT = 1e-5
"""Greatest error, relative to the greatest number."""


def rotary(importer: Importer, node: Node) -> tuple[Emit, list[Node]] | None:
    """If a node is a rotary embedding: the function that emits nn.rotary, and [its operand]."""
    if packet(node) not in _ENDS or len(shape(node)) not in (3, 4) or not is_float(node):
        return None
    if shape(node)[-1] % 2 or (x := _operand(importer, node)) is None:
        return None
    rank = len(shape(x))
    for axis in (rank - 2, rank - 3)[: rank - 2]:
        found = _measured(importer, node, x, axis)
        if found is not None:
            return partial(_emit, importer, x, axis, found), [x]
    return None


def _operand(importer: Importer, node: Node) -> Node | None:
    """The nearest value of the same shape on which all of an expression's private parts rest."""
    opened, steps, tables, turns = {node}, 0, 0, 0
    while steps < MOST_PARTS:
        last = max(opened, key=importer.order.__getitem__)
        if tables and turns and len(opened) == 1 and _shape(last) == shape(node):
            return last
        name = packet(last) or ("unbind" if "getitem" in str(last.target) else "")
        known = [importer.kinds[one] for one in last.all_input_nodes]
        if name not in _PARTS or "data" not in known or "mask" in known:
            return None
        private = [one for one in last.all_input_nodes if importer.kinds[one] == "data"]
        if name == "mul" and len(private) != 1:
            return None
        tables += name == "mul" and "constant" in known
        turns += name in TURNS
        opened.remove(last)
        opened.update(private)
        steps += 1
    return None


def _shape(node: Node) -> tuple[int, ...]:
    """Shape of a tensor; none for a list of parts."""
    return shape(node) if hasattr(node.meta.get("val"), "shape") else ()


class _Turn(NamedTuple):
    """A rotary embedding of features in another order.

    Attributes:
        order: the features in the order of nn.rotary: partners are one half apart.
        cos, sin: tables [tokens, features], in this order.
    """

    order: np.ndarray
    cos: np.ndarray
    sin: np.ndarray


def _measured(importer: Importer, node: Node, x: Node, axis: int) -> _Turn | None:
    """The embedding that an expression is, with tokens along an axis of its operand."""
    maps = _maps(importer, node, x, axis)
    order = None if maps is None else _order(np.abs(maps).max(axis=0) > 0)
    if maps is None or order is None:
        return None
    half = len(order) // 2
    other = np.roll(order, half)
    signs = np.repeat([-1.0, 1.0], half)
    cos, sin = maps[:, order, order], maps[:, other, order] * signs
    return _Turn(order, cos.astype(np.float32), sin.astype(np.float32))


def _maps(importer: Importer, node: Node, x: Node, axis: int) -> np.ndarray | None:
    """For each token the matrix [features, features of the result] of a linear expression; None if
    it is none, or if heads differ.
    """
    import torch

    *others, width = np.moveaxis(np.empty(shape(x), bool), axis, -2).shape
    tokens, slots = others.pop(), int(np.prod(others, dtype=int))
    # A module of 16 bits rounds what it adds, and only the tables count here.
    dtype = torch.promote_types(x.meta["val"].dtype, torch.float32)
    known: Mapping[Node, Any] = importer.known

    def result(rows: np.ndarray) -> np.ndarray | None:
        """The expression of [slots, tokens, features], or of one row for all tokens."""
        array = np.broadcast_to(rows.reshape(*others, -1, width), (*others, tokens, width))
        tensor = torch.tensor(np.moveaxis(array, -2, axis))
        found = evaluate(node, {**known, x: tensor.to(dtype)})
        if found.is_meta:
            return None
        moved = np.moveaxis(found.double().numpy(), axis, -2)
        return moved.reshape(slots, tokens, width)

    nothing = np.zeros((slots, 1, width), np.float32)
    if (origin := result(nothing)) is None:
        known = importer.with_ones()
        if (origin := result(nothing)) is None:
            return None
    maps = np.zeros((width, tokens, width))
    for first in range(0, width, slots):
        chosen = np.arange(first, min(first + slots, width))
        probe = nothing.copy()
        probe[np.arange(len(chosen)), 0, chosen] = 1
        found = result(probe)
        assert found is not None
        maps[chosen] = found[: len(chosen)]
    maps = maps.transpose(1, 0, 2)
    random = np.random.default_rng(0).normal(size=(slots, tokens, width))
    wanted, error = np.einsum("sti,tij->stj", random, maps), EXACT * max(1.0, np.abs(maps).max())
    dense = result(random.astype(np.float32))
    exact = dense is not None and np.abs(dense - wanted).max() < 10 * error
    return maps if exact and not origin.any() else None


def _order(used: np.ndarray) -> np.ndarray | None:
    """The order in which features and their partners are one half apart.

    Args:
        used: [features, features of the result]; whether the second reads the first.
    """
    width = len(used)
    partner = np.full(width, -1)
    for feature in range(width):
        read = [one for one in np.flatnonzero(used[:, feature]) if one != feature]
        if len(read) > 1:
            return None
        for one in read:
            partner[feature] = one
    for feature in np.flatnonzero(partner >= 0).tolist():
        other = partner[feature]
        if partner[other] not in (-1, feature):
            return None
        partner[other] = feature
    if (partner < 0).all():
        return None
    first, second = np.split(np.flatnonzero(partner < 0), 2)
    partner[first], partner[second] = second, first
    firsts = np.flatnonzero(np.arange(width) < partner)
    return np.concatenate([firsts, partner[firsts]])


def _emit(importer: Importer, x: Node, axis: int, found: _Turn) -> Value:
    """nn.rotary, between changes of the order of tokens and of features.

    In the product of queries and keys the two orders of features cancel; see ``heads``.
    """
    value, order = importer.value(x), found.order.tolist()
    axes = list(range(len(shape(x))))
    axes[axis], axes[-2] = axes[-2], axes[axis]
    turned, ordered = axes != sorted(axes), order != sorted(order)
    if turned:
        value = importer.add("nn.transpose", value, permutation=axes)
    if ordered:
        value = features(importer, value, order)
    tables = {
        name: importer.constant(f"rotary.{name}", one)
        for name, one in (("cos", found.cos), ("sin", found.sin))
    }
    value = importer.add("nn.rotary", value, **tables)
    if ordered:
        value = features(importer, value, np.argsort(found.order).tolist())
    return importer.add("nn.transpose", value, permutation=axes) if turned else value
