"""Interpretation of poly modules of real size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from atlasc.ir.interpreter import Observer, interpret
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.polynomials.fits.chebyshev import evaluate

EXPLODED = 1e6
"""Magnitude from which a value counts as exploded. Hidden states of real models stay far below; so
do polynomials that approximate exp of negative numbers, 1/sqrt or activations."""


def interpret_poly(
    module: Module,
    inputs: Mapping[str, np.ndarray],
    dtype: Any = np.float64,
    *,
    observe: Observer | None = None,
) -> dict[str, np.ndarray]:
    """``interpret`` for poly modules of real size: Chebyshev sums run in the native kernel."""
    return interpret(module, inputs, dtype, override=fused, observe=observe)


def fused(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
    """A Chebyshev sum in the native kernel, as an ``override`` of ``interpret``; None for other
    ops.
    """
    if op.name != "poly.chebyshev":
        return None
    low, high = site.attributes["domain"]
    return evaluate(arrays[0], site.constant("coefficients"), (low, high))


def evaluated(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray:
    """The result of an op that computes something, by the native kernel if possible."""
    result = fused(op, site, arrays)
    if result is None:
        assert op.definition.evaluate is not None
        result = op.definition.evaluate(site, *arrays)
    return result
