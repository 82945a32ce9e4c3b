"""Ranges that hold for every input, derived from the weights.

After a norm of d features a row lies in a ball: x = beta + gamma x', with |x'| <= sqrt(d). Linear
layers map balls to ellipsoids, whose widths are known. So scores and arguments of activations have
bounds for every input. Attention averages values, and an average lies between them.

A variance is bounded from above in the same way. From below algebra gives little more than epsilon,
because nothing keeps a row from being constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.calibration.measure import nonlinear_ops
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site, number
from atlasc.ir.scalar_functions import function

Array = NDArray[np.float64]
UNBOUNDED = (-math.inf, math.inf)
GRID = 1025
"""Number of arguments at which a scalar function is evaluated to bound its values."""
WIDEST_VARIANCES = 7 * 511**2
"""Greatest ratio of the ends of a certified range of 1/sqrt. On a range with ratio 7 n^2 a
polynomial of degree n errs by at most about half; no search space has a degree above 511."""
WIDEST_SCORES = 16 * math.log(7 * 127**2)
"""Greatest width of certified scores. Five iterations of a softmax first sum squares of
exp(score / 32), whose logarithms differ by a sixteenth of the scores' differences; 1/sqrt in an
iteration has degree 127 at most."""


class Bounds(NamedTuple):
    """Bounds of an op's argument for every input: of scores, of a variance or mean square plus
    epsilon, or of an activation's argument.

    Attributes:
        low, high: the two ends; infinite if algebra gives none.
        channels: activations only: [C] ends of each channel.
    """

    low: float
    high: float
    channels: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class Generator:
    """The set of all products matrix · u with |u| <= 1 in a norm.

    Attributes:
        matrix: [*lead, features, directions].
        cube: whether the norm is the greatest magnitude, instead of the Euclidean norm.
    """

    matrix: Array
    cube: bool

    @property
    def half_widths(self) -> Array:
        """Greatest magnitude of each feature, [*lead, features]."""
        return np.asarray(np.linalg.norm(self.matrix, 1 if self.cube else 2, axis=-1))

    @property
    def radius(self) -> Array:
        """Upper bound of the Euclidean norm of a row, [*lead]."""
        if self.cube:
            return np.asarray(np.linalg.norm(self.half_widths, axis=-1))
        return _spectral_norm(self.matrix)

    def reach(self, row: Array) -> Array:
        """Greatest product with a row [*lead, features]; [*lead]."""
        along = (row[..., None, :] @ self.matrix)[..., 0, :]
        return np.asarray(np.linalg.norm(along, 1 if self.cube else 2, axis=-1))


@dataclass(frozen=True)
class Rows:
    """A set that contains every row (along the last axis) of a tensor: a centre plus one element of
    each generator. Rows at different places vary independently.

    Attributes:
        centre: [*lead, features]; an extent of 1 in `lead` stands for a whole axis.
        generators: see `Generator`.
        weights: whether each row is non-negative with a sum of at most one, like probabilities.
    """

    centre: Array
    generators: tuple[Generator, ...]
    weights: bool = False

    @staticmethod
    def between(low: Array, high: Array) -> Rows:
        """The set in which each feature lies between two numbers, independently of the others."""
        half = (high - low) / 2
        return Rows((low + high) / 2, (Generator(half[..., None] * np.eye(half.shape[-1]), True),))

    @property
    def ends(self) -> tuple[Array, Array]:
        """Least and greatest value of each feature, [*lead, features]."""
        half = sum((part.half_widths for part in self.generators), np.zeros(1))
        return self.centre - half, self.centre + half

    @property
    def radii(self) -> tuple[Array, Array]:
        """Lower and upper bound of the Euclidean norm of a row; [*lead] each."""
        middle = np.linalg.norm(self.centre, axis=-1)
        reach = sum((part.radius for part in self.generators), np.zeros(1))
        return np.maximum(middle - reach, 0), middle + reach

    def each(self, change: Callable[[Array], Array]) -> Rows:
        """Apply a linear function to centre and generators, each [*lead, features, directions]."""
        parts = (Generator(change(part.matrix), part.cube) for part in self.generators)
        return Rows(change(self.centre[..., None])[..., 0], tuple(parts))

    def merged(self, axis: int) -> Rows:
        """One set for all places of an axis of `lead`, whose extent becomes 1."""
        if self.centre.shape[axis] == 1 and all(
            part.matrix.shape[axis - (axis < 0)] == 1 for part in self.generators
        ):
            return self
        low, high = self.ends
        return Rows.between(low.min(axis, keepdims=True), high.max(axis, keepdims=True))


def certified_bounds(module: Module) -> dict[str, Bounds]:
    """Result name of each nonlinear op on encrypted data -> bounds of its argument."""
    known: dict[Value, Rows | None] = {}
    wanted, found = set(nonlinear_ops(module)), {}
    for op in module.ops:
        rows = [known.get(operand) for operand in op.operands]
        if op in wanted:
            found[op.value.name] = _argument(op, rows[0])
        if op.result is not None:
            known[op.result] = _result(op, op.site(module.symbols), rows)
    return found


def require_certified(module: Module) -> dict[str, Bounds]:
    """The bounds of all nonlinear ops, if polynomials of this compiler can cover them.

    Raises:
        AtlasError: no polynomial can cover the bounds of some op.
    """
    found = certified_bounds(module)
    ops = [op for op in nonlinear_ops(module) if not _coverable(op, found[op.value.name])]
    if not ops:
        return found
    op, (low, high, _) = ops[0], found[ops[0].value.name]
    what, widest, remedy = {
        "norm": (
            "variance or mean square plus epsilon",
            f"1/sqrt of degree 511 covers a factor of {WIDEST_VARIANCES:.1e} at most",
            "give the model a larger epsilon and train it further, or ",
        ),
        "softmax": (
            "scores",
            f"five iterations of a softmax cover a width of {WIDEST_SCORES:.0f} at most",
            "train the model with a smaller norm of its queries and keys, or ",
        ),
        "activation": ("argument", "a polynomial needs finite ends", ""),
    }[op.definition.family]
    others = f"; {len(ops) - 1} other ops have such ranges" if len(ops) > 1 else ""
    raise AtlasError(
        f"no polynomial covers the certified range of {op.name}",
        where=op.location,
        why=f"its {what} may lie anywhere in ({low:.3g}, {high:.3g}), but {widest}{others}",
        remedy=f"{remedy}use --ranges measured, which says how many inputs may leave the ranges",
    )


def _coverable(op: Op, bounds: Bounds) -> bool:
    if not math.isfinite(bounds.low) or not math.isfinite(bounds.high):
        return False
    if op.definition.family == "norm":
        return bounds.high <= WIDEST_VARIANCES * bounds.low
    return op.definition.family != "softmax" or bounds.high - bounds.low <= WIDEST_SCORES


def _argument(op: Op, rows: Rows | None) -> Bounds:
    """The bounds of a nonlinear op's argument, from the set of its operand's rows."""
    if op.definition.family == "norm":
        epsilon, features = float(op.attributes["epsilon"]), op.operands[0].tensor.shape[-1]
        if rows is None:
            return Bounds(epsilon, math.inf)
        least, greatest = (_centred(rows) if op.name == "nn.layer_norm" else rows).radii
        low, high = float(least.min()) ** 2, float(greatest.max()) ** 2
        return Bounds(low / features + epsilon, high / features + epsilon)
    if rows is None:
        return Bounds(*UNBOUNDED)
    lows, highs = rows.ends
    bounds = Bounds(float(lows.min()), float(highs.max()))
    if op.definition.family == "softmax":
        return bounds
    places = tuple(range(lows.ndim - 1))
    return bounds._replace(channels=(lows.min(axis=places), highs.max(axis=places)))


def _result(op: Op, site: Site, rows: Sequence[Rows | None]) -> Rows | None:
    """The set of an op's result; None if nothing is known."""
    name, family = op.name.removeprefix("nn."), op.definition.family
    if family == "norm":
        return _normalised(op, site)
    if family == "softmax":
        ones = np.ones([*[1] * (len(site.shape()) - 1), site.shape()[-1]])
        return replace(Rows.between(0 * ones, ones), weights=True)
    if name == "embedding":
        table = site.constant("table")
        lead = [1] * len(site.shape())
        return Rows.between(*(end.reshape(*lead, -1) for end in (table.min(0), table.max(0))))
    if not rows or any(part is None for part in rows):
        return None
    x, *others = (part for part in rows if part is not None)
    if family == "activation":
        return Rows.between(*_values(name, *x.ends))
    match name:
        case "encrypt":
            return x
        case "linear":
            weight = site.constant("weight")
            y = x.each(lambda part: weight @ part)
            return _moved(y, site.constant("bias")) if "bias" in op.attributes else y
        case "add":
            return Rows(x.centre + others[0].centre, x.generators + others[0].generators)
        case "add_constant":
            return _moved(x, site.constant("value"))
        case "scale":
            factor = site.constant("factor")[..., None]
            return x.each(lambda part: factor * part)
        case "center":
            return _centred(x)
        case "mul":
            ends = [a * b for a in x.ends for b in others[0].ends]
            return Rows.between(np.minimum.reduce(ends), np.maximum.reduce(ends))
        case "matmul" if x.weights:
            return others[0].merged(-2)
        case "matmul" if op.attributes["transpose_b"]:
            return _products(x.merged(-2), others[0].merged(-2))
        case "rotary":
            return _turned(x.merged(-2), site)
        case "transpose" | "reshape" | "repeat" | "select" | "mean":
            return _placed(op, site.shape(), x)
    return None


