"""What an attention mask means: it is evaluated on probes and must drop whole keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    import torch

DROPPED = -1e4  # an additive mask at or below this drops a key
RANDOM_PROBES = 3


@dataclass(frozen=True)
class Meaning:
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
    candidates = [
        Meaning(by_mask, causal)
        for by_mask in ((False, True) if probes else (False,))
        for causal in (False, True)
    ]
    for probe in probes or [np.ones((1, 1), dtype=np.int64)]:
        keep = keep_of(evaluate(probe))
        if keep is None:
            raise _strange("it adds finite values that depend on the mask", where)
        actual = np.broadcast_to(keep, scores)
        candidates = [
            candidate
            for candidate in candidates
            if np.array_equal(actual, candidate.keep(probe, scores))
        ]
    if not candidates:
        raise _strange("it drops other keys than those with mask 0 and later ones", where)
    return candidates[0]


def _strange(why: str, where: str) -> AtlasError:
    return AtlasError(
        "an attention mask has a meaning that the softmax op cannot express",
        where=where,
        why=why,
        remedy="only padding masks and causal masks are compiled; disable sliding windows and "
        "position biases in the configuration if the sequence is short enough",
    )
