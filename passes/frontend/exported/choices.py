"""Inputs that a constant mask chooses: x[mask], and y[mask] = x.

A module that treats inputs of several kinds apart, by a setting that is the same for all of them
(the language of an adapter), chooses all inputs or none. torch.export does not look at the mask,
and leaves the number of chosen elements open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.passes.frontend.exported.constants import evaluate, to_numpy
from atlasc.passes.frontend.exported.graph import Kind, Node, packet

if TYPE_CHECKING:
    from torch.fx import Graph

CHOICES = ("index", "index_put")


def without_choices(
    graph: Graph, kinds: Mapping[Node, Kind], known: Mapping[Node, Any]
) -> dict[Node, Node]:
    """Route the users of a choice of all inputs to what is chosen from, and those of an assignment
    to all of them, or to none, to what the result is. Open extents become numbers.

    Returns each such node with the node that it equals.
    """
    import torch

    counts: dict[Any, int] = {}
    same: dict[Node, Node] = {}
    for node in list(graph.nodes):
        chosen = _chosen(node, kinds, known) if packet(node) in CHOICES else None
        found = node.meta.get("val")
        if chosen is not None and packet(node) == "index" and not isinstance(found.shape[0], int):
            counts[found.shape[0].node.expr] = len(chosen)
        shape = getattr(found, "shape", ())
        if not all(isinstance(extent, int) for extent in shape):
            extents = [n if isinstance(n, int) else n.node.expr.subs(counts) for n in shape]
            if all(isinstance(n, int) or n.is_Integer for n in extents):
                fixed = list(map(int, extents))
                node.meta["val"] = torch.empty(fixed, dtype=found.dtype, device="meta")
        equal = None if chosen is None else _equal(node, chosen)
        if equal is not None:
            node.replace_all_uses_with(equal)
            same[node] = equal
    return same


def _chosen(node: Node, kinds: Mapping[Node, Kind], known: Mapping[Node, Any]) -> list[int] | None:
    """The inputs that a choice takes, if a constant says so and nothing else is chosen."""
    first, *others = node.args[1]
    if first is None or any(one is not None for one in others) or kinds[first] != "constant":
        return None
    value = evaluate(first, dict(known))
    if value.is_meta or value.ndim != 1:
        return None
    places, count = to_numpy(value), node.args[0].meta["val"].shape[0]
    return (np.flatnonzero(places) if places.dtype == bool else places % count).tolist()


def _equal(node: Node, chosen: list[int]) -> Node | None:
    """The node that a choice equals."""
    before = node.args[0]
    whole = chosen == list(range(before.meta["val"].shape[0]))
    if packet(node) == "index":
        return before if whole else None
    accumulate = len(node.args) > 3 and node.args[3]
    if not chosen:
        return before
    values, wanted = node.args[2].meta["val"], node.meta["val"]
    same = (values.shape, values.dtype) == (wanted.shape, wanted.dtype)
    return node.args[2] if whole and same and not accumulate else None
