"""Tensor ops that the nn and the poly level share."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from atlasc.ir.bounds import is_shape
from atlasc.ir.final_functions import FINAL_FUNCTIONS
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site, declare, require
from atlasc.ir.ops import rules
from atlasc.ir.ops.masks import LAST, LAST_NEEDS_MASK, last_kept, positions, shares
from atlasc.ir.types import DTYPES, SIDES, TensorType

FACTOR = A("factor", "float", "the values are multiplied by it (default 1)", optional=True)
STATE = A("state", "bool", "the server keeps it from run to run: the next run reads the output of "
          "this name", optional=True)  # fmt: skip
PREFIX = A("prefix", "symbol", "what state holds in the first run: rows of the first tokens, "
           "[batch, heads, tokens, width] (default: none)", optional=True)  # fmt: skip
PADDING = A("padding", "int", "the token id of padding: it stands where attention_mask is 0, and "
            "nowhere else", optional=True)  # fmt: skip
CENTRED = A("centred", "bool", "the client subtracts the mean of the last axis", optional=True)
POSITION = "position"
"""Public input [batch, tokens]: 1 at one token, 0 elsewhere. It is the token of a step, or the last
token of a prompt."""
OUTPUT_MAP = (
    A("factor", "scalar or symbol", "the client multiplies by it (default 1)", optional=True),
    A("shift", "scalar or symbol", "the client adds it (default 0)", optional=True),
    A("function", "string", "the client applies it afterwards, along the last axis: "
      + ", ".join(FINAL_FUNCTIONS), optional=True),
    A("level", "int", "level of its ciphertexts, where another program reads them (default: any)",
      optional=True),
)  # fmt: skip


def _input(site: Site) -> TensorType:
    shape, side, dtype = (site.attributes[name] for name in ("shape", "side", "dtype"))
    known = side in SIDES and dtype in DTYPES
    require(known, f"side must be one of {SIDES} and dtype one of {DTYPES}")
    fits = shape and is_shape(shape)
    require(fits, "shape must have positive extents, and not too many elements")
    kept = side == "server" or not site.attributes.get("state", False)
    require(kept, "only what is encrypted on the server can be its state")
    check_prefix(site, tuple(shape))
    ids = (side, dtype) == ("client", "i64") and 0 <= site.attributes.get("padding", 0) < 2**63
    require(ids or "padding" not in site.attributes, "only token ids of the client have padding")
    return TensorType(tuple(shape), side, dtype)


def check_prefix(site: Site, shape: tuple[int, ...]) -> None:
    """Check that rows of the first tokens are some of a state [batch, heads, tokens, width]."""
    if "prefix" not in site.attributes:
        return
    require(site.attributes.get("state"), "only state has rows of the first tokens")
    rows = site.constant_shape("prefix")
    others = len(rows) == len(shape) == 4 and (*rows[:2], rows[3]) == (*shape[:2], shape[3])
    require(others and 0 < rows[2] < shape[2], f"prefix has shape {rows}, the state has {shape}")


declare(
    "nn.input poly.input", "A named input of the program.", "", _input,
    A("name", "name", "name in the data"), A("shape", "ints", "extents, batch first"),
    A("side", "string", "client, server or public"), A("dtype", "string", "f64 or i64"),
    FACTOR, CENTRED, STATE, PREFIX, PADDING,
)  # fmt: skip


def _output(site: Site) -> None:
    rules.constant_broadcast("factor", "shift")(site)
    require_function(site)
    require_level(site)


def require_function(site: Site) -> None:
    """Refuse an output with a function that no client knows."""
    name = site.attributes.get("function")
    known = name is None or name in FINAL_FUNCTIONS
    require(known, f"function must be one of {', '.join(FINAL_FUNCTIONS)}")


def require_level(site: Site) -> None:
    """Refuse an output at a level below 0."""
    level = site.attributes.get("level", 0)
    require(level >= 0, f"there is no level {level}")


declare("nn.output poly.output", "A named result of the program.", "x", _output,
        A("name", "name", "name of the result"), *OUTPUT_MAP)  # fmt: skip


def _linear_type(site: Site) -> TensorType:
    """x[..., in] with weight[out, in] and bias[out]."""
    out, inner = rules.matrix_shape(site, "weight")
    features = rules.last_extent(site)
    require(inner == features, f"weight takes {inner} features, the operand has {features}")
    rules.check_bias(site, out)
    return rules.tensor(site, (*site.shape()[:-1], out))


def _linear(site: Site, x: np.ndarray) -> np.ndarray:
    weight = site.like("weight", x)
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    if "bias" in site.attributes:
        y += site.like("bias", x)
    return y.reshape(*x.shape[:-1], weight.shape[0])


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


def _matmul_type(site: Site) -> TensorType:
    """a[..., m, k] · b[..., k, n], or with b[..., n, k] transposed."""
    a, b = site.shape(0), site.shape(1)
    require(len(a) >= 2 and len(b) >= 2, "both operands need at least two axes")
    inner, columns = (b[-1], b[-2]) if site.attributes["transpose_b"] else (b[-2], b[-1])
    require(a[-1] == inner, f"inner extents {a[-1]} and {inner} differ")
    return rules.tensor(site, (*rules.broadcast_shapes(a[:-2], b[:-2]), a[-2], columns))


declare("nn.matmul poly.matmul", "Batched matrix product.", "a b", _matmul_type,
        A("transpose_b", "bool", "b is given as [..., n, k]"),
        evaluate=lambda site, a, b: a @ (
            b.swapaxes(-1, -2) if site.attributes["transpose_b"] else b),
        levels=1)  # fmt: skip


def _transpose_type(site: Site) -> TensorType:
    order, shape = site.attributes["permutation"], site.shape()
    permutes = sorted(order) == list(range(len(shape)))
    require(permutes, f"permutation {order} does not permute {len(shape)} axes")
    return rules.tensor(site, tuple(shape[axis] for axis in order))


declare("nn.transpose poly.transpose", "Permutation of the axes.", "x", _transpose_type,
        A("permutation", "ints", "result axis i is operand axis permutation[i]"),
        evaluate=lambda site, x: x.transpose(site.attributes["permutation"]))  # fmt: skip


def _reshape_type(site: Site) -> TensorType:
    shape = tuple(site.attributes["shape"])
    fits = shape and is_shape(shape) and math.prod(shape) == math.prod(site.shape())
    require(fits, f"{site.shape()} cannot be reshaped to {shape}")
    return replace(rules.same_as_first(site), shape=shape)


def _reshape(site: Site, x: np.ndarray) -> np.ndarray:
    """The batch axis, where kept, may have another extent than declared."""
    shape = list(site.attributes["shape"])
    if shape[0] == site.shape()[0]:
        shape[0] = x.shape[0]
    return x.reshape(shape)


declare("nn.reshape poly.reshape", "Other extents, same elements.", "x", _reshape_type,
        A("shape", "ints", "extents"),
        evaluate=_reshape)  # fmt: skip


def _axis_of(site: Site) -> int:
    axis, rank = site.attributes["axis"], len(site.shape())
    require(0 <= axis < rank, f"axis = {axis} is not among the {rank} axes (count from 0)")
    return axis


def _without_axis(site: Site) -> TensorType:
    axis, shape = _axis_of(site), site.shape()
    return rules.tensor(site, shape[:axis] + shape[axis + 1 :])


def _select_type(site: Site) -> TensorType:
    index, extent = site.attributes["index"], site.shape()[_axis_of(site)]
    require(0 <= index < extent, f"index {index} is outside the axis of {extent} elements")
    return _without_axis(site)


declare("nn.select poly.select", "One index along an axis.", "x", _select_type,
        A("axis", "int", "from 0"), A("index", "int", "from 0"),
        evaluate=lambda site, x: np.take(
            x, site.attributes["index"], axis=site.attributes["axis"]))  # fmt: skip


def _mean_type(site: Site) -> TensorType:
    if len(site.types) > 1:
        rules.check_mask(site.types[1], (site.shape()[0], site.shape()[_axis_of(site)]))
        require(site.attributes["axis"] > 0, "a mask has an axis of its own for the batch")
    require(not site.attributes.get("last") or len(site.types) > 1, LAST_NEEDS_MASK)
    return _without_axis(site)


def mean_weights(site: Site, mask: np.ndarray | None) -> np.ndarray | float:
    """What an element counts in an ``nn.mean`` that is written as a sum, broadcast to the operand:
    its share, times the factor.
    """
    axis, factor = site.attributes["axis"], site.attributes.get("factor", 1.0)
    if mask is None:
        return float(factor) / site.shape()[axis]
    others = [other for other in range(1, len(site.shape())) if other != axis]
    weights = last_kept(mask) if site.attributes.get("last") else shares(mask)
    return factor * np.expand_dims(weights, others)


def _mean(site: Site, x: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    if mask is None:
        mean = x.mean(axis=site.attributes["axis"])
        return mean * x.dtype.type(site.attributes.get("factor", 1.0))
    weights = np.asarray(mean_weights(site, mask), x.dtype)
    return (x * weights).sum(axis=site.attributes["axis"])


declare("nn.mean poly.mean",
        "Mean along an axis, of the tokens that a public mask keeps, or of the last of these.",
        "x mask?", _mean_type, A("axis", "int", "from 0"), FACTOR, LAST,
        evaluate=_mean)  # fmt: skip
declare("nn.center poly.center", "x − mean of the last axis.", "x", rules.over_last_axis,
        evaluate=lambda site, x: x - x.mean(axis=-1, keepdims=True), levels=1)  # fmt: skip


def _add_positions_type(site: Site) -> TensorType:
    scores = rules.keys_mask(site)
    rules.check_slopes(site, scores.shape[1])
    return scores


def _add_positions(site: Site, scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    slopes = site.like("slopes", scores)[:, None, None]
    return scores + slopes * positions(mask)[:, None, None, :].astype(scores.dtype)


declare("nn.add_positions poly.add_positions",
        "Scores plus a slope times the visible keys before each key (ALiBi, Press et al. 2022).",
        "scores mask", _add_positions_type, A("slopes", "symbol", "[heads]"),
        evaluate=_add_positions)  # fmt: skip


def _repeat_type(site: Site) -> TensorType:
    axis, shape, repeats = _axis_of(site), site.shape(), site.attributes["repeats"]
    require(repeats >= 1, f"repeats = {repeats} must be at least 1")
    return rules.tensor(site, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


declare("nn.repeat poly.repeat", "Repeat each index along an axis.", "x", _repeat_type,
        A("axis", "int", "from 0"), A("repeats", "int", "copies"),
        evaluate=lambda site, x: np.repeat(
            x, site.attributes["repeats"], axis=site.attributes["axis"]))  # fmt: skip


def _at_tokens(site: Site) -> TensorType:
    """x [batch, heads, 1 or tokens, width] with a public mask [batch, tokens]."""
    shape = site.shape()
    require(len(shape) == 4, f"the operand must be [batch, heads, tokens, width], not {shape}")
    tokens = rules.check_position(site, 1, shape[0])
    require(shape[2] in (1, tokens), f"{shape[2]} tokens cannot lie at {tokens} tokens")
    return rules.tensor(site, (*shape[:2], tokens, shape[3]))


declare("nn.at_tokens poly.at_tokens",
        "x at the tokens that a public mask keeps, 0 at the others; a single token is copied to "
        "all that it keeps.", "x mask", _at_tokens,
        evaluate=lambda site, x, mask: x * mask.astype(bool)[:, None, :, None],
        levels=1)  # fmt: skip


def _rotary_type(site: Site) -> TensorType:
    """x[..., n, d] with cos and sin tables [n, d]; or x[batch, heads, 1, d] with a public position
    [batch, n], and tables of all n.
    """
    shape = site.shape()
    require(len(shape) >= 2, f"the operand must end in [tokens, features], it is {shape}")
    wanted = tuple(shape[-2:])
    if len(site.types) > 1:
        one = len(shape) == 4 and shape[2] == 1
        require(one, f"a position is that of one token [batch, heads, 1, width], not of {shape}")
        wanted = (rules.check_position(site, 1, shape[0]), shape[-1])
    for name in ("cos", "sin"):
        table = site.constant_shape(name)
        require(table == wanted, f"{name} has shape {table}, not {wanted}")
    require(shape[-1] % 2 == 0, "rotary needs an even number of features")
    return rules.same_as_first(site)


def _rotary(site: Site, x: np.ndarray, position: np.ndarray | None = None) -> np.ndarray:
    """The halves convention of HuggingFace (Su et al. 2021)."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    cos, sin = rotary_tables(site, x, position)
    return x * cos + turned * sin


def rotary_tables(
    site: Site, like: np.ndarray, position: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and sines of an ``nn.rotary``, of the type of an array: [n, d], or of the token
    that a position [batch, n] keeps, [batch, 1, 1, d].
    """
    cos, sin = site.like("cos", like), site.like("sin", like)
    if position is None:
        return cos, sin
    rows = position.astype(like.dtype)[:, None, None]
    return rows @ cos, rows @ sin


declare("nn.rotary poly.rotary",
        "Rotary position embedding; with a position, a public mask that keeps one token, that of "
        "this token.", "x position?", _rotary_type,
        A("cos", "symbol", "[n, d]"), A("sin", "symbol", "[n, d]"),
        evaluate=_rotary, levels=1)  # fmt: skip
