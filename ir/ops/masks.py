"""Masks: which keys a query may see, and how much a token counts in a mean."""

from __future__ import annotations

import numpy as np

from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site

CAUSAL = A("causal", "bool", "a query sees no later key", optional=True)
WINDOW = A("window", "int", "a query sees only keys less than so many tokens away; queries that "
           "the mask drops have no window", optional=True)  # fmt: skip
LAST = A("last", "bool", "with a mask: the last token that it keeps, alone", optional=True)
LAST_NEEDS_MASK = "the last token is that of a mask, which is not given"
QUERY = A("query", "int", "token of the only query (default 0)", optional=True)


def keep_mask(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray | None:
    """Boolean [B,1,queries,keys] or broadcastable: which keys a query may see; None if all."""
    kept = None if mask is None else mask.astype(bool)
    keep = None if kept is None else kept[:, None, None, :]
    causal, window = (site.attributes.get(name, 0) for name in ("causal", "window"))
    if causal or window:
        queries = site.attributes.get("query", 0) + np.arange(scores.shape[-2])
        seen = visible(queries, np.arange(scores.shape[-1]), bool(causal), window, kept)
        keep = seen if keep is None else keep & seen
    return keep


def visible(
    queries: np.ndarray,
    keys: np.ndarray,
    causal: bool,
    window: int = 0,
    kept: np.ndarray | None = None,
) -> np.ndarray:
    """Boolean [B,1,queries,keys], or 1 for B: the keys that causality and a window (0: none) leave
    to queries at some places.

    Args:
        queries, keys: their places, [queries] and [keys].
        causal: a query sees no later key.
        window: a query sees only keys that are less than so many tokens away.
        kept: mask [B, tokens]. Queries that it drops, which are padding, have no window: far from
            all tokens they would see no key, and the sum of their softmax would be 0.
    """
    after = queries[:, None] - keys
    seen = (after >= 0 if causal else np.ones_like(after, dtype=bool))[None, None]
    if not window:
        return seen
    near = (np.abs(after) < window)[None, None]
    return seen & (near if kept is None else near | ~kept[:, None, queries, None])


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


def last_kept(mask: np.ndarray) -> np.ndarray:
    """1 for the last token that a mask [batch, tokens] keeps, 0 for the others."""
    kept = mask.astype(bool)
    until_end = kept[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return np.asarray(kept & (until_end == 1), np.float64)


def positions(mask: np.ndarray) -> np.ndarray:
    """The kept tokens before each token of a mask [batch, tokens]; 0 where there are none."""
    return np.maximum(mask.astype(bool).cumsum(axis=-1) - 1, 0)