def _normalised(op: Op, site: Site) -> Rows:
    gamma = site.constant("gamma")
    features, lead = len(gamma), [1] * (len(site.shape()) - 1)
    ball = Rows(np.zeros([*lead, features]), (Generator(np.eye(features), False),))
    ball = _centred(ball) if op.name == "nn.layer_norm" else ball
    y = ball.each(lambda part: math.sqrt(features) * gamma[:, None] * part)
    y = Rows(y.centre, tuple(_lifted(part, lead) for part in y.generators))
    return _moved(y, site.constant("beta")) if "beta" in op.attributes else y


def _lifted(part: Generator, lead: Sequence[int]) -> Generator:
    """A generator, broadcast to the axes of `lead`."""
    return Generator(part.matrix.reshape(*lead, *part.matrix.shape[-2:]), part.cube)


def _centred(x: Rows) -> Rows:
    return x.each(lambda part: part - part.mean(axis=-2, keepdims=True))


def _moved(x: Rows, by: Array) -> Rows:
    return Rows(x.centre + by, x.generators)


def _values(name: str, low: Array, high: Array) -> tuple[Array, Array]:
    """Bounds of a scalar function's values on intervals.

    Between two points of a grid the function changes by less than its greatest step on the grid.
    """
    shares = np.linspace(0, 1, GRID)
    values = function(name).numpy(low[..., None] + (high - low)[..., None] * shares)
    room = np.abs(np.diff(values)).max(axis=-1)
    return values.min(axis=-1) - room, values.max(axis=-1) + room


