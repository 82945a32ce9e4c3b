"""Statistics of a program's values on real inputs in the clear: magnitudes, means, noise gains.

A noise gain says how much an error in a value changes the outputs. A bootstrap errs by about the
same in every slot, whatever it refreshes. If a few large rows of a value set its scale, the small
rows drown in this error: before a LayerNorm, whose rows may differ by a factor of ten in width, a
bootstrap loses twenty times as much precision as after it.

Gains come from derivatives of a weighted sum of the outputs by all values. One run forwards and one
backwards replace one run for each value with finite differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev as sums

from atlasc.ir.interpreter import kept_tokens
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site
from atlasc.ir.ops.masks import keep_mask
from atlasc.ir.ops.tensors import mean_weights, rotary_tables
from atlasc.ir.rewriting import with_attributes
from atlasc.polynomials.fits.chebyshev import evaluate
from atlasc.simulation.poly_values import interpret_poly

MEMORY = 512 << 20
"""Bytes for the values of the used inputs; one input is always used, however large it is."""
PROBES, VALUES = 16, 4096
"""Greatest number of random directions, and the number of output values that is enough."""
_TINY = 1e-300


def with_magnitudes(module: Module, inputs: Mapping[str, np.ndarray]) -> Module:
    """A copy in which each op has the greatest magnitude of its result on these inputs.

    The magnitude of an output is that of the answer, in the answer's own units.
    """
    greatest: dict[Op, float] = {}

    def observe(op: Op, result: np.ndarray) -> None:
        # Rounded up, because the last digits depend on the order of sums and a bundle should not.
        greatest[op] = float(f"{np.abs(result).max() * (1 + 5e-5):.5g}")

    answers = interpret_poly(module, inputs, np.float32, observe=observe)
    for op in module.outputs:
        observe(op, answers[op.attributes["name"]])

    def attributes(op: Op) -> dict[str, Any]:
        finite = op in greatest and np.isfinite(greatest[op])
        return {**op.attributes, **({"magnitude": greatest[op]} if finite else {})}

    return with_attributes(module, attributes)


def with_noise_gains(module: Module, inputs: Mapping[str, np.ndarray]) -> Module:
    """A copy of a poly module in which each op has ``noise_gain``.

    An independent error of variance σ² in each element of the result changes the outputs by
    noise_gain · σ. Both are root mean squares; the outputs are in units of their own. Outputs of
    padding tokens do not count. The gain is the Frobenius norm of the Jacobian: the derivatives of
    each element of an answer, or where an answer has more than `PROBES` elements, an estimate with
    random signs (Hutchinson 1989). Each op also gets ``mean``, the greatest mean of an input,
    because a bootstrap shifts the mean.

    The ``noise_gain`` of an output op is the effect of a change of 1, in units of its answer, for
    the input that errors change most: a root mean square over the elements of one answer.
    Args:
        module: poly module.
        inputs: arrays by name, as its inputs declare them.
    """
    some = _few(module, inputs)
    tape = Tape(module, some, np.float32)
    read = {name: _read(module, some, array) for name, array in tape.outputs.items()}
    power = sum(
        np.square(array * read[name], dtype=np.float64).sum()
        for name, array in tape.outputs.items()
    )
    squares: dict[Op, Array] = {}  # of the derivatives by each input's part of the result
    for weights in _directions(read):
        for op, derivative in tape.pull_back(weights).items():
            rows = np.square(derivative, dtype=np.float64).reshape(len(derivative), -1).sum(axis=1)
            squares[op] = squares[op] + rows if op in squares else rows
    by_input = np.zeros(max(len(one) for one in read.values()))
    for rows in squares.values():
        if len(rows) == len(by_input) and power > 0:
            by_input += rows / max(rows.mean(), _TINY)

    def attributes(op: Op) -> dict[str, Any]:
        gain = np.sqrt(np.sum(squares.get(op, 0.0)) / power) if power > 0 else np.inf
        found: dict[str, float] = {}
        if op.name == "poly.output" and power > 0:
            worst = by_input.max() / by_input.mean() if by_input.any() else 1.0
            of_one = power / read[op.attributes["name"]].sum()
            found["noise_gain"] = math.sqrt(of_one * worst)
        elif op.result is not None and np.isfinite(gain):
            found = {"noise_gain": gain, "mean": tape.greatest_mean(op)}
        # Rounded, because the last digits depend on the order of sums and a bundle should not.
        return {**op.attributes, **{name: float(f"{one:.2g}") for name, one in found.items()}}

    return with_attributes(module, attributes)


def _directions(read: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Weights of the outputs, by name: the squares of the derivatives of their weighted sums add up
    to those of the elements that are read.
    """
    sizes = {name: one[0].size for name, one in read.items()}
    if sum(sizes.values()) <= PROBES:
        zeros = {name: np.zeros(one.shape, np.float32) for name, one in read.items()}
        for name, one in read.items():
            for element in range(sizes[name]):
                alone = np.arange(sizes[name]).reshape(one[0].shape) == element
                yield {**zeros, name: (one * alone).astype(np.float32)}
        return
    probes = int(np.clip(VALUES // sum(one.sum() for one in read.values()), 1, PROBES))
    random = np.random.default_rng(0)
    for _ in range(probes):
        signs = {n: one * random.choice((-1.0, 1.0), one.shape) for n, one in read.items()}
        yield {n: (one / math.sqrt(probes)).astype(np.float32) for n, one in signs.items()}


def bootstrap_change(op: Op, error: float, cubic: float) -> float:
    """Change of the outputs by a bootstrap of an op's result, in units of their root mean square.

    Args:
        op: an op with the attributes of ``with_noise_gains``; without them the change is 0.
        error: standard deviation of the bootstrap's error in each slot.
        cubic: factor of the cubic error, which takes cubic · c³ off each coefficient c of the
            encoded polynomial. One coefficient is the mean of the value.
    """
    gain, mean = op.attributes.get("noise_gain", 0.0), op.attributes.get("mean", 0.0)
    return gain * math.hypot(error, cubic * mean**3)


def program_change(module: Module, error: float, cubic: float) -> float | None:
    """Change of the outputs by all bootstraps of a placed ckks module; None if no value has a
    gain.
    """
    if not any("noise_gain" in op.attributes for op in module.ops):
        return None
    refreshed = [op.operands[0].op for op in module.ops if op.name == "ckks.bootstrap"]
    return math.hypot(*(bootstrap_change(op, error, cubic) for op in refreshed))


def _read(module: Module, inputs: Mapping[str, np.ndarray], output: np.ndarray) -> np.ndarray:
    """1 for the values of an output that belong to the answer, 0 for values of padding tokens."""
    kept = kept_tokens(module, inputs, output)
    return np.broadcast_to(1.0 if kept is None else kept, output.shape)


def _few(module: Module, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first inputs: as many as fit into ``MEMORY``."""
    elements = sum(
        int(np.prod(op.value.tensor.shape))
        for op in module.ops
        if op.result is not None and not op.name.startswith("poly.input")
    )
    batch = max(op.attributes["shape"][0] for op in module.inputs)
    count = max(1, MEMORY // max(1, 4 * elements // batch))
    return {name: array[:count] for name, array in inputs.items()}


Array = np.ndarray
Cotangents = tuple[Array | None, ...]
"""Derivatives by each operand; None for an operand without a derivative (a mask)."""
Rule = Callable[[Site, Array, tuple[Array, ...]], Cotangents]
"""(site, derivative by the result, operands) -> derivatives by the operands."""


class Tape:
    """One run of a poly module forwards, in a float type; it keeps all values and ``outputs`` by
    name.
    """

    def __init__(self, module: Module, inputs: Mapping[str, Array], dtype: type) -> None:
        self.module = module
        self._values: dict[Op, Array] = {}
        self.outputs = interpret_poly(module, inputs, dtype, observe=self._values.__setitem__)

    def greatest_mean(self, op: Op) -> float:
        """Greatest absolute mean of an op's result ``[inputs, ...]``, over the inputs."""
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
    """A derivative, summed over the axes along which an operand was broadcast."""
    shape = (1,) * (derivative.ndim - like.ndim) + like.shape
    axes = tuple(a for a, n in enumerate(shape) if n == 1 and derivative.shape[a] != 1)
    return derivative.sum(axis=axes).reshape(like.shape) if axes else derivative.reshape(like.shape)


def _matmul(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    a, b = x
    if site.attributes["transpose_b"]:
        found = d @ b, np.swapaxes(d, -1, -2) @ a
    else:
        found = d @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ d
    return _unbroadcast(found[0], a), _unbroadcast(found[1], b)  # one head beside several


def _select(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    result = np.zeros_like(x[0])
    axis, index = site.attributes["axis"], site.attributes["index"]
    result[(slice(None),) * axis + (index,)] = d
    return (result,)


def _mean(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    weights = np.asarray(mean_weights(site, *x[1:] or (None,)), d.dtype)
    spread = np.expand_dims(d, site.attributes["axis"]) * weights
    return (np.broadcast_to(spread, x[0].shape),)


def _repeat(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    axis, shape = site.attributes["axis"], x[0].shape
    apart = d.reshape(*shape[: axis + 1], -1, *shape[axis + 1 :])
    return (apart.sum(axis=axis + 1),)


def _rotary(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    cos, sin = rotary_tables(site, d, *x[1:])
    turned = d * sin
    half = d.shape[-1] // 2
    back = np.concatenate([turned[..., half:], -turned[..., :half]], axis=-1)
    return (d * cos + back,)


def _at_tokens(site: Site, d: Array, x: tuple[Array, ...]) -> Cotangents:
    return (_unbroadcast(d * x[1].astype(bool)[:, None, :, None], x[0]),)


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
    "poly.add_positions": lambda site, d, x: (d,),
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
    "poly.at_tokens": _at_tokens,
    "poly.mask_fill": _masked,
    "poly.mask_zero": _masked,
    "poly.chebyshev": _chebyshev,
}
