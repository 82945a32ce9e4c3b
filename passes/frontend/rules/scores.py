"""What a model adds to attention scores, where batch and heads may share one axis."""

from __future__ import annotations

import math

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.ops.masks import positions
from atlasc.passes.frontend.exported.constants import evaluate
from atlasc.passes.frontend.exported.graph import Node, shape
from atlasc.passes.frontend.exported.positions import probe_masks
from atlasc.passes.frontend.importer import Importer

DROPPED = -1e4  # what is added to scores drops a key, at or below this
SAME = 1e-6  # share of a bias by which roundings change it


def add_array(importer: Importer, x: Node | Value, constant: Node, array: np.ndarray) -> Value:
    """Sum with an array; one that differs by head, where batch and heads share one axis, is added
    to them apart.
    """
    value = importer.value(x)
    first, *rest = value.tensor.shape
    heads = first // importer.batch
    by_head = array.ndim == 3 and array.shape[0] == heads * importer.batch > importer.batch
    if not by_head or not _is_product(value):
        return importer.add("nn.add_constant", value, value=importer.reduced(constant, array))
    apart = importer.add("nn.reshape", value, shape=[importer.batch, heads, *rest])
    split = importer.reduced(constant, array.reshape(importer.batch, heads, *array.shape[1:]))
    total = importer.add("nn.add_constant", apart, value=split)
    return importer.add("nn.reshape", total, shape=[first, *rest])


def _is_product(value: Value) -> bool:
    """Whether a value may be scores: the product of two private values, or a multiple of it."""
    op = value.op
    while op.name == "nn.scale":
        op = op.operands[0].op
    return op.name == "nn.matmul"


def emit_positions(importer: Importer, scores: Node, mask: Node) -> Value | None:
    """Emit nn.add_positions for scores to which a model adds a slope times the place of a key among
    those that the public mask keeps (ALiBi); None if the expression has another meaning.

    A number that all keys of a query get changes no weight, so it need not be the same.
    """
    import torch

    public, extents = importer.mask_input, importer.value(scores).tensor.shape
    if public is None or len(extents) not in (3, 4) or extents[-1] != shape(public)[1]:
        return None
    apart = [importer.batch, math.prod(extents[:-2]) // importer.batch, *extents[-2:]]
    slopes: np.ndarray | None = None
    for probe in probe_masks(*shape(public)):
        found = evaluate(mask, {**importer.known, public: torch.from_numpy(probe)})
        if found.is_meta or math.prod(found.shape[:-2]) != apart[0] * apart[1]:
            return None
        added = found.double().numpy().reshape(*apart[:2], -1, found.shape[-1])
        added = np.broadcast_to(added, apart)
        if added.min() <= DROPPED:  # it drops keys, which positions do not
            return None
        if slopes is None:  # the first probe keeps all tokens
            slopes = np.zeros(apart[1]) if apart[3] < 2 else added[0, :, 0, 1] - added[0, :, 0, 0]
        rest = added - slopes[:, None, None] * positions(probe)[:, None, None, :]
        kept = np.broadcast_to(probe.astype(bool)[:, None, None, :], rest.shape)
        spread = np.where(kept, rest, -np.inf).max(-1) - np.where(kept, rest, np.inf).min(-1)
        if not (spread <= SAME * np.abs(added).max()).all():
            return None
    assert slopes is not None
    symbol = importer.constant("scores.slopes", slopes.astype(np.float32))
    value = importer.value(scores)
    if len(extents) == 3:  # batch and heads share one axis
        value = importer.add("nn.reshape", value, shape=apart)
    value = importer.add("nn.add_positions", value, importer.input(public), slopes=symbol)
    return importer.add("nn.reshape", value, shape=list(extents)) if len(extents) == 3 else value
