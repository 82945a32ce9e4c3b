"""Derivatives of a poly module backwards: of a weighted sum of its outputs by all its values.

One run forwards and one back give what a finite difference for each value would take a run each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.polynomial import chebyshev as sums

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site
from atlasc.ir.ops.nn import keep_mask
from atlasc.passes.approximation.fits.chebyshev import evaluate
from atlasc.passes.simulation.poly_values import interpret_poly

Array = np.ndarray
Cotangents = tuple[Array | None, ...]
"""Derivatives by each operand, None for one that takes none (a mask)."""
Rule = Callable[[Site, Array, tuple[Array, ...]], Cotangents]
"""(site, derivative by the result, operands) to the derivatives by the operands."""


class Tape:
    """One run of a poly module forwards in a float type; ``outputs`` by name, and all values, are
    kept.
    """

    def __init__(self, module: Module, inputs: Mapping[str, Array], dtype: type) -> None:
        self.module = module
        self._values: dict[Op, Array] = {}
        self.outputs = interpret_poly(module, inputs, dtype, observe=self._values.__setitem__)

    def greatest_mean(self, op: Op) -> float:
        """Of the absolute means of the inputs' values of an op's result ``[inputs, ...]``."""
        values = self._values[op]
        return float(np.abs(values.reshape(len(values), -1).mean(axis=1)).max())

    def pull_back(self, weights: Mapping[str, Array]) -> dict[Op, Array]:
        """Derivatives of Σ weight · output by the result of each op that an output depends on."""
        found: dict[Value, Array] = {}
        for op in reversed(self.module.ops):
            if op.name == "poly.output":
                site = op.site(self.module.symbols)
                weight = weights[op.attributes["name"]]
                if "factor" in op.attributes:
                    weight = weight * site.like("factor", weight)
                _add(found, op.operands[0], weight)
            elif op.result in found and op.name in RULES:
                arrays = tuple(self._values[operand.op] for operand in op.operands)
                parts = RULES[op.name](op.site(self.module.symbols), found[op.result], arrays)
                for operand, part in zip(op.operands, parts, strict=False):
                    if part is not None:
                        _add(found, operand, part)
        return {value.op: derivative for value, derivative in found.items()}


def _add(found: dict[Value, Array], value: Value, part: Array) -> None:
    found[value] = found[value] + part if value in found else part


def _unbroadcast(derivative: Array, like: Array) -> Array:
    """Summed over the axes along which an operand was broadcast."""
    shape = (1,) * (derivative.ndim - like.ndim) + like.shape
    axes = tuple(a for a, n in enumerate(shape) if n == 1 and derivative.shape[a] != 1)
    return derivative.sum(axis=axes).reshape(like.shape) if axes else derivative.reshape(like.shape)


def _matmul(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    a, b = x
    if site.attributes["transpose_b"]:
        return d @ b, np.swapaxes(d, -1, -2) @ a
    return d @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ d


def _select(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    result = np.zeros_like(x[0])
    axis, index = site.attributes["axis"], site.attributes["index"]
    result[(slice(None),) * axis + (index,)] = d
    return (result,)


def _mean(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    axis = site.attributes["axis"]
    share = site.attributes.get("factor", 1.0) / x[0].shape[axis]
    spread = np.expand_dims(d * d.dtype.type(share), axis)
    return (np.broadcast_to(spread, x[0].shape),)


def _repeat(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    axis, shape = site.attributes["axis"], x[0].shape
    apart = d.reshape(*shape[: axis + 1], -1, *shape[axis + 1 :])
    return (apart.sum(axis=axis + 1),)


def _rotary(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    turned = d * site.like("sin", d)
    half = d.shape[-1] // 2
    back = np.concatenate([turned[..., half:], -turned[..., :half]], axis=-1)
    return (d * site.like("cos", d) + back,)


def _masked(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    keep = keep_mask(site, *x)
    return (d if keep is None else np.where(keep, d, np.zeros((), d.dtype)),)


def _chebyshev(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    low, high = site.attributes["domain"]
    slopes = sums.chebder(site.constant("coefficients"), axis=-1) * (2.0 / (high - low))
    return (d * evaluate(x[0], slopes, (low, high)),)


RULES: dict[str, Rule] = {
    "poly.linear": lambda site, d, x: (d @ site.like("weight", d),),
    "poly.add": lambda site, d, x: (_unbroadcast(d, x[0]), _unbroadcast(d, x[1])),
    "poly.sub": lambda site, d, x: (_unbroadcast(d, x[0]), -_unbroadcast(d, x[1])),
    "poly.mul": lambda site, d, x: (_unbroadcast(d * x[1], x[0]), _unbroadcast(d * x[0], x[1])),
    "poly.square": lambda site, d, x: (2 * d * x[0],),
    "poly.double": lambda site, d, x: (d * d.dtype.type(2 ** site.attributes["times"]),),
    "poly.add_constant": lambda site, d, x: (d,),
    "poly.scale": lambda site, d, x: (d * site.like("factor", d),),
    "poly.affine": lambda site, d, x: (d * site.like("scale", d),),
    "poly.row_sum": lambda site, d, x: (np.broadcast_to(d, x[0].shape),),
    "poly.center": lambda site, d, x: (d - d.mean(axis=-1, keepdims=True),),
    "poly.matmul": _matmul,
    "poly.transpose": lambda site, d, x: (d.transpose(np.argsort(site.attributes["permutation"])),),
    "poly.reshape": lambda site, d, x: (d.reshape(x[0].shape),),
    "poly.select": _select,
    "poly.mean": _mean,
    "poly.repeat": _repeat,
    "poly.rotary": _rotary,
    "poly.mask_fill": _masked,
    "poly.mask_zero": _masked,
    "poly.chebyshev": _chebyshev,
}
