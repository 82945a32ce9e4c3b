"""Ops that only the nn level has: the client's part, and nonlinear functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from atlasc.ir.bounds import MAX_ELEMENTS
from atlasc.ir.errors import AtlasError
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site, declare, require
from atlasc.ir.ops import rules
from atlasc.ir.ops.masks import CAUSAL, WINDOW, keep_mask
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.types import TensorType

APPROXIMATION = A("approximation", "approximation", "polynomials that replace the function",
                  optional=True)  # fmt: skip
BASIS = A("basis", "string",
          "what its range rests on: measured, certified (it holds for every input), published, "
          "nominal", optional=True)  # fmt: skip
EPSILON = A("epsilon", "float", "added to the variance or mean square")


def _encrypt_type(site: Site) -> TensorType:
    require(site.types[0].side == "client", "only a client value can be encrypted")
    return TensorType(site.shape(), "server")


declare("nn.encrypt", "Boundary: the client encrypts, the server goes on.", "x", _encrypt_type,
        evaluate=lambda site, x: x)  # fmt: skip


def _embedding_type(site: Site) -> TensorType:
    require(site.types[0].dtype == "i64", "ids must be of dtype i64")
    return rules.tensor(site, (*site.shape(), rules.matrix_shape(site, "table")[1]))


def _embedding(site: Site, ids: np.ndarray) -> np.ndarray:
    table = site.stored("table", None)
    if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
        raise AtlasError(
            f"an id is outside the vocabulary of {len(table)}",
            why=f"the ids go from {ids.min()} to {ids.max()}",
            remedy="use the tokenizer that belongs to the model",
        )
    return table[ids]


declare("nn.embedding", "Rows of a table by id.", "ids", _embedding_type,
        A("table", "symbol", "[vocabulary, features]"),
        evaluate=_embedding)  # fmt: skip


def _position_ids_type(site: Site) -> TensorType:
    (ids,) = site.types
    fits = ids.dtype == "i64" and ids.side != "server" and len(ids.shape) == 2
    require(fits, "token ids or a public mask, [batch, tokens], of dtype i64, are needed")
    padding = site.attributes["padding"]
    require(0 <= padding < MAX_ELEMENTS, f"padding = {padding} is no id of a vocabulary")
    return replace(ids, side="client")


def position_ids(ids: np.ndarray, padding: int) -> np.ndarray:
    """RoBERTa's positions of tokens [batch, tokens]: padding + 1, padding + 2, ... of those that
    are not padding, wherever they are; that of padding is its own id.
    """
    kept = (ids != padding).astype(np.int64)
    return np.cumsum(kept, axis=1) * kept + padding


declare("nn.position_ids",
        "Positions that count the tokens that are not padding (RoBERTa), by ids or by a mask.",
        "ids", _position_ids_type,
        A("padding", "int", "id of the padding, and its position; 0 for a mask"),
        evaluate=lambda site, ids: position_ids(ids, site.attributes["padding"]))  # fmt: skip


def _padded_type(site: Site) -> TensorType:
    """x [batch, tokens, features] with a mask [batch, tokens]."""
    shape = site.shape()
    require(len(shape) == 3, f"the operand must be [batch, tokens, features], not {shape}")
    rules.check_mask(site.types[1], (shape[0], shape[1]))
    return site.types[0]


def _fill_padding_type(site: Site) -> TensorType:
    require(site.types[0].side == "client", "only the client can fill padding, in the clear")
    found = _padded_type(site)
    token = site.attributes.get("token", 0)
    require(token in (0, -1), "token must be 0 or -1: the first or the last")
    return found


def _fill_padding(site: Site, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A row without a token that the mask keeps stays as it is."""
    kept, tokens = mask.astype(bool), np.arange(mask.shape[1])
    backwards = slice(None, None, -1 if site.attributes["token"] else 1)
    source = tokens[backwards][kept[:, backwards].argmax(axis=1)][:, None]
    chosen = np.where(kept | ~kept.any(axis=1, keepdims=True), tokens, source)
    return np.take_along_axis(x, chosen[:, :, None], axis=1)


declare("nn.fill_padding", "Tokens that a mask drops become copies of a token that it keeps.",
        "x mask", _fill_padding_type,
        A("token", "int", "0: copies of the first kept token; -1: of the last"),
        evaluate=_fill_padding)  # fmt: skip
declare("nn.zero_padding", "Tokens that a mask drops become zeros.", "x mask", _padded_type,
        evaluate=lambda site, x, mask: np.where(mask.astype(bool)[..., None], x, 0)
        .astype(x.dtype))  # fmt: skip


def _softmax(site: Site, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """A query that may see no key (padding on the left, causal) gets weight 0 for all of them."""
    keep = keep_mask(site, scores, mask)
    if keep is None:
        y = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return y / y.sum(axis=-1, keepdims=True)
    highest = np.where(keep, scores, -np.inf).max(axis=-1, keepdims=True)
    y = np.exp(np.where(keep, scores - np.where(np.isinf(highest), 0, highest), -np.inf))
    total = y.sum(axis=-1, keepdims=True)
    return y / np.where(total == 0, 1, total)


declare("nn.softmax", "Softmax over the last axis, with a public mask of keys.", "scores mask?",
        rules.keys_mask, CAUSAL, WINDOW, APPROXIMATION, BASIS, evaluate=_softmax,
        family="softmax")  # fmt: skip


def _last_axis_vector(*names: str) -> Callable[[Site], TensorType]:
    def infer(site: Site) -> TensorType:
        features = rules.last_extent(site)
        for name in names:
            shape = site.constant_shape(name)
            has = f"{name} has shape {shape}, the last axis has {features} elements"
            require(shape == (features,), has)
        return rules.same_as_first(site)

    return infer


def _layer_norm(site: Site, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    inverse = 1.0 / np.sqrt(variance + site.attributes["epsilon"])
    return (centred * inverse * site.like("gamma", x) + site.like("beta", x)).astype(x.dtype)


declare("nn.layer_norm", "Normalisation by mean and variance of the last axis.", "x",
        _last_axis_vector("gamma", "beta"), A("gamma", "symbol", "[features]"),
        A("beta", "symbol", "[features]"), EPSILON, APPROXIMATION, BASIS,
        evaluate=_layer_norm, family="norm")  # fmt: skip


def _rms_norm(site: Site, x: np.ndarray) -> np.ndarray:
    square = np.square(x).mean(axis=-1, keepdims=True)
    normed = x / np.sqrt(square + site.attributes["epsilon"])
    return (normed * site.like("gamma", x)).astype(x.dtype)


declare("nn.rms_norm", "Normalisation by the mean square of the last axis.", "x",
        _last_axis_vector("gamma"), A("gamma", "symbol", "[features]"), EPSILON,
        APPROXIMATION, BASIS, evaluate=_rms_norm, family="norm")  # fmt: skip
for function in ACTIVATIONS.values():
    declare(f"nn.{function.name}", function.summary, "x", rules.same_as_first, APPROXIMATION, BASIS,
            evaluate=lambda site, x, meaning=function.numpy: meaning(x),
            family="activation")  # fmt: skip
