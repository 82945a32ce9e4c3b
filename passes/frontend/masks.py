"""Softmax with its mask: which expression masks the scores, and which keys it drops.

What a mask means is not read off its expression: it is evaluated on probes, and must drop whole
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Value
from atlasc.passes.frontend.constants import evaluate
from atlasc.passes.frontend.forms import matches
from atlasc.passes.frontend.graph import Node, is_node, place, shape
from atlasc.passes.frontend.importer import Importer

if TYPE_CHECKING:
    import torch

DROPPED = -1e4  # an additive mask at or below this drops a key
RANDOM_PROBES = 3

# How models put a mask into scores, and whether True in the mask means to drop a key.
MASKED_SCORES = {
    "scores + mask": False,
    "masked_fill(scores, mask, low)": True,
    "where(mask, scores, low)": False,
}


class MaskExpression(NamedTuple):
    """A node whose value masks scores; ``inverted`` when True in it means to drop a key."""

    node: Node
    inverted: bool = False


class Meaning(NamedTuple):
    """Which keys a softmax drops.

    Attributes:
        by_mask: key j of sentence b is dropped where the public mask[b, j] is 0.
        causal: key j is dropped for a query i < j.
    """

    by_mask: bool
    causal: bool

    def keep(self, mask: np.ndarray, scores: tuple[int, ...]) -> np.ndarray:
        """Which of the scores [batch, heads, queries, keys] are kept under a public mask."""
        keep = np.ones(scores, dtype=bool)
        if self.by_mask:
            keep &= mask.astype(bool)[:, None, None, :]
        return np.tril(keep) if self.causal else keep


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
                known = kinds[mask] == "constant" and not importer.is_absent(mask)
                if kinds[mask] == "mask" or (known and keep_of(importer.tensor(mask)) is not None):
                    return scores, MaskExpression(mask)
                continue
            if is_node(low):
                known = kinds[low] == "constant" and not importer.is_absent(low)
                array = importer.array(low) if known else np.empty(0)
                low = array.max() if array.size else np.inf
            if low <= DROPPED:
                return scores, MaskExpression(mask, inverted)
    return node, None


def emit_softmax(
    importer: Importer,
    node: Node,
    scores: Node | Value,
    mask: MaskExpression | None,
    causal: bool,
) -> Value:
    """nn.softmax with the mask operand and the causal attribute that the expression means.

    Raises:
        AtlasError: the expression does something else; see ``meaning``.
    """
    value, public = importer.value(scores), importer.mask_input
    if mask is None:
        return importer.add(node, "nn.softmax", value, causal=causal or None)
    key = (mask, value.tensor.shape)
    if key not in importer.mask_meanings:

        def masked(probe: np.ndarray) -> torch.Tensor:
            import torch

            inputs = {} if public is None else {public: torch.from_numpy(probe)}
            tensor = evaluate(mask.node, {**importer.known, **inputs})
            return ~tensor if mask.inverted else tensor

        depends = public is not None and importer.kinds[mask.node] == "mask"
        probes = probe_masks(*shape(public)) if public is not None and depends else []
        importer.mask_meanings[key] = meaning(masked, probes, value.tensor.shape, place(node))
    found = importer.mask_meanings[key]
    operands = [importer.input(public)] if public is not None and found.by_mask else []
    return importer.add(node, "nn.softmax", value, *operands, causal=causal or found.causal or None)


def probe_masks(batch: int, length: int) -> list[np.ndarray]:
    """Masks [batch, length] that tell every meaning from every other one.

    All ones, padding on the right of several lengths, and random masks whose first key is kept,
    so that no causal row is empty.
    """
    random = np.random.default_rng(0)
    probes = [np.ones((batch, length), dtype=np.int64)]
    for shortest in {max(1, length // 3), max(1, length - 1)}:
        kept = (shortest + np.arange(batch)) % length
        probes.append((np.arange(length) < np.maximum(kept, 1)[:, None]).astype(np.int64))
    for _ in range(RANDOM_PROBES):
        probe = random.integers(0, 2, size=(batch, length))
        probe[:, 0] = 1
        probes.append(probe)
    return probes


def keep_of(tensor: torch.Tensor) -> np.ndarray | None:
    """Boolean keep mask of a boolean or additive mask; None if it adds anything finite."""
    import torch

    array = tensor.to(torch.float64).numpy() if tensor.is_floating_point() else tensor.numpy()
    if array.dtype == bool:
        return array
    kept, dropped = array == 0, array <= DROPPED
    return kept if bool(np.all(kept | dropped)) else None


def meaning(
    evaluate: Callable[[np.ndarray], torch.Tensor],
    probes: Sequence[np.ndarray],
    scores: tuple[int, ...],
    where: str,
) -> Meaning:
    """Meaning of a mask expression.

    Args:
        evaluate: the boolean or additive mask, broadcastable to the scores, for a public mask.
        probes: public masks to try; none where the mask is constant.
        scores: shape [batch, heads, queries, keys].
        where: place for the message.

    Raises:
        AtlasError: the mask does something else than dropping keys by mask and causality.
    """
    by_mask = (False, True) if probes else (False,)
    candidates = [Meaning(mask, causal) for mask in by_mask for causal in (False, True)]
    why = "it drops other keys than those with mask 0 and later ones"
    for probe in probes or [np.ones((1, 1), dtype=np.int64)]:
        keep = keep_of(evaluate(probe))
        if keep is None:
            why, candidates = "it adds finite values that depend on the mask", []
            break
        actual = np.broadcast_to(keep, scores)
        candidates = [one for one in candidates if np.array_equal(actual, one.keep(probe, scores))]
    if not candidates:
        raise AtlasError(
            "an attention mask has a meaning that the softmax op cannot express",
            where=where,
            why=why,
            remedy="only padding masks and causal masks are compiled; disable sliding windows and "
            "position biases in the configuration if the sequence is short enough",
        )
    return candidates[0]
