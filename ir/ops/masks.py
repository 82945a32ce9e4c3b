"""Masks: which keys a query may see, and how much a token counts in a mean."""

from __future__ import annotations

import numpy as np

from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site

CAUSAL = A("causal", "bool", "a query sees no later key", optional=True)
QUERY = A("query", "int", "token of the only query (default 0)", optional=True)


def keep_mask(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray | None:
    """Boolean [B,1,queries,keys] or broadcastable: which keys a query may see; None if all."""
    keep = None if mask is None else mask.astype(bool)[:, None, None, :]
    if site.attributes.get("causal", False):
        first = site.attributes.get("query", 0)
        causal = np.tril(np.ones(scores.shape[-2:], dtype=bool), first)[None, None]
        keep = causal if keep is None else keep & causal
    return keep


def log_hidden(scores: np.ndarray, keep: np.ndarray | None) -> np.ndarray:
    """log(keys / visible keys) of each row, [..., 1], of the scores' type; a row that sees no key
    counts as one that sees one.

    Args:
        scores: [..., queries, keys].
        keep: which keys a query may see, broadcastable to the scores; None for all.
    """
    width = scores.shape[-1]
    if keep is None:
        return np.zeros(1, scores.dtype)
    visible = np.broadcast_to(keep, (*keep.shape[:-1], width)).sum(axis=-1, keepdims=True)
    return np.log(width / np.maximum(visible, 1)).astype(scores.dtype)


def shares(mask: np.ndarray) -> np.ndarray:
    """What each token counts in a mean over those that a mask [batch, tokens] keeps: 1 / kept
    tokens, or 0.
    """
    kept = mask.astype(bool)
    return np.asarray(kept / np.maximum(kept.sum(axis=-1, keepdims=True), 1))


def positions(mask: np.ndarray) -> np.ndarray:
    """The kept tokens before each token of a mask [batch, tokens]; 0 where there are none."""
    return np.maximum(mask.astype(bool).cumsum(axis=-1) - 1, 0)
