"""Cleartext meaning of tensor ops, as NumPy functions of a Site and the operand arrays.

They work in the dtype of their operands, so one declaration serves float32 and float64.
"""

from __future__ import annotations

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.opdef import Site


def encrypted_input(site: Site, x: np.ndarray) -> np.ndarray:
    """The tensor that the client encrypts: centred and multiplied, where the input says so."""
    if site.attributes.get("centred", False):
        x = x - x.mean(axis=-1, keepdims=True)
    return x * x.dtype.type(site.attributes["factor"]) if "factor" in site.attributes else x


def output(site: Site, x: np.ndarray) -> np.ndarray:
    """The answer from a decrypted result: x · factor + shift, where given."""
    if "factor" in site.attributes:
        x = x * site.like("factor", x)
    return x + site.like("shift", x) if "shift" in site.attributes else x


def embedding(site: Site, ids: np.ndarray) -> np.ndarray:
    """Rows of the table."""
    table = site.constant("table", None)
    if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
        raise AtlasError(
            f"an id is outside the vocabulary of {len(table)}",
            why=f"the ids go from {ids.min()} to {ids.max()}",
            remedy="use the tokenizer that belongs to the model",
        )
    return table[ids]


def linear(site: Site, x: np.ndarray) -> np.ndarray:
    """x · weightᵀ + bias, as one matrix product over all leading axes."""
    weight = site.like("weight", x)
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    if "bias" in site.attributes:
        y += site.like("bias", x)
    return y.reshape(*x.shape[:-1], weight.shape[0])


def reshape(site: Site, x: np.ndarray) -> np.ndarray:
    """Reshape; a batch axis that is kept may have another extent than declared."""
    shape = list(site.attributes["shape"])
    if shape[0] == site.shape()[0]:
        shape[0] = x.shape[0]
    return x.reshape(shape)


def rotary(site: Site, x: np.ndarray) -> np.ndarray:
    """Rotary position embedding (Su et al. 2021), the halves convention of HuggingFace."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * site.like("cos", x) + turned * site.like("sin", x)


def keep_mask(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray | None:
    """Boolean [B,1,queries,keys] or broadcastable: which keys a query may see; None if all."""
    keep = None
    if mask is not None:
        keep = mask.astype(bool)[:, None, None, :]
    if site.attributes.get("causal", False):
        first = site.attributes.get("query", 0)
        causal = np.tril(np.ones(scores.shape[-2:], dtype=bool), first)[None, None]
        keep = causal if keep is None else keep & causal
    return keep


def softmax(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Softmax over the last axis; masked keys get weight 0.

    A query that may see no key (padding on the left, causal) gets weight 0 for all of them.
    """
    keep = keep_mask(site, scores, mask)
    if keep is None:
        y = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return y / y.sum(axis=-1, keepdims=True)
    highest = np.where(keep, scores, -np.inf).max(axis=-1, keepdims=True)
    y = np.exp(np.where(keep, scores - np.where(np.isinf(highest), 0, highest), -np.inf))
    total = y.sum(axis=-1, keepdims=True)
    return y / np.where(total == 0, 1, total)


def mask_fill(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """scores where a key may be seen, ``fill`` elsewhere."""
    keep = keep_mask(site, scores, mask)
    fill = np.asarray(site.attributes["fill"], dtype=scores.dtype)
    return scores if keep is None else np.where(keep, scores, fill)


def mask_zero(site: Site, y: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """y where a key may be seen, 0 elsewhere."""
    keep = keep_mask(site, y, mask)
    return y if keep is None else np.where(keep, y, np.zeros((), y.dtype))


def layer_norm(site: Site, x: np.ndarray) -> np.ndarray:
    """(x − mean)/√(variance + ε) · γ + β over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    inverse = 1.0 / np.sqrt(variance + site.attributes["epsilon"])
    return (centred * inverse * site.like("gamma", x) + site.like("beta", x)).astype(x.dtype)


def rms_norm(site: Site, x: np.ndarray) -> np.ndarray:
    """x/√(mean square + ε) · γ over the last axis."""
    square = np.square(x).mean(axis=-1, keepdims=True)
    return (x / np.sqrt(square + site.attributes["epsilon"]) * site.like("gamma", x)).astype(
        x.dtype
    )


def patchify(site: Site, image: np.ndarray) -> np.ndarray:
    """[B,C,H,W] to [B,(1+)P,C·p·p], patches row by row; a zero row 0 for the class token."""
    patch = site.attributes["patch"]
    batch, channels, height, width = image.shape
    grid = image.reshape(batch, channels, height // patch, patch, width // patch, patch)
    rows = grid.transpose(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)
    if site.attributes["class_token"]:
        rows = np.concatenate([np.zeros_like(rows[:, :1]), rows], axis=1)
    return rows


def chebyshev(site: Site, x: np.ndarray) -> np.ndarray:
    """Chebyshev sum at x mapped from the domain to (−1, 1), by Clenshaw's recurrence.

    Coefficients [..., degree + 1] are one sum for all, or one for each place of the last axis.
    """
    low, high = site.attributes["domain"]
    coefficients = site.like("coefficients", x)
    u = ((2 * x - (low + high)) / (high - low)).astype(x.dtype)
    return np.polynomial.chebyshev.chebval(u, coefficients.T, tensor=False)
