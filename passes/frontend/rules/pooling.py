"""Tokens that are read together: the mean of those that the mask keeps, the last of these, and sums
of tokens with constant weights, however they are written.

The weights are not derived from the expression. It is evaluated on random hidden states and probes
of the mask. Constant weights are the solution of the linear equations that these give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.ops.masks import last_kept, shares
from atlasc.passes.frontend.exported.constants import evaluate
from atlasc.passes.frontend.exported.graph import RESHAPES, VIEWS, Node, packet, shape
from atlasc.passes.frontend.exported.positions import probe_masks
from atlasc.passes.frontend.importer import Importer

LINEAR = {"mul", "div", "sum", "mean", "masked_fill", "where", "matmul", "bmm", "einsum", "squeeze",
          "unsqueeze", "transpose", "permute", "stack", "select", *VIEWS, *RESHAPES}  # fmt: skip
"""Ops of which a mean of tokens may consist; they are linear in one private operand if the other
operands are not private."""
CHOICES = {"index", "gather", "take_along_dim"}
"""Ops that are linear too, and read the elements that an index names."""
REDUCTIONS = {"mean", "sum", "matmul", "bmm", "adaptive_avg_pool1d", "avg_pool1d"}
UNPACKED = {"slice", "matmul", "bmm", "adaptive_avg_pool1d", "avg_pool1d"}
"""Ops for which an expression needs this rule; a mean of all tokens has one of its own."""
EXACT = 1e-6
"""Greatest error of the equations, relative to the weights, in float32's roundings."""
ROUNDED = 1e-5
"""Weights that differ by this share of the greatest one are equal: also to zero."""


def masked_tokens(importer: Importer, node: Node) -> tuple[Callable[[], Value], list[Node]] | None:
    """If a node is the mean of the tokens that the public mask keeps, or the last of these, however
    it is written: the function that emits it, and [the hidden state [batch, tokens, features]].
    """
    import torch

    public = importer.mask_input
    found = None if public is None else _before_mask(importer, node)
    if found is None or public is None or shape(public) != shape(found)[:2]:
        return None
    batch, _, features = shape(found)
    extents = list(node.meta["val"].shape)  # open, where a constant mask chooses features
    if not all(isinstance(one, int) for one in extents) or math.prod(extents) != batch * features:
        return None
    dtype: torch.dtype = found.meta["val"].dtype
    x = torch.randn(shape(found), generator=torch.Generator().manual_seed(0)).to(dtype)
    # Allows some roundings of a short type, but no other weight.
    error = max(1e-5, 4 * torch.finfo(dtype).eps)
    meanings = {False: shares, True: last_kept}
    for probe in probe_masks(*shape(public)):
        known = {**importer.known, public: torch.from_numpy(probe), found: x}
        result = evaluate(node, known)
        if result.is_meta:
            return None
        result = result.double().reshape(extents)
        for last, weights in list(meanings.items()):
            kept = torch.from_numpy(weights(probe))[..., None]
            wanted = (x.double() * kept).sum(1).reshape(extents)
            if not torch.allclose(result, wanted, rtol=error, atol=error):
                del meanings[last]
    if not meanings:
        return None
    last = min(meanings)  # of one token both are the same

    def emit() -> Value:
        mask = importer.input(public)
        mean = importer.add("nn.mean", found, mask, axis=1, last=last or None)
        return mean if len(extents) == 2 else importer.add("nn.reshape", mean, shape=extents)

    return emit, [found]


def _before_mask(importer: Importer, node: Node) -> Node | None:
    """The private operand of the first op with a mask, following ops in which a node is linear in
    one private value.
    """
    found = None
    while packet(node) in LINEAR | CHOICES:
        private = [one for one in node.all_input_nodes if importer.kinds[one] == "data"]
        if len(private) != 1:
            break
        if any(importer.kinds[one] == "mask" for one in node.all_input_nodes):
            found = private[0]
        node = private[0]
    if found is not None and packet(found) in LINEAR and shape(found) == shape(found)[:2]:
        (inner,) = found.all_input_nodes[:1]
        found = inner if shape(inner) == (*shape(found), 1) else found  # one score for each token
    return found if found is not None and len(shape(found)) == 3 else None


def weighted_tokens(
    importer: Importer, node: Node
) -> tuple[Callable[[], Value], list[Node]] | None:
    """If a node is a sum of tokens with constant weights: the function that emits it, and [the
    hidden state [batch, tokens, features]].
    """
    if packet(node) not in REDUCTIONS:
        return None
    for found in _hidden_states(importer, node):
        weights = _weights(importer, node, found)
        if weights is not None:
            return partial(_emit, importer, found, weights), [found]
    return None


def _hidden_states(importer: Importer, node: Node) -> Iterator[Node]:
    """Hidden states in which a node is linear, from near to far, behind an op in ``UNPACKED``."""
    end, needed = node, False
    while packet(node) in LINEAR | REDUCTIONS:
        private = [one for one in node.all_input_nodes if importer.kinds[one] != "constant"]
        if len(private) != 1 or importer.kinds[private[0]] != "data":
            return
        needed |= packet(node) in UNPACKED
        (node,) = private
        extents = shape(node)
        if needed and len(extents) == 3 and math.prod(shape(end)) == extents[0] * extents[2]:
            yield node


def _weights(importer: Importer, node: Node, hidden: Node) -> np.ndarray | None:
    """The weight of each token; None if the node is no such sum."""
    import torch

    tokens = shape(hidden)[1]
    generator = torch.Generator().manual_seed(0)
    rows: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    while sum(map(len, rows)) < 2 * tokens:
        x = torch.randn(shape(hidden), generator=generator).to(hidden.meta["val"].dtype)
        result = evaluate(node, {**importer.known, hidden: x})
        if result.is_meta:
            return None
        rows.append(x.double().numpy().transpose(0, 2, 1).reshape(-1, tokens))
        sums.append(result.double().numpy().reshape(-1))
    equations, wanted = np.concatenate(rows), np.concatenate(sums)
    weights = np.linalg.lstsq(equations, wanted)[0]
    error = np.abs(equations @ weights - wanted).max()
    if error >= EXACT * max(1.0, np.abs(equations).max()) * np.abs(weights).sum():
        return None  # also if all weights are 0
    used = np.abs(weights) > ROUNDED * np.abs(weights).max()
    mean = weights[used].mean()
    even = np.allclose(weights[used], mean, rtol=ROUNDED, atol=0)
    return np.where(used, mean if even else weights, 0).astype(np.float32)


def _emit(importer: Importer, hidden: Node, weights: np.ndarray) -> Value:
    add, tokens, extents = importer.add, len(weights), list(shape(importer.node))
    (used,) = np.nonzero(weights)
    if len(used) == 1:
        value = add("nn.select", hidden, axis=1, index=int(used[0]))
        value = add("nn.scale", value, factor=float(weights[used[0]]))
    else:
        even = bool((weights == weights[0]).all())
        column = weights[:, None] * tokens
        factor = float(column[0, 0]) if even else importer.constant("tokens", column)
        value = add("nn.mean", add("nn.scale", hidden, factor=factor), axis=1)
    same = list(value.tensor.shape) == extents
    return value if same else add("nn.reshape", value, shape=extents)
