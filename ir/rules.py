"""Result-type rules shared by the op declarations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from atlasc.ir.bounds import MAX_TIMES, is_shape
from atlasc.ir.opdef import RuleError, Site
from atlasc.ir.types import Side, TensorType


def joint_side(site: Site) -> Side:
    """Side of a result: encrypted if any operand is, else the client's if any operand is."""
    sides = {operand.side for operand in site.types}
    return "server" if "server" in sides else "client" if "client" in sides else "public"


def tensor(site: Site, shape: tuple[int, ...]) -> TensorType:
    """Float tensor of a shape on the side that the operands decide."""
    return TensorType(tuple(int(n) for n in shape), joint_side(site))


def last_extent(site: Site) -> int:
    """Extent of the operand's last axis."""
    if not site.shape():
        raise RuleError("the operand has no axes")
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


def constant_broadcast(name: str) -> Callable[[Site], TensorType]:
    """Rule of an op whose constant attribute must broadcast to its operand's shape."""

    def infer(site: Site) -> TensorType:
        result = broadcast(site, site.constant_shape(name))
        if result.shape != tuple(site.shape()):
            raise RuleError(
                f"{name} of shape {site.constant_shape(name)} does not broadcast to {site.shape()}"
            )
        return result

    return infer


def last_axis_vector(*names: str) -> Callable[[Site], TensorType]:
    """Rule of an op whose constants are vectors along the last axis."""

    def infer(site: Site) -> TensorType:
        features = last_extent(site)
        for name in names:
            if site.constant_shape(name) != (features,):
                raise RuleError(
                    f"{name} has shape {site.constant_shape(name)}, the last axis has "
                    f"{features} elements"
                )
        return same_as_first(site)

    return infer


def linear(site: Site) -> TensorType:
    """x[..., in] with weight[out, in] and bias[out]."""
    out, inner = matrix_shape(site, "weight")
    if inner != last_extent(site):
        raise RuleError(f"weight takes {inner} features, the operand has {site.shape()[-1]}")
    if "bias" in site.attributes and site.constant_shape("bias") != (out,):
        raise RuleError(f"bias has shape {site.constant_shape('bias')}, not ({out},)")
    return tensor(site, (*site.shape()[:-1], out))


def matrix_shape(site: Site, name: str) -> tuple[int, int]:
    """Shape of a matrix attribute."""
    shape = site.constant_shape(name)
    if len(shape) != 2:
        raise RuleError(f"{name} must be a matrix, not of shape {shape}")
    return shape[0], shape[1]


def matmul(site: Site) -> TensorType:
    """Batched product a[..., m, k] · b[..., k, n], or with b[..., n, k] transposed."""
    a, b = site.shape(0), site.shape(1)
    if len(a) < 2 or len(b) < 2:
        raise RuleError("both operands need at least two axes")
    inner, columns = (b[-1], b[-2]) if site.attributes["transpose_b"] else (b[-2], b[-1])
    if a[-1] != inner:
        raise RuleError(f"inner extents {a[-1]} and {inner} differ")
    return tensor(site, (*_broadcast(a[:-2], b[:-2]), a[-2], columns))


def transpose(site: Site) -> TensorType:
    """Permutation of all axes."""
    order, shape = site.attributes["permutation"], site.shape()
    if sorted(order) != list(range(len(shape))):
        raise RuleError(f"permutation {order} does not permute {len(shape)} axes")
    return tensor(site, tuple(shape[axis] for axis in order))


def reshape(site: Site) -> TensorType:
    """New extents with the same number of elements."""
    shape = tuple(site.attributes["shape"])
    if not is_shape(shape) or not shape or math.prod(shape) != math.prod(site.shape()):
        raise RuleError(f"{site.shape()} cannot be reshaped to {shape}")
    return replace(same_as_first(site), shape=shape)


def axis_of(site: Site, name: str = "axis") -> int:
    """A checked, non-negative axis attribute."""
    axis, rank = site.attributes[name], len(site.shape())
    if not 0 <= axis < rank:
        raise RuleError(f"{name} = {axis} is not among the {rank} axes (count from 0)")
    return axis


def mean(site: Site) -> TensorType:
    """Mean along an axis, the axis removed."""
    axis, shape = axis_of(site), site.shape()
    return tensor(site, shape[:axis] + shape[axis + 1 :])


def select(site: Site) -> TensorType:
    """One index along an axis, the axis removed."""
    result, index, extent = mean(site), site.attributes["index"], site.shape()[axis_of(site)]
    if not 0 <= index < extent:
        raise RuleError(f"index {index} is outside the axis of {extent} elements")
    return result


def repeat(site: Site) -> TensorType:
    """Every index along an axis repeated, neighbours together."""
    axis, shape = axis_of(site), site.shape()
    repeats = site.attributes["repeats"]
    if repeats < 1:
        raise RuleError(f"repeats = {repeats} must be at least 1")
    return tensor(site, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def check_times(site: Site) -> None:
    """Refuse doublings that no number survives."""
    if not 0 <= site.attributes["times"] <= MAX_TIMES:
        raise RuleError(f"times = {site.attributes['times']} is not from 0 to {MAX_TIMES}")


def check_query(site: Site, tokens: int) -> None:
    """Refuse a query that is none of the tokens."""
    if not 0 <= (query := site.attributes.get("query", 0)) < tokens:
        raise RuleError(f"query {query} is none of {tokens} tokens")


def rotary(site: Site) -> TensorType:
    """x[..., n, d] with cos and sin tables [n, d]."""
    if len(site.shape()) < 2:
        raise RuleError(f"the operand must end in [tokens, features], it is {site.shape()}")
    for name in ("cos", "sin"):
        if site.constant_shape(name) != tuple(site.shape()[-2:]):
            raise RuleError(
                f"{name} has shape {site.constant_shape(name)}, the operand ends in "
                f"{site.shape()[-2:]}"
            )
    if site.shape()[-1] % 2:
        raise RuleError("rotary needs an even number of features")
    return same_as_first(site)


def keys_mask(site: Site) -> TensorType:
    """scores [B,H,queries,keys] with an optional public mask [B,keys]; type of the scores."""
    shape = site.shape()
    if len(shape) != 4:
        raise RuleError(f"scores must be [batch, heads, queries, keys], not {shape}")
    if len(site.types) > 1 and site.shape(1) != (shape[0], shape[3]):
        raise RuleError(f"mask has shape {site.shape(1)}, not {(shape[0], shape[3])}")
    if len(site.types) > 1 and site.types[1].side == "server":
        raise RuleError("the mask must be public or on the client, not encrypted")
    check_query(site, shape[3])
    return TensorType(shape, site.types[0].side)
