"""Magnitudes of the values of a program, from real inputs in the clear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from atlasc.ir.module import Module, Op
from atlasc.passes.framework.rewriting import with_attributes
from atlasc.passes.simulation.poly_values import interpret_poly


def with_magnitudes(module: Module, inputs: Mapping[str, np.ndarray]) -> Module:
    """A copy whose ops carry the greatest magnitude of their result on these inputs.

    That of an output is the magnitude of the answer, in the answer's own units.
    """
    greatest: dict[Op, float] = {}

    def observe(op: Op, result: np.ndarray) -> None:
        # Rounded: the last digits depend on the order of sums, and a bundle should not.
        greatest[op] = float(f"{np.abs(result).max():.9g}")

    answers = interpret_poly(module, inputs, observe=observe)
    for op in module.outputs:
        observe(op, answers[op.attributes["name"]])

    def attributes(op: Op) -> dict[str, Any]:
        finite = op in greatest and np.isfinite(greatest[op])
        return {**op.attributes, **({"magnitude": greatest[op]} if finite else {})}

    return with_attributes(module, attributes)
