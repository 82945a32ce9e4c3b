"""Ops of the nn level, and the tensor ops that the nn and the poly level share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from atlasc.ir import rules
from atlasc.ir.bounds import MAX_ELEMENTS, is_shape
from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import FINAL_FUNCTIONS
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site, declare, require
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.types import DTYPES, SIDES, TensorType

APPROXIMATION = A("approximation", "dict", "polynomials that replace the function", optional=True)
BASIS = A("basis", "string",
          "what its range rests on: measured, certified (it holds for every input), published, "
          "nominal", optional=True)  # fmt: skip
CAUSAL = A("causal", "bool", "a query sees no later key", optional=True)
QUERY = A("query", "int", "token of the only query (default 0)", optional=True)
FACTOR = A("factor", "float", "the values are multiplied by it (default 1)", optional=True)
CENTRED = A("centred", "bool", "the client subtracts the mean of the last axis", optional=True)
OUTPUT_MAP = (
    A("factor", "scalar or symbol", "the client multiplies by it (default 1)", optional=True),
    A("shift", "scalar or symbol", "the client adds it (default 0)", optional=True),
    A("function", "string", "the client applies it afterwards, along the last axis: "
      + ", ".join(FINAL_FUNCTIONS), optional=True),
)  # fmt: skip
EPSILON = A("epsilon", "float", "added to the variance or mean square")


def _input(site: Site) -> TensorType:
    shape, side, dtype = (site.attributes[name] for name in ("shape", "side", "dtype"))
    known = side in SIDES and dtype in DTYPES
    require(known, f"side must be one of {SIDES} and dtype one of {DTYPES}")
    fits = shape and is_shape(shape)
    require(fits, "shape must have positive extents, and not too many elements")
    return TensorType(tuple(shape), side, dtype)


def _output(site: Site) -> None:
    rules.constant_broadcast("factor", "shift")(site)
    require_function(site)


def require_function(site: Site) -> None:
    """Refuse an output with a function that no client knows."""
    name = site.attributes.get("function")
    known = name is None or name in FINAL_FUNCTIONS
    require(known, f"function must be one of {', '.join(FINAL_FUNCTIONS)}")


def _encrypt_type(site: Site) -> TensorType:
    require(site.types[0].side == "client", "only a client value can be encrypted")
    return TensorType(site.shape(), "server")


def _embedding_type(site: Site) -> TensorType:
    require(site.types[0].dtype == "i64", "ids must be of dtype i64")
    return rules.tensor(site, (*site.shape(), rules.matrix_shape(site, "table")[1]))


def _position_ids_type(site: Site) -> TensorType:
    (ids,) = site.types
    fits = ids.dtype == "i64" and ids.side == "client" and len(ids.shape) == 2
    require(fits, "token ids of the client, [batch, tokens], of dtype i64, are needed")
    padding = site.attributes["padding"]
    require(0 <= padding < MAX_ELEMENTS, f"padding = {padding} is no id of a vocabulary")
    return ids


def _patchify_type(site: Site) -> TensorType:
    shape, patch = site.shape(), site.attributes["patch"]
    whole = len(shape) == 4 and patch >= 1 and not (shape[2] % patch or shape[3] % patch)
    wanted = f"an image [B,C,H,W] whose sides divide by {patch} is needed, not {shape}"
    require(whole, wanted)
    patches = (shape[2] // patch) * (shape[3] // patch) + bool(site.attributes["class_token"])
    return rules.tensor(site, (shape[0], patches, shape[1] * patch * patch))


def _last_axis_vector(*names: str) -> Callable[[Site], TensorType]:
    def infer(site: Site) -> TensorType:
        features = rules.last_extent(site)
        for name in names:
            shape = site.constant_shape(name)
            has = f"{name} has shape {shape}, the last axis has {features} elements"
            require(shape == (features,), has)
        return rules.same_as_first(site)

    return infer


def _linear_type(site: Site) -> TensorType:
    """x[..., in] with weight[out, in] and bias[out]."""
    out, inner = rules.matrix_shape(site, "weight")
    features = rules.last_extent(site)
    require(inner == features, f"weight takes {inner} features, the operand has {features}")
    rules.check_bias(site, out)
    return rules.tensor(site, (*site.shape()[:-1], out))


def _matmul_type(site: Site) -> TensorType:
    """a[..., m, k] · b[..., k, n], or with b[..., n, k] transposed."""
    a, b = site.shape(0), site.shape(1)
    require(len(a) >= 2 and len(b) >= 2, "both operands need at least two axes")
    inner, columns = (b[-1], b[-2]) if site.attributes["transpose_b"] else (b[-2], b[-1])
    require(a[-1] == inner, f"inner extents {a[-1]} and {inner} differ")
    return rules.tensor(site, (*rules.broadcast_shapes(a[:-2], b[:-2]), a[-2], columns))


def _transpose_type(site: Site) -> TensorType:
    order, shape = site.attributes["permutation"], site.shape()
    permutes = sorted(order) == list(range(len(shape)))
    require(permutes, f"permutation {order} does not permute {len(shape)} axes")
    return rules.tensor(site, tuple(shape[axis] for axis in order))


def _reshape_type(site: Site) -> TensorType:
    shape = tuple(site.attributes["shape"])
    fits = shape and is_shape(shape) and math.prod(shape) == math.prod(site.shape())
    require(fits, f"{site.shape()} cannot be reshaped to {shape}")
    return replace(rules.same_as_first(site), shape=shape)


def _axis_of(site: Site) -> int:
    axis, rank = site.attributes["axis"], len(site.shape())
    require(0 <= axis < rank, f"axis = {axis} is not among the {rank} axes (count from 0)")
    return axis


def _without_axis(site: Site) -> TensorType:
    axis, shape = _axis_of(site), site.shape()
    return rules.tensor(site, shape[:axis] + shape[axis + 1 :])


def _mean_type(site: Site) -> TensorType:
    if len(site.types) > 1:
        rules.check_mask(site.types[1], (site.shape()[0], site.shape()[_axis_of(site)]))
        require(site.attributes["axis"] > 0, "a mask has an axis of its own for the batch")
    return _without_axis(site)


def _select_type(site: Site) -> TensorType:
    index, extent = site.attributes["index"], site.shape()[_axis_of(site)]
    require(0 <= index < extent, f"index {index} is outside the axis of {extent} elements")
    return _without_axis(site)


def _repeat_type(site: Site) -> TensorType:
    axis, shape, repeats = _axis_of(site), site.shape(), site.attributes["repeats"]
    require(repeats >= 1, f"repeats = {repeats} must be at least 1")
    return rules.tensor(site, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def _rotary_type(site: Site) -> TensorType:
    """x[..., n, d] with cos and sin tables [n, d]."""
    shape = site.shape()
    require(len(shape) >= 2, f"the operand must end in [tokens, features], it is {shape}")
    for name in ("cos", "sin"):
        table = site.constant_shape(name)
        same = table == tuple(shape[-2:])
        require(same, f"{name} has shape {table}, the operand ends in {shape[-2:]}")
    require(shape[-1] % 2 == 0, "rotary needs an even number of features")
    return rules.same_as_first(site)


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


def mean_weights(site: Site, mask: np.ndarray | None) -> np.ndarray | float:
    """What an element counts in an ``nn.mean`` that is written as a sum, broadcast to the operand:
    its share, times the factor.
    """
    axis, factor = site.attributes["axis"], site.attributes.get("factor", 1.0)
    if mask is None:
        return float(factor) / site.shape()[axis]
    others = [other for other in range(1, len(site.shape())) if other != axis]
    return factor * np.expand_dims(shares(mask), others)


def _mean(site: Site, x: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    if mask is None:
        mean = x.mean(axis=site.attributes["axis"])
        return mean * x.dtype.type(site.attributes.get("factor", 1.0))
    weights = np.asarray(mean_weights(site, mask), x.dtype)
    return (x * weights).sum(axis=site.attributes["axis"])


def _embedding(site: Site, ids: np.ndarray) -> np.ndarray:
    table = site.constant("table", None)
    if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
        raise AtlasError(
            f"an id is outside the vocabulary of {len(table)}",
            why=f"the ids go from {ids.min()} to {ids.max()}",
            remedy="use the tokenizer that belongs to the model",
        )
    return table[ids]


def position_ids(ids: np.ndarray, padding: int) -> np.ndarray:
    """RoBERTa's positions of tokens [batch, tokens]: padding + 1, padding + 2, ... of those that
    are not padding, wherever they are; that of padding is its own id.
    """
    kept = (ids != padding).astype(np.int64)
    return np.cumsum(kept, axis=1) * kept + padding


def _linear(site: Site, x: np.ndarray) -> np.ndarray:
    weight = site.like("weight", x)
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    if "bias" in site.attributes:
        y += site.like("bias", x)
    return y.reshape(*x.shape[:-1], weight.shape[0])


def _reshape(site: Site, x: np.ndarray) -> np.ndarray:
    """The batch axis, where kept, may have another extent than declared."""
    shape = list(site.attributes["shape"])
    if shape[0] == site.shape()[0]:
        shape[0] = x.shape[0]
    return x.reshape(shape)


def _rotary(site: Site, x: np.ndarray) -> np.ndarray:
    """The halves convention of HuggingFace (Su et al. 2021)."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * site.like("cos", x) + turned * site.like("sin", x)


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


