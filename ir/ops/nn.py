"""Ops of the nn level, and the tensor ops that the nn and the poly level share."""

from __future__ import annotations

import numpy as np

from atlasc.ir import functions, rules
from atlasc.ir.bounds import is_shape
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site, declare, require
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.types import DTYPES, SIDES, TensorType

APPROXIMATION = A("approximation", "dict", "polynomials that replace the function", optional=True)
CAUSAL = A("causal", "bool", "a query sees no later key", optional=True)
QUERY = A("query", "int", "token of the only query (default 0)", optional=True)
FACTOR = A("factor", "float", "the values are multiplied by it (default 1)", optional=True)
CENTRED = A("centred", "bool", "the client subtracts the mean of the last axis", optional=True)
OUTPUT_MAP = (
    A("factor", "scalar or symbol", "the client multiplies by it (default 1)", optional=True),
    A("shift", "scalar or symbol", "the client adds it (default 0)", optional=True),
)
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


def _encrypt(site: Site) -> TensorType:
    require(site.types[0].side == "client", "only a client value can be encrypted")
    return TensorType(site.shape(), "server")


def _embedding(site: Site) -> TensorType:
    require(site.types[0].dtype == "i64", "ids must be of dtype i64")
    return rules.tensor(site, (*site.shape(), rules.matrix_shape(site, "table")[1]))


def _patchify(site: Site) -> TensorType:
    shape, patch = site.shape(), site.attributes["patch"]
    whole = len(shape) == 4 and patch >= 1 and not (shape[2] % patch or shape[3] % patch)
    wanted = f"an image [B,C,H,W] whose sides divide by {patch} is needed, not {shape}"
    require(whole, wanted)
    patches = (shape[2] // patch) * (shape[3] // patch) + bool(site.attributes["class_token"])
    return rules.tensor(site, (shape[0], patches, shape[1] * patch * patch))


declare(
    "nn.input poly.input", "A named input of the program.", "", _input,
    A("name", "name", "name in the data"), A("shape", "ints", "extents, batch first"),
    A("side", "string", "client, server or public"), A("dtype", "string", "f64 or i64"),
    FACTOR, CENTRED,
)  # fmt: skip
declare("nn.output poly.output", "A named result of the program.", "x", _output,
        A("name", "name", "name of the result"), *OUTPUT_MAP)  # fmt: skip
declare("nn.encrypt", "Boundary: the client encrypts, the server goes on.", "x", _encrypt,
        evaluate=lambda site, x: x)  # fmt: skip
declare("nn.embedding", "Rows of a table by id.", "ids", _embedding,
        A("table", "symbol", "[vocabulary, features]"),
        evaluate=functions.embedding)  # fmt: skip
declare("nn.patchify", "Image to patch rows.", "image", _patchify,
        A("patch", "int", "side of a patch in pixels"),
        A("class_token", "bool", "a zero row comes first"),
        evaluate=functions.patchify)  # fmt: skip
declare("nn.linear poly.linear", "x · weightᵀ + bias.", "x", rules.linear,
        A("weight", "symbol", "[out, in]"), A("bias", "symbol", "[out]", optional=True),
        evaluate=functions.linear, levels=1)  # fmt: skip
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
declare("nn.matmul poly.matmul", "Batched matrix product.", "a b", rules.matmul,
        A("transpose_b", "bool", "b is given as [..., n, k]"),
        evaluate=lambda site, a, b: a @ (
            b.swapaxes(-1, -2) if site.attributes["transpose_b"] else b),
        levels=1)  # fmt: skip
declare("nn.transpose poly.transpose", "Permutation of the axes.", "x", rules.transpose,
        A("permutation", "ints", "result axis i is operand axis permutation[i]"),
        evaluate=lambda site, x: x.transpose(site.attributes["permutation"]))  # fmt: skip
declare("nn.reshape poly.reshape", "Other extents, same elements.", "x", rules.reshape,
        A("shape", "ints", "extents"),
        evaluate=functions.reshape)  # fmt: skip
declare("nn.select poly.select", "One index along an axis.", "x", rules.select,
        A("axis", "int", "from 0"), A("index", "int", "from 0"),
        evaluate=lambda site, x: np.take(
            x, site.attributes["index"], axis=site.attributes["axis"]))  # fmt: skip
declare("nn.mean poly.mean", "Mean along an axis.", "x", rules.mean, A("axis", "int", "from 0"),
        FACTOR, evaluate=lambda site, x: x.mean(axis=site.attributes["axis"])
        * x.dtype.type(site.attributes.get("factor", 1.0)))  # fmt: skip
declare("nn.center poly.center", "x − mean of the last axis.", "x", rules.over_last_axis,
        evaluate=lambda site, x: x - x.mean(axis=-1, keepdims=True), levels=1)  # fmt: skip
declare("nn.repeat poly.repeat", "Repeat each index along an axis.", "x", rules.repeat,
        A("axis", "int", "from 0"), A("repeats", "int", "copies"),
        evaluate=lambda site, x: np.repeat(
            x, site.attributes["repeats"], axis=site.attributes["axis"]))  # fmt: skip
declare("nn.rotary poly.rotary", "Rotary position embedding.", "x", rules.rotary,
        A("cos", "symbol", "[n, d]"), A("sin", "symbol", "[n, d]"),
        evaluate=functions.rotary, levels=1)  # fmt: skip
declare("nn.softmax", "Softmax over the last axis, with a public mask of keys.", "scores mask?",
        rules.keys_mask, CAUSAL, APPROXIMATION, evaluate=functions.softmax,
        family="softmax")  # fmt: skip
declare("nn.layer_norm", "Normalisation by mean and variance of the last axis.", "x",
        rules.last_axis_vector("gamma", "beta"), A("gamma", "symbol", "[features]"),
        A("beta", "symbol", "[features]"), EPSILON, APPROXIMATION,
        evaluate=functions.layer_norm, family="norm")  # fmt: skip
declare("nn.rms_norm", "Normalisation by the mean square of the last axis.", "x",
        rules.last_axis_vector("gamma"), A("gamma", "symbol", "[features]"), EPSILON, APPROXIMATION,
        evaluate=functions.rms_norm, family="norm")  # fmt: skip
for function in ACTIVATIONS.values():
    declare(f"nn.{function.name}", function.summary, "x", rules.same_as_first, APPROXIMATION,
            evaluate=lambda site, x, meaning=function.numpy: meaning(x),
            family="activation")  # fmt: skip