def _products(q: Rows, k: Rows) -> Rows:
    """The set of all products of a row of q and a row of k, as rows of one feature."""
    middle = (q.centre * k.centre).sum(axis=-1)
    reach: Array = np.zeros(1)
    for part in q.generators:
        reach = reach + part.reach(k.centre)
        for other in k.generators:
            reach = reach + _greatest_product(part, other)
    for other in k.generators:
        reach = reach + other.reach(q.centre)
    reach = np.broadcast_to(reach, middle.shape)
    return Rows.between((middle - reach)[..., None], (middle + reach)[..., None])


def _greatest_product(a: Generator, b: Generator) -> Array:
    """Greatest product of elements of two generators: by the matrix norm for two balls, otherwise
    by the radii."""
    if a.cube or b.cube:
        return a.radius * b.radius
    return np.sqrt(_greatest_eigenvalue(_gram(a.matrix) @ _gram(b.matrix)))


def _turned(x: Rows, site: Site) -> Rows:
    """Rows after rotary embedding: rotating by angles that depend on the place keeps norms."""
    cos, sin = site.constant("cos"), site.constant("sin")
    radius = x.radii[1] * np.sqrt((np.square(cos) + np.square(sin)).max())
    ball = radius[..., None, None] * np.eye(x.centre.shape[-1])
    return Rows(np.zeros_like(x.centre), (Generator(ball, False),))


def _placed(op: Op, before: Sequence[int], x: Rows) -> Rows | None:
    """The same rows at other places; None if the features of a row do not stay together."""
    last = len(before) - 1
    if op.name == "nn.transpose":
        order = op.attributes["permutation"]
        if order[-1] != last:
            return None
        parts = (
            Generator(part.matrix.transpose(*order, last + 1), part.cube) for part in x.generators
        )
        return Rows(x.centre.transpose(order), tuple(parts), x.weights)
    if op.name == "nn.reshape":
        after = op.attributes["shape"]
        if list(after[:last]) == list(before[:last]) and len(after) == last + 2:
            return _split(x, after[-2])
        merges = list(after[:-1]) == list(before[:-2])
        return _joined(x, before[-2]) if merges else None
    axis = op.attributes["axis"]
    if axis == last:
        return None
    x = x.merged(axis)
    if op.name == "nn.repeat":
        return x
    factor = number(op.attributes.get("factor", 1.0))
    return x.each(lambda part: factor * part.squeeze(axis))


def _split(x: Rows, groups: int) -> Rows:
    """Features in groups, with one row for each group."""

    def change(part: Array) -> Array:
        return part.reshape(*part.shape[:-2], groups, -1, part.shape[-1])

    return x.each(change)


def _joined(x: Rows, groups: int) -> Rows:
    """The rows of all groups, concatenated; each group has its own elements of the generators."""

    def spread(part: Array) -> Array:
        return np.broadcast_to(part, (*part.shape[:-3], groups, *part.shape[-2:]))

    def alone(part: Array, group: int) -> Array:
        full = np.zeros((*part.shape[:-3], groups, *part.shape[-2:]))
        full[..., group, :, :] = spread(part)[..., group, :, :]
        return full.reshape(*part.shape[:-3], -1, part.shape[-1])

    centre = np.broadcast_to(x.centre, (*x.centre.shape[:-2], groups, x.centre.shape[-1]))
    parts = (
        Generator(alone(part.matrix, group), part.cube)
        for part in x.generators
        for group in range(groups)
    )
    return Rows(centre.reshape(*centre.shape[:-2], -1), tuple(parts))


def _gram(matrix: Array) -> Array:
    return np.asarray(matrix @ matrix.swapaxes(-1, -2))


def _greatest_eigenvalue(matrix: Array) -> Array:
    """Greatest eigenvalue of [.., n, n] matrices with real, non-negative eigenvalues; [..]."""
    return np.maximum(np.linalg.eigvals(matrix).real.max(axis=-1), 0)


def _spectral_norm(matrix: Array) -> Array:
    rows, columns = matrix.shape[-2:]
    gram = _gram(matrix if rows <= columns else matrix.swapaxes(-1, -2))
    return np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[..., -1], 0))
