"""Levels of a recorded algorithm in a lowered program, where constants are folded away."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from atlasc.passes.approximation.arithmetic import RecordedStep
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.framework.linear_system import LinearSystem

PRODUCTS = ("mul", "square")


def levels_of_steps(steps: Sequence[RecordedStep]) -> int:
    """Levels from the argument to the last step.

    A ciphertext may hold f v instead of v, so that a positive factor costs no level unless other
    readers of its operand want another one. With L = log f every step gives a linear equation; the
    lowering solves them for the whole program (`assign-scales`), this does for one algorithm, in
    the same order: products and sums of rows, then factors and domain maps, then additions. A
    factor for each channel is folded into the linear layer before the op.
    """
    system: LinearSystem[int] = LinearSystem()
    factors: list[tuple[int, Mapping[int, float], float]] = []
    for number, step in enumerate(steps, 1):
        factor = _factor(step)
        if step.name in ("add", "sub"):
            continue
        first = step.operands[0]
        row = {number: 1.0, first: -1.0}
        if step.name in PRODUCTS:
            other = step.operands[-1]
            row = {number: 1.0, first: -2.0} if first == other else {**row, other: -1.0}
        if step.name == "chebyshev":
            row = {first: 1.0}
        if factor is None:
            if step.name != "scale":
                system.add(row, 0.0)
        elif factor > 0:
            sign = 1.0 if step.name == "chebyshev" else -1.0
            factors.append((number, row, sign * math.log(factor)))
    products = {(n, 0) for n, row, constant in factors if not system.add(row, constant)}
    products |= {(n, 0) for n, step in enumerate(steps, 1) if _stays_a_product(step)}
    unfolded = _levels(steps, {(number, 0) for number, *_ in factors} | products)
    for number, step in enumerate(steps, 1):
        if step.name in ("add", "sub"):
            for place in sorted(range(2), key=lambda place: -unfolded[step.operands[place]]):
                operand = step.operands[place]
                row = {} if operand == number else {number: 1.0, operand: -1.0}
                if not system.add(row, 0.0):
                    products.add((number, place))
    return _levels(steps, products)[-1]


def _factor(step: RecordedStep) -> float | None:
    """The number that a step multiplies its operand by; None where it does not."""
    if step.name == "chebyshev":
        low, high = step.constant.calibrated or (-1.0, 1.0)
        factor = 2.0 / (high - low)
        return None if factor == 1.0 else factor
    return float(step.constant) if step.name == "scale" and np.ndim(step.constant) == 0 else None


def _stays_a_product(step: RecordedStep) -> bool:
    if step.name != "scale":
        return False
    vector = np.ndim(step.constant) > 0
    return step.operands[0] != 0 if vector else step.constant <= 0


def _levels(steps: Sequence[RecordedStep], products: set[tuple[int, int]]) -> list[int]:
    """Levels of every value where these operands of steps are multiplied by a plaintext first."""
    levels = [0]
    for number, step in enumerate(steps, 1):
        entries = [levels[v] + ((number, i) in products) for i, v in enumerate(step.operands)]
        cost = int(step.name in PRODUCTS)
        if step.name == "chebyshev":
            cost = levels_of_degree(step.constant.degree)
        levels.append(max(entries) + cost)
    return levels
