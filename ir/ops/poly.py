"""Ops that only the poly level has. Nonlinear functions are expanded into them."""

from __future__ import annotations

import numpy as np

from atlasc.ir.bounds import MAX_COEFFICIENTS
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import RuleError, Site, declare, require
from atlasc.ir.ops import rules
from atlasc.ir.ops.masks import CAUSAL, QUERY, WINDOW, keep_mask, log_hidden, positions
from atlasc.ir.ops.nn import BASIS
from atlasc.ir.scalar_functions import FUNCTIONS
from atlasc.ir.types import TensorType

FILL = A("fill", "float", "value of a masked score")
LOG_KEYS = A("log_keys", "float",
             "times log(keys / visible keys) is added to visible scores (default 0)",
             optional=True)  # fmt: skip
SCORE_BIAS = A("bias", "symbol", "added to visible scores, broadcast to [heads, queries, keys]",
               optional=True)  # fmt: skip
SLOPES = A("slopes", "symbol", "[heads]: times the visible keys before a key is added to its score",
           optional=True)  # fmt: skip
declare("poly.square", "Elementwise square.", "x", rules.same_as_first,
        evaluate=lambda site, x: np.square(x), levels=1)  # fmt: skip
declare("poly.sub", "Elementwise difference.", "a b", rules.broadcast,
        evaluate=lambda site, a, b: a - b)  # fmt: skip
declare("poly.affine", "x · scale + shift.", "x",
        rules.constant_broadcast("shift", "scale"),
        A("scale", "scalar or symbol", "broadcast to x"),
        A("shift", "scalar or symbol", "broadcast to x"),
        evaluate=lambda site, x: x * site.like("scale", x) + site.like("shift", x),
        levels=1)  # fmt: skip


def _double(site: Site) -> TensorType:
    rules.check_times(site)
    return rules.same_as_first(site)


declare("poly.double", "x · 2^times by additions, which consume no level.", "x", _double,
        A("times", "int", "doublings"),
        evaluate=lambda site, x: x * x.dtype.type(2 ** site.attributes["times"]))  # fmt: skip


def _row_sum(site: Site) -> TensorType:
    rules.last_extent(site)
    return rules.tensor(site, (*site.shape()[:-1], 1))


declare("poly.row_sum", "Sum over the last axis, which stays with extent 1.", "x", _row_sum,
        evaluate=lambda site, x: x.sum(axis=-1, keepdims=True))  # fmt: skip


def _biased_scores(site: Site) -> TensorType:
    scores = rules.keys_mask(site)
    rules.check_score_bias(site, scores.shape[1:])
    rules.check_slopes(site, scores.shape[1])
    return scores


def _mask_fill(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    keep = keep_mask(site, scores, mask)
    if "bias" in site.attributes:
        scores = scores + site.like("bias", scores)
    if "slopes" in site.attributes and mask is not None:
        slopes = site.like("slopes", scores)[:, None, None]
        scores = scores + slopes * positions(mask)[:, None, None, :].astype(scores.dtype)
    if keep is None:
        return scores
    fill, log_keys = (
        scores.dtype.type(site.attributes.get(name, 0.0)) for name in ("fill", "log_keys")
    )
    return np.where(keep, scores + log_keys * log_hidden(scores, keep), fill)


declare("poly.mask_fill",
        "The scores of visible keys plus ``bias``, what ``slopes`` add and ``log_keys`` · log(keys "
        "/ visible keys); ``fill`` for masked keys.",
        "scores mask?", _biased_scores, CAUSAL, WINDOW, QUERY, FILL, LOG_KEYS, SCORE_BIAS, SLOPES,
        evaluate=_mask_fill)  # fmt: skip


def _mask_zero(site: Site, y: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    keep = keep_mask(site, y, mask)
    return y if keep is None else np.where(keep, y, np.zeros((), y.dtype))


declare("poly.mask_zero", "The weights of visible keys, 0 for masked keys. Consumes no level.",
        "weights mask?", rules.keys_mask, CAUSAL, WINDOW, QUERY,
        A("value", "float", "what every masked weight holds"),
        evaluate=_mask_zero)  # fmt: skip


def chebyshev_levels(site: Site) -> int:
    """Levels of a Chebyshev sum of degree n whose argument lies in (−1, 1): ⌈log₂(n+1)⌉."""
    shape = site.constant_shape("coefficients")
    vectors = len(shape) in (1, 2) and shape[-1] >= 1
    require(vectors, f"coefficients must be one vector, or one a channel, not of shape {shape}")
    few = shape[-1] <= MAX_COEFFICIENTS
    require(few, f"{shape[-1]} coefficients are more than {MAX_COEFFICIENTS}")
    return (shape[-1] - 1).bit_length()


def _chebyshev(site: Site) -> TensorType:
    domain, valid = site.attributes["domain"], site.attributes.get("valid", [-1.0, 1.0])
    ordered = len(domain) == 2 and domain[0] < domain[1]
    require(ordered, f"domain {domain} is not [low, high] with low < high")
    around = len(valid) == 2 and valid[0] <= -1.0 and valid[1] >= 1.0
    require(around, f"valid {valid} is not [low, high] around [-1, 1]")
    chebyshev_levels(site)
    if "function" in site.attributes:
        name, shape = site.attributes["function"], site.constant_shape("interval")
        require(name in FUNCTIONS, f"there is no function {name!r}")
        require(shape[-1:] == (2,), f"interval must be of shape [2] or [channels, 2], not {shape}")
    channels = site.constant_shape("coefficients")[:-1]
    if channels and channels != site.shape()[-1:]:
        raise RuleError(f"coefficients for {channels[0]} channels, the operand has {site.shape()}")
    return rules.same_as_first(site)


def _chebyshev_sum(site: Site, x: np.ndarray) -> np.ndarray:
    """By Clenshaw's recurrence; coefficients [..., degree + 1], of one sum or one a channel."""
    low, high = site.attributes["domain"]
    coefficients = site.like("coefficients", x)
    u = ((2 * x - (low + high)) / (high - low)).astype(x.dtype)
    return np.polynomial.chebyshev.chebval(u, coefficients.T, tensor=False)


declare("poly.chebyshev", "Chebyshev sum over a domain.", "x", _chebyshev,
        A("coefficients", "floats or symbol", "[degree + 1] or [channels, degree + 1], T₀ first"),
        A("domain", "floats", "[low, high], mapped to (−1, 1)"),
        A("valid", "floats", "where the sum is accurate; the domain is (−1, 1)", optional=True),
        A("function", "string", "that the sum approximates, where it is known", optional=True),
        A("interval", "floats or symbol",
          "its arguments that the domain stands for: [low, high], or [channels, 2]",
          optional=True),
        A("gain", "float", "times the function is what the sum approximates (default 1)",
          optional=True),
        BASIS,
        evaluate=_chebyshev_sum, levels=chebyshev_levels)  # fmt: skip
