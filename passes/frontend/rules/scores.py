"""What a model adds to attention scores, where batch and heads may share one axis."""

from __future__ import annotations

import math

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.ops.masks import positions
from atlasc.passes.frontend.exported.constants import evaluate
from atlasc.passes.frontend.exported.graph import Node, is_node, packet, shape
from atlasc.passes.frontend.exported.positions import probe_masks
from atlasc.passes.frontend.importer import MOVES, Emit, Importer
from atlasc.passes.frontend.rules.masks import DROPPED, SAME, drops_keys, emit_softmax

VIEWS = ("view", "reshape", "_unsafe_view")


def add_array(importer: Importer, x: Node | Value, constant: Node, array: np.ndarray) -> Value:
    """Sum with an array; where batch and heads of scores share one axis, it is added to them
    apart.
    """
    value = importer.value(x)
    first, *rest = value.tensor.shape
    if len(rest) != 2 or array.size == 1 or not _is_product(value):
        return importer.add("nn.add_constant", value, value=importer.reduced(constant, array))
    heads = first // importer.batch
    apart = importer.add("nn.reshape", value, shape=[importer.batch, heads, *rest])
    batch = importer.batch if array.ndim == 3 and len(array) == first else 1
    split = array.reshape(batch, -1, *array.shape[-2:])
    total = importer.add("nn.add_constant", apart, value=importer.reduced(constant, split))
    return importer.add("nn.reshape", total, shape=[first, *rest])


def _is_product(value: Value) -> bool:
    """Whether a value may be scores: the product of two private values, or a multiple of it."""
    op = value.op
    while op.name == "nn.scale":
        op = op.operands[0].op
    if op.name != "nn.matmul":
        return False
    op = op.operands[0].op
    while op.name in MOVES:
        op = op.operands[0].op
    return op.name != "nn.softmax"  # otherwise it is what attention reads


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


def masked_in_steps(importer: Importer, node: Node) -> tuple[Emit, list[Node]] | None:
    """If a node is a softmax of scores into which several masks were put, or that were divided by a
    number or bounded below after that: the function that emits it with one mask, and [the scores].

    What such an expression makes of scores of 0 is the mask.
    """
    if packet(node) not in ("softmax", "_softmax"):
        return None
    masked = node.args[0]
    if node.args[1] not in (-1, len(shape(masked)) - 1):
        return None
    if packet(masked) in VIEWS and shape(masked)[-2:] == shape(masked.args[0])[-2:]:
        masked = masked.args[0]  # whose heads share one axis with the batch behind the mask
    scores = masked
    factor, masks, scaled = 1.0, 0, False  # scaled: after a mask, so here before it
    while (step := _step(importer, scores)) is not None:
        inner, by = step
        masks += by is None
        scaled |= by is not None and not masks
        factor *= 1.0 if by is None else by
        scores = inner
    if not masks or (masks < 2 and not scaled) or importer.kinds.get(scores) != "data":
        return None

    def emit() -> Value:
        value = importer.value(scores)
        if factor != 1:
            value = importer.add("nn.scale", value, factor=factor)
        weights = emit_softmax(importer, value, masked, zero=scores)
        if masked is node.args[0]:
            return weights
        return importer.add("nn.reshape", weights, shape=list(shape(node)))

    return emit, [scores]


def _step(importer: Importer, node: Node) -> tuple[Node, float | None] | None:
    """The scores into which a node puts a mask; or those that it multiplies by a number, and the
    number.
    """
    name, parts = packet(node), list(getattr(node, "args", ()))
    if name in ("max", "maximum") and len(parts) == 2 and _is_floor(importer, parts[1]):
        return parts[0], 1.0
    kinds = [importer.kinds.get(one, "") if is_node(one) else "" for one in parts]
    if name in ("mul", "div") and len(parts) == 2 and kinds[0] == "data" != kinds[1]:
        number = parts[1] if not is_node(parts[1]) else None
        if number is None and kinds[1] == "constant" and math.prod(shape(parts[1])) == 1:
            number = (
                None if importer.is_absent(parts[1]) else float(importer.array(parts[1]).item())
            )
        if number is None or not number:
            return None
        return parts[0], float(number) if name == "mul" else 1 / float(number)
    if name == "add" and len(parts) == 2 and not node.kwargs and "data" in kinds:
        scores, mask = parts if kinds[0] == "data" else parts[::-1]
        return (scores, None) if is_node(mask) and _drops(importer, mask) else None
    if name == "where" and kinds[0] in ("mask", "constant") and kinds[1] == "data":
        return (parts[1], None) if drops_keys(importer, parts[0], parts[2]) else None
    if name == "masked_fill" and kinds[0] == "data" and kinds[1] in ("mask", "constant"):
        return (parts[0], None) if drops_keys(importer, parts[1], parts[2]) else None
    return None


def _is_floor(importer: Importer, node: Node) -> bool:
    """Whether a node is a bound below that only dropped keys reach."""
    known = is_node(node) and importer.kinds.get(node) == "constant"
    return known and not importer.is_absent(node) and bool(importer.array(node).max() <= DROPPED)


def _drops(importer: Importer, mask: Node) -> bool:
    """Whether a mask that is added to scores drops keys, beside what it may add to others."""
    import torch

    public = importer.mask_input
    if importer.kinds[mask] == "constant":
        return drops_keys(importer, mask, None)
    if importer.kinds[mask] != "mask" or public is None:
        return False
    probe = torch.from_numpy(probe_masks(*shape(public))[1])
    found = evaluate(mask, {**importer.known, public: probe})
    return not found.is_meta and bool((found <= DROPPED).any())
