"""Result-type rules shared by the op declarations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from atlasc.ir.bounds import MAX_TIMES, is_shape
from atlasc.ir.opdef import RuleError, Site, require
from atlasc.ir.types import Side, TensorType


def tensor(site: Site, shape: tuple[int, ...]) -> TensorType:
    """Float tensor: encrypted if any operand is, else the client's if any operand is."""
    sides = {operand.side for operand in site.types}
    side: Side = "server" if "server" in sides else "client" if "client" in sides else "public"
    return TensorType(tuple(int(n) for n in shape), side)


def last_extent(site: Site) -> int:
    """Extent of the operand's last axis."""
    require(site.shape(), "the operand has no axes")
    return site.shape()[-1]


def over_last_axis(site: Site) -> TensorType:
    """Type of the first operand, which has a last axis."""
    last_extent(site)
    return same_as_first(site)


def same_as_first(site: Site) -> TensorType:
    """Type of the first operand, on the joint side."""
    return tensor(site, site.shape())


def broadcast(site: Site, *shapes: tuple[int, ...]) -> TensorType:
    """NumPy broadcasting of the operand shapes and of further shapes."""
    return tensor(site, _broadcast(*(operand.shape for operand in site.types), *shapes))


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise RuleError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def constant_broadcast(*names: str) -> Callable[[Site], TensorType]:
    """Rule of an op whose constants, where given, must broadcast to its operand's shape."""

    def infer(site: Site) -> TensorType:
        for name in (name for name in names if name in site.attributes):
            shape = site.constant_shape(name)
            fits = broadcast(site, shape).shape == tuple(site.shape())
            require(fits, f"{name} of shape {shape} does not broadcast to {site.shape()}")
        return same_as_first(site)

    return infer


def last_axis_vector(*names: str) -> Callable[[Site], TensorType]:
    """Rule of an op whose constants are vectors along the last axis."""

    def infer(site: Site) -> TensorType:
        features = last_extent(site)
        for name in names:
            shape = site.constant_shape(name)
            has = f"{name} has shape {shape}, the last axis has {features} elements"
            require(shape == (features,), has)
        return same_as_first(site)

    return infer


def linear(site: Site) -> TensorType:
    """x[..., in] with weight[out, in] and bias[out]."""
    out, inner = matrix_shape(site, "weight")
    features = last_extent(site)
    require(inner == features, f"weight takes {inner} features, the operand has {features}")
    check_bias(site, out)
    return tensor(site, (*site.shape()[:-1], out))


def check_bias(site: Site, outputs: int) -> None:
    """Refuse a bias of another shape than ``[outputs]``."""
    bias = site.constant_shape("bias") if "bias" in site.attributes else (outputs,)
    require(bias == (outputs,), f"bias has shape {bias}, not ({outputs},)")


def matrix_shape(site: Site, name: str) -> tuple[int, int]:
    """Shape of a matrix attribute."""
    shape = site.constant_shape(name)
    require(len(shape) == 2, f"{name} must be a matrix, not of shape {shape}")
    return shape[0], shape[1]


def matmul(site: Site) -> TensorType:
    """Batched product a[..., m, k] · b[..., k, n], or with b[..., n, k] transposed."""
    a, b = site.shape(0), site.shape(1)
    require(len(a) >= 2 and len(b) >= 2, "both operands need at least two axes")
    inner, columns = (b[-1], b[-2]) if site.attributes["transpose_b"] else (b[-2], b[-1])
    require(a[-1] == inner, f"inner extents {a[-1]} and {inner} differ")
    return tensor(site, (*_broadcast(a[:-2], b[:-2]), a[-2], columns))


def transpose(site: Site) -> TensorType:
    """Permutation of all axes."""
    order, shape = site.attributes["permutation"], site.shape()
    permutes = sorted(order) == list(range(len(shape)))
    require(permutes, f"permutation {order} does not permute {len(shape)} axes")
    return tensor(site, tuple(shape[axis] for axis in order))


def reshape(site: Site) -> TensorType:
    """New extents with the same number of elements."""
    shape = tuple(site.attributes["shape"])
    fits = shape and is_shape(shape) and math.prod(shape) == math.prod(site.shape())
    require(fits, f"{site.shape()} cannot be reshaped to {shape}")
    return replace(same_as_first(site), shape=shape)


def axis_of(site: Site) -> int:
    """The checked, non-negative attribute ``axis``."""
    axis, rank = site.attributes["axis"], len(site.shape())
    require(0 <= axis < rank, f"axis = {axis} is not among the {rank} axes (count from 0)")
    return axis


def mean(site: Site) -> TensorType:
    """Mean along an axis, the axis removed."""
    axis, shape = axis_of(site), site.shape()
    return tensor(site, shape[:axis] + shape[axis + 1 :])


def select(site: Site) -> TensorType:
    """One index along an axis, the axis removed."""
    result, index, extent = mean(site), site.attributes["index"], site.shape()[axis_of(site)]
    require(0 <= index < extent, f"index {index} is outside the axis of {extent} elements")
    return result


def repeat(site: Site) -> TensorType:
    """Every index along an axis repeated, neighbours together."""
    axis, shape, repeats = axis_of(site), site.shape(), site.attributes["repeats"]
    require(repeats >= 1, f"repeats = {repeats} must be at least 1")
    return tensor(site, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def check_times(site: Site) -> None:
    """Refuse doublings that no number survives."""
    times = site.attributes["times"]
    require(0 <= times <= MAX_TIMES, f"times = {times} is not from 0 to {MAX_TIMES}")


def check_query(site: Site, tokens: int) -> None:
    """Refuse a query that is none of the tokens."""
    query = site.attributes.get("query", 0)
    require(0 <= query < tokens, f"query {query} is none of {tokens} tokens")


def rotary(site: Site) -> TensorType:
    """x[..., n, d] with cos and sin tables [n, d]."""
    shape = site.shape()
    require(len(shape) >= 2, f"the operand must end in [tokens, features], it is {shape}")
    for name in ("cos", "sin"):
        table = site.constant_shape(name)
        same = table == tuple(shape[-2:])
        require(same, f"{name} has shape {table}, the operand ends in {shape[-2:]}")
    require(shape[-1] % 2 == 0, "rotary needs an even number of features")
    return same_as_first(site)


def keys_mask(site: Site) -> TensorType:
    """scores [B,H,queries,keys] with an optional public mask [B,keys]; type of the scores."""
    shape = site.shape()
    require(len(shape) == 4, f"scores must be [batch, heads, queries, keys], not {shape}")
    for mask in site.types[1:]:
        wanted = (shape[0], shape[3])
        require(mask.shape == wanted, f"mask has shape {mask.shape}, not {wanted}")
        require(mask.side != "server", "the mask must be public or on the client, not encrypted")
    check_query(site, shape[3])
    return TensorType(shape, site.types[0].side)
