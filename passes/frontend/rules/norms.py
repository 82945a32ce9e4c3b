"""Norms that a model writes out: layer norms, RMS norms, and rows divided by their length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, is_node, shape
from atlasc.passes.frontend.importer import Emit, Importer

LARGEST_SHIFT = 1e-5
"""Greatest number that may be added to a standard deviation, where a norm adds it below the
root."""
_SQUARES = ("{0} ** 2", "{0} * {0}", "square({0})")
_MEANS = tuple(f"mean({square}, axes, True)" for square in _SQUARES)
_QUOTIENTS = ("{0} * rsqrt({1} + epsilon)", "{0} / sqrt({1} + epsilon)",
              "{0} * ({1} + epsilon) ** -0.5")  # fmt: skip
_CENTRED = "(x - mean(x, axes, True))"
_VARIANCES = (*(mean.format(_CENTRED) for mean in _MEANS), "var(x, axes, correction, True)",
              "(mean(x ** 2, axes, True) - mean(x, axes, True) ** 2)")  # fmt: skip
RMS = tuple(f"({q.format('x', m.format('x'))})" for q, m in product(_QUOTIENTS, _MEANS))
LAYER = (
    *(f"({q.format(_CENTRED, v)})" for q, v in product(_QUOTIENTS, _VARIANCES)),
    f"({_CENTRED} / (std(x, axes, deviation, True) + epsilon))",
)
_LENGTHS = ("linalg_vector_norm(x, 2, axes, True)", "norm(x, 2, axes, True)")
UNIT = tuple(
    f"x / {form}"
    for length in _LENGTHS
    for bounded in (length, f"clamp_min({length}, least)", f"clamp({length}, least)")
    for form in (bounded, f"expand_as({bounded}, x)", f"expand({bounded}, to)")
)
"""Forms of norms; see ``patterns``."""


def _fits(importer: Importer, x: Node, axes: Any, *vectors: Node | None) -> bool:
    """Whether a norm is one of the last axis, with constant vectors of its extent."""
    axes = axes if isinstance(axes, Sequence) else [axes]
    if not is_node(x) or len(axes) != 1 or axes[0] not in (-1, len(shape(x)) - 1):
        return False
    known = [one for one in vectors if one is not None]
    return all(
        is_node(one) and importer.kinds.get(one) == "constant" and shape(one) == shape(x)[-1:]
        for one in known
    )


def rms_norm(
    importer: Importer, x: Node, axes: Any, epsilon: object, weight: Node | None = None
) -> Emit | None:
    """x / √(mean(x²) + epsilon), with or without a weight: nn.rms_norm."""
    if not isinstance(epsilon, float | int) or not _fits(importer, x, axes, weight):
        return None

    def emit() -> Value:
        gamma = importer.vector(weight, "ones", shape(x)[-1])
        return importer.add("nn.rms_norm", x, gamma=gamma, epsilon=float(epsilon))

    return emit


def unit_norm(
    importer: Importer, x: Node, axes: Any, least: object = 0.0, to: object = None
) -> Emit | None:
    """x / max(‖x‖, least): an RMS norm, times 1/√width."""
    if not isinstance(least, float | int) or not _fits(importer, x, axes):
        return None
    width = shape(x)[-1]

    def emit() -> Value:
        factors = np.full(width, width**-0.5, np.float32)
        gamma = importer.constant("lengths", factors)
        return importer.add("nn.rms_norm", x, gamma=gamma, epsilon=float(least) ** 2 / width)

    return emit


def layer_norm(
    importer: Importer,
    x: Node,
    axes: Any,
    epsilon: object,
    correction: object = 0,
    deviation: object = None,
    weight: Node | None = None,
    bias: Node | None = None,
) -> Emit | None:
    """(x − mean) / √(variance + epsilon), or / (standard deviation + epsilon), with a weight and a
    bias or without: nn.layer_norm.
    """
    if not isinstance(epsilon, float | int) or not _fits(importer, x, axes, weight, bias):
        return None
    below_root = deviation is None
    if not below_root and not 0 <= epsilon <= LARGEST_SHIFT:
        return None
    width = shape(x)[-1]
    # torch's default, and an unbiased estimate, divide by one less.
    unbiased = (correction if below_root else deviation) in (None, True, 1)
    share = (width - 1) / width if unbiased else 1.0
    added = float(epsilon if below_root else epsilon**2) * share

    def emit() -> Value:
        gamma, beta = importer.vector(weight, "ones", width), importer.vector(bias, "zeros", width)
        if share != 1:
            array = np.ones(width) if weight is None else importer.array(weight)
            gamma = importer.constant("unbiased", (array * share**0.5).astype(np.float32))
        return importer.add("nn.layer_norm", x, gamma=gamma, beta=beta, epsilon=added)

    return emit


NORMS: list[tuple[str, Callable[..., Emit | None]]] = [
    *((f"weight * {form} + bias", layer_norm) for form in LAYER),
    *((f"weight * {form}", rule) for rule, forms in ((layer_norm, LAYER), (rms_norm, RMS))
      for form in forms),
    *((form, rule) for rule, forms in ((layer_norm, LAYER), (rms_norm, RMS), (unit_norm, UNIT))
      for form in forms),
]  # fmt: skip
"""Form -> the function of its matches; the longest forms first."""
