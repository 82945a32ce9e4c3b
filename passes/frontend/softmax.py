"""Softmax with its mask: which expression masks the scores, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend import masks
from atlasc.passes.frontend.forms import matches
from atlasc.passes.frontend.graph import Node, is_node, place, shape
from atlasc.passes.frontend.importer import Importer

if TYPE_CHECKING:
    import torch


# How models put a mask into scores, and whether True in the mask means to drop a key.
MASKED_SCORES = {
    "scores + mask": False,
    "masked_fill(scores, mask, low)": True,
    "where(mask, scores, low)": False,
}


@dataclass(frozen=True)
class MaskExpression:
    """A node whose value masks scores; ``inverted`` when True in it means to drop a key."""

    node: Node
    inverted: bool = False


def masked_scores(importer: Importer, node: Node) -> tuple[Node, MaskExpression | None]:
    """The scores below a mask, and the mask, for the operand of a softmax.

    A constant that adds finite values (a position bias) is no mask and stays a sum.
    """
    kinds = importer.kinds
    for form, inverted in MASKED_SCORES.items():
        for found in matches(form, node):
            scores, mask, low = found["scores"], found["mask"], found.get("low")
            if kinds.get(scores) != "data" or kinds.get(mask, "data") == "data":
                continue
            if low is None:  # a sum
                if kinds[mask] == "mask" or _drops_keys(importer, mask):
                    return scores, MaskExpression(mask)
            elif (_scalar(importer, low) if is_node(low) else low) <= masks.DROPPED:
                return scores, MaskExpression(mask, inverted)
    return node, None


def _scalar(importer: Importer, node: Node) -> float:
    """The greatest value of a constant node; infinite where it is not known."""
    if importer.kinds[node] != "constant" or importer.is_absent(node):
        return np.inf
    array = importer.array(node)
    return float(array.max()) if array.size else np.inf


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
    key, public = (mask, scores), importer.mask_input
    if key not in importer.mask_meanings:

        def evaluate(probe: np.ndarray) -> torch.Tensor:
            import torch

            inputs = {} if public is None else {public: torch.from_numpy(probe)}
            tensor = importer.folder.evaluate_with(mask.node, inputs)
            return ~tensor if mask.inverted else tensor

        depends = public is not None and importer.kinds[mask.node] == "mask"
        probes = masks.probe_masks(*shape(public)) if public is not None and depends else []
        importer.mask_meanings[key] = masks.meaning(evaluate, probes, scores, where)
    return importer.mask_meanings[key]
