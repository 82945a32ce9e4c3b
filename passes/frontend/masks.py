"""Softmax with its mask: which expression masks the scores, and which keys it drops.

What a mask means is not read off its expression: it is evaluated on probes, and must drop whole
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Value
from atlasc.passes.frontend.constants import evaluate
from atlasc.passes.frontend.graph import Node, is_node, place, shape
from atlasc.passes.frontend.importer import Importer, Refusal

if TYPE_CHECKING:
    import torch

DROPPED = -1e4  # an additive mask at or below this drops a key
RANDOM_PROBES = 3
SOFTMAX_ELSEWHERE = (
    "only the softmax over the keys of attention is compiled, and one along the last axis at the "
    "very end of the model, which the client applies: return the logits"
)

MASKED_SCORES = ("scores + mask", "masked_fill(scores, dropped, low)", "where(mask, scores, low)")
"""How models put a mask into scores; ``dropped`` where True in it means to drop a key."""


class Meaning(NamedTuple):
    """Which keys a softmax drops: key j of sentence b where the public mask[b, j] is 0, if
    ``by_mask``; key j for a query i < j, if ``causal``.
    """

    by_mask: bool
    causal: bool

    def keep(self, mask: np.ndarray, scores: tuple[int, ...]) -> np.ndarray:
        """Which of the scores [batch, heads, queries, keys] are kept under a public mask."""
        keep = np.ones(scores, dtype=bool)
        if self.by_mask:
            keep &= mask.astype(bool)[:, None, None, :]
        return np.tril(keep) if self.causal else keep


def drops_keys(importer: Importer, mask: Any, low: Any) -> bool:
    """Whether a mask of scores, which writes ``low`` to keys or adds itself, drops keys.

    A constant that adds finite values (a position bias) is no mask and stays a sum.
    """
    if low is None:  # a sum
        known = importer.kinds[mask] == "constant" and not importer.is_absent(mask)
        drops = known and keep_of(importer.tensor(mask)) is not None
        return importer.kinds[mask] == "mask" or drops
    if is_node(low):
        known = importer.kinds[low] == "constant" and not importer.is_absent(low)
        array = importer.array(low) if known else np.empty(0)
        low = array.max() if array.size else np.inf
    return bool(low <= DROPPED)


def emit_softmax(
    importer: Importer,
    scores: Node | Value,
    mask: Node | None = None,
    inverted: bool = False,
    causal: bool = False,
) -> Value:
    """nn.softmax with the mask operand and the causal attribute that a mask means, whose True means
    to drop a key where it is ``inverted``; errors as ``meaning``.
    """
    value = importer.value(scores)
    extents = value.tensor.shape
    if len(extents) == 3:  # batch and heads are one axis
        batch = importer.batch
        apart = [batch, extents[0] // batch, *extents[1:]]
        value = importer.add("nn.reshape", value, shape=apart)
        weights = _emit(importer, value, mask, inverted, causal)
        return importer.add("nn.reshape", weights, shape=list(extents))
    if len(extents) != 4:
        raise Refusal(SOFTMAX_ELSEWHERE)
    return _emit(importer, value, mask, inverted, causal)


def _emit(
    importer: Importer, value: Value, mask: Node | None, inverted: bool, causal: bool
) -> Value:
    public = importer.mask_input
    if mask is None:
        return importer.add("nn.softmax", value, causal=causal or None)
    key = (mask, inverted, value.tensor.shape)
    if key not in importer.mask_meanings:

        def masked(probe: np.ndarray) -> torch.Tensor:
            import torch

            inputs = {} if public is None else {public: torch.from_numpy(probe)}
            tensor = evaluate(mask, {**importer.known, **inputs})
            if tensor.ndim == 3:  # batch and heads are one axis, or the same for all heads
                first = value.tensor.shape[:2] if len(tensor) > 1 else (1, 1)
                tensor = tensor.reshape(*first, *tensor.shape[1:])
            return ~tensor if inverted else tensor

        depends = public is not None and importer.kinds[mask] == "mask"
        probes = probe_masks(*shape(public)) if public is not None and depends else []
        where = place(importer.node)
        importer.mask_meanings[key] = meaning(masked, probes, value.tensor.shape, where)
    found = importer.mask_meanings[key]
    operands = [importer.input(public)] if public is not None and found.by_mask else []
    return importer.add("nn.softmax", value, *operands, causal=causal or found.causal or None)


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
