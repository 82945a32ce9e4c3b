"""The polynomials of a program's nonlinear ops, as rows of texts for its report."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from atlasc.calibration.measure import nonlinear_ops
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import depth_of
from atlasc.polynomials.description import carried_by


def polynomials(module: Module, poly: Module) -> list[dict[str, Any]]:
    """One row for each nonlinear op: its `OpDepth`, and as texts its settings, the degrees that are
    evaluated, and the basis of its ranges.

    Args:
        module: nn module with approximations.
        poly: the poly module that ``module`` was expanded to.
    """
    bases: dict[tuple[str, str], Counter[str]] = {}
    degrees: dict[tuple[str, str], list[int]] = {}
    for op in poly.ops:
        if op.name == "poly.chebyshev":
            place = f"nn.{op.attributes['part']}", op.location
            terms = op.site(poly.symbols).constant_shape("coefficients")[-1]
            degrees.setdefault(place, []).append(terms - 1)
            if "basis" in op.attributes:
                bases.setdefault(place, Counter())[op.attributes["basis"]] += 1
    settings: dict[tuple[str, str], str] = {
        (op.name, op.location): ", ".join(
            f"{name} {_short(value)}" for name, value in carried_by(op).entries().items()
        )
        for op in nonlinear_ops(module)
    }
    return [
        {
            **asdict(op),
            "settings": settings[op.op, op.location],
            "evaluated": ", ".join(map(str, degrees.get((op.op, op.location), []))),
            "bases": ", ".join(
                f"{count} {basis}" for basis, count in bases.get((op.op, op.location), {}).items()
            ),
        }
        for op in depth_of(module).ops
    ]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(_short(item) for item in value)})"
    if isinstance(value, np.ndarray):
        return f"{'x'.join(map(str, value.shape))} numbers"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
