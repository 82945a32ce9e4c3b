"""Interpretation of poly modules with the fused Chebyshev kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from atlasc.ir.interpreter import Observer, interpret
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.passes.approximation.fits.chebyshev import evaluate


def fused_chebyshev(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
    """Override of the interpreter: Chebyshev sums by the native kernel, one pass over memory."""
    if op.name != "poly.chebyshev":
        return None
    low, high = site.attributes["domain"]
    return evaluate(arrays[0], site.constant("coefficients"), (low, high))


def interpret_poly(
    module: Module,
    inputs: Mapping[str, np.ndarray],
    dtype: Any = np.float64,
    *,
    observe: Observer | None = None,
) -> dict[str, np.ndarray]:
    """``interpret`` for poly modules of real size."""
    return interpret(module, inputs, dtype, override=fused_chebyshev, observe=observe)