def _layer_norm(site: Site, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    inverse = 1.0 / np.sqrt(variance + site.attributes["epsilon"])
    return (centred * inverse * site.like("gamma", x) + site.like("beta", x)).astype(x.dtype)


def _rms_norm(site: Site, x: np.ndarray) -> np.ndarray:
    square = np.square(x).mean(axis=-1, keepdims=True)
    normed = x / np.sqrt(square + site.attributes["epsilon"])
    return (normed * site.like("gamma", x)).astype(x.dtype)


def _patchify(site: Site, image: np.ndarray) -> np.ndarray:
    """[B,C,H,W] to [B,(1+)P,C·p·p], patches row by row; a zero row 0 for the class token."""
    patch = site.attributes["patch"]
    batch, channels, height, width = image.shape
    grid = image.reshape(batch, channels, height // patch, patch, width // patch, patch)
    rows = grid.transpose(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)
    if site.attributes["class_token"]:
        rows = np.concatenate([np.zeros_like(rows[:, :1]), rows], axis=1)
    return rows


declare(
    "nn.input poly.input", "A named input of the program.", "", _input,
    A("name", "name", "name in the data"), A("shape", "ints", "extents, batch first"),
    A("side", "string", "client, server or public"), A("dtype", "string", "f64 or i64"),
    FACTOR, CENTRED,
)  # fmt: skip
declare("nn.output poly.output", "A named result of the program.", "x", _output,
        A("name", "name", "name of the result"), *OUTPUT_MAP)  # fmt: skip
declare("nn.encrypt", "Boundary: the client encrypts, the server goes on.", "x", _encrypt_type,
        evaluate=lambda site, x: x)  # fmt: skip
declare("nn.embedding", "Rows of a table by id.", "ids", _embedding_type,
        A("table", "symbol", "[vocabulary, features]"),
        evaluate=_embedding)  # fmt: skip
declare("nn.position_ids", "Positions that count the tokens that are not padding (RoBERTa).", "ids",
        _position_ids_type, A("padding", "int", "id of the padding, and its position"),
        evaluate=lambda site, ids: position_ids(ids, site.attributes["padding"]))  # fmt: skip
declare("nn.patchify", "Image to patch rows.", "image", _patchify_type,
        A("patch", "int", "side of a patch in pixels"),
        A("class_token", "bool", "a zero row comes first"),
        evaluate=_patchify)  # fmt: skip
declare("nn.linear poly.linear", "x · weightᵀ + bias.", "x", _linear_type,
        A("weight", "symbol", "[out, in]"), A("bias", "symbol", "[out]", optional=True),
        evaluate=_linear, levels=1)  # fmt: skip
declare("nn.add poly.add", "Elementwise sum.", "a b", rules.broadcast,
        evaluate=lambda site, a, b: a + b)  # fmt: skip
declare("nn.add_constant poly.add_constant", "Sum with a constant.", "x",
        rules.constant_broadcast("value"), A("value", "scalar or symbol", "broadcast to x"),
        evaluate=lambda site, x: x + site.like("value", x))  # fmt: skip
declare("nn.mul poly.mul", "Elementwise product.", "a b", rules.broadcast,
        evaluate=lambda site, a, b: a * b, levels=1)  # fmt: skip
declare("nn.scale poly.scale", "Product with a constant.", "x",
        rules.constant_broadcast("factor"), A("factor", "scalar or symbol", "broadcast to x"),
        evaluate=lambda site, x: x * site.like("factor", x), levels=1)  # fmt: skip
declare("nn.matmul poly.matmul", "Batched matrix product.", "a b", _matmul_type,
        A("transpose_b", "bool", "b is given as [..., n, k]"),
        evaluate=lambda site, a, b: a @ (
            b.swapaxes(-1, -2) if site.attributes["transpose_b"] else b),
        levels=1)  # fmt: skip
declare("nn.transpose poly.transpose", "Permutation of the axes.", "x", _transpose_type,
        A("permutation", "ints", "result axis i is operand axis permutation[i]"),
        evaluate=lambda site, x: x.transpose(site.attributes["permutation"]))  # fmt: skip
declare("nn.reshape poly.reshape", "Other extents, same elements.", "x", _reshape_type,
        A("shape", "ints", "extents"),
        evaluate=_reshape)  # fmt: skip
declare("nn.select poly.select", "One index along an axis.", "x", _select_type,
        A("axis", "int", "from 0"), A("index", "int", "from 0"),
        evaluate=lambda site, x: np.take(
            x, site.attributes["index"], axis=site.attributes["axis"]))  # fmt: skip
declare("nn.mean poly.mean", "Mean along an axis, of the tokens that a public mask keeps.",
        "x mask?", _mean_type, A("axis", "int", "from 0"), FACTOR, evaluate=_mean)  # fmt: skip
declare("nn.center poly.center", "x − mean of the last axis.", "x", rules.over_last_axis,
        evaluate=lambda site, x: x - x.mean(axis=-1, keepdims=True), levels=1)  # fmt: skip
declare("nn.repeat poly.repeat", "Repeat each index along an axis.", "x", _repeat_type,
        A("axis", "int", "from 0"), A("repeats", "int", "copies"),
        evaluate=lambda site, x: np.repeat(
            x, site.attributes["repeats"], axis=site.attributes["axis"]))  # fmt: skip
declare("nn.rotary poly.rotary", "Rotary position embedding.", "x", _rotary_type,
        A("cos", "symbol", "[n, d]"), A("sin", "symbol", "[n, d]"),
        evaluate=_rotary, levels=1)  # fmt: skip
declare("nn.softmax", "Softmax over the last axis, with a public mask of keys.", "scores mask?",
        rules.keys_mask, CAUSAL, APPROXIMATION, BASIS, evaluate=_softmax,
        family="softmax")  # fmt: skip
declare("nn.layer_norm", "Normalisation by mean and variance of the last axis.", "x",
        _last_axis_vector("gamma", "beta"), A("gamma", "symbol", "[features]"),
        A("beta", "symbol", "[features]"), EPSILON, APPROXIMATION, BASIS,
        evaluate=_layer_norm, family="norm")  # fmt: skip
declare("nn.rms_norm", "Normalisation by the mean square of the last axis.", "x",
        _last_axis_vector("gamma"), A("gamma", "symbol", "[features]"), EPSILON,
        APPROXIMATION, BASIS, evaluate=_rms_norm, family="norm")  # fmt: skip
for function in ACTIVATIONS.values():
    declare(f"nn.{function.name}", function.summary, "x", rules.same_as_first, APPROXIMATION, BASIS,
            evaluate=lambda site, x, meaning=function.numpy: meaning(x),
            family="activation")  # fmt: skip
