"""Softmax with its mask: which expression masks the scores, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend import masks
from atlasc.passes.frontend.graph import Node, is_node, place, shape, target

if TYPE_CHECKING:
    import torch

    from atlasc.passes.frontend.import_export import Importer


@dataclass(frozen=True)
class MaskExpression:
    """A node whose value masks scores; ``inverted`` when True in it means to drop a key."""

    node: Node
    inverted: bool = False


def masked_scores(importer: Importer, node: Node) -> tuple[Node, MaskExpression | None]:
    """The scores below a mask, and the mask, for the operand of a softmax.

    A constant that adds finite values (a position bias) is no mask and stays a sum.
    """
    kinds, name = importer.kinds, target(node)
    if name == "aten.add.Tensor" and is_node(node.args[1]):
        for mask, scores in ((node.args[1], node.args[0]), (node.args[0], node.args[1])):
            if kinds[scores] != "data" or kinds[mask] not in ("mask", "constant"):
                continue
            if kinds[mask] == "mask" or _drops_keys(importer, mask):
                return scores, MaskExpression(mask)
    if name == "aten.masked_fill.Scalar":
        scores, drop, low = node.args
        if kinds[drop] != "data" and _is_low(low):
            return scores, MaskExpression(drop, inverted=True)
    if name.startswith("aten.where.") and len(node.args) == 3:
        keep, scores, low = node.args
        private = is_node(scores) and kinds[scores] == "data"
        if is_node(low):
            low = _scalar(importer, low)
        if private and kinds[keep] != "data" and _is_low(low):
            return scores, MaskExpression(keep)
    return node, None


def _is_low(value: Any) -> bool:
    return isinstance(value, float | int) and value <= masks.DROPPED


def _scalar(importer: Importer, node: Node) -> float | None:
    if importer.kinds[node] != "constant" or importer.is_absent(node):
        return None
    array = importer.array(node)
    return float(array.max()) if array.size else None


def _drops_keys(importer: Importer, node: Node) -> bool:
    return not importer.is_absent(node) and masks.keep_of(importer.tensor(node)) is not None


def emit_softmax(
    importer: Importer,
    node: Node,
    scores: Node | Value,
    mask: MaskExpression | None,
    causal: bool,
) -> Value:
    """nn.softmax with the mask operand and the causal attribute that the expression means.

    Raises:
        AtlasError: the expression does something else; see ``masks.meaning``.
    """
    value = importer.value(scores)
    by_mask = False
    if mask is not None:
        found = _meaning(importer, mask, value.tensor.shape, place(node))
        by_mask, causal = found.by_mask, causal or found.causal
    operands = [value, importer.public_mask()] if by_mask else [value]
    return importer.add(node, "nn.softmax", operands, {"causal": True} if causal else {})


def _meaning(
    importer: Importer, mask: MaskExpression, scores: tuple[int, ...], where: str
) -> masks.Meaning:
    """Meaning of a mask expression, worked out once for each expression and score shape."""
    key = (mask, scores)
    if key not in importer.mask_meanings:
        public = importer.mask_input
        depends = importer.kinds[mask.node] == "mask" and public is not None

        def evaluate(probe: np.ndarray) -> torch.Tensor:
            import torch

            inputs = {} if public is None else {public: torch.from_numpy(probe)}
            tensor = importer.folder.evaluate_with(mask.node, inputs)
            return ~tensor if mask.inverted else tensor

        probes = masks.probe_masks(*shape(public)) if depends and public is not None else []
        importer.mask_meanings[key] = masks.meaning(
            evaluate,
            probes or [np.ones((1, 1), dtype=np.int64)],
            scores,
            depends_on_mask=depends,
            where=where,
        )
    return importer.mask_meanings[key]
