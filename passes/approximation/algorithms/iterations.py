"""Newton and Goldschmidt iterations for 1/x and 1/sqrt(x), against any arithmetic."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeVar

from atlasc.passes.approximation.arithmetic import Arithmetic

T = TypeVar("T")


def newton_inverse(arithmetic: Arithmetic[T], x: T, guess: T, steps: int) -> T:
    """1/x by y = y (2 - x y); two levels a step. The relative error is squared by each."""
    y = guess
    for _ in range(steps):
        residual = arithmetic.sub(y, arithmetic.mul(arithmetic.square(y), x))
        y = arithmetic.add(y, residual)
    return y


def newton_inverse_sqrt(arithmetic: Arithmetic[T], x: T, guess: T, steps: int) -> T:
    """1/sqrt(x) by y = (3 y - x y^3) / 2; two levels a step once -x/2 is computed."""
    y = guess
    for _ in range(steps):
        cubic = arithmetic.mul(arithmetic.mul(arithmetic.scale(x, -0.5), y), arithmetic.square(y))
        y = arithmetic.add(arithmetic.scale(y, 1.5), cubic)
    return y


def goldschmidt_inverse_sqrt(arithmetic: Arithmetic[T], x: T, guess: T, steps: int) -> T:
    """1/sqrt(x) from a guess, by Goldschmidt's coupled iteration; two levels a step and two around
    them.
    """
    root, half = arithmetic.mul(x, guess), arithmetic.scale(guess, 0.5)
    for _ in range(steps):
        excess = arithmetic.add_const(arithmetic.mul(root, half), -0.5)
        root = arithmetic.sub(root, arithmetic.mul(root, excess))
        half = arithmetic.sub(half, arithmetic.mul(half, excess))
    return arithmetic.scale(half, 2.0)


def product_inverse(arithmetic: Arithmetic[T], x: T, steps: int) -> T:
    """1/x on (0, 2) as the product of 1 + (1 - x)^(2^i), i = 0 .. steps; steps + 1 levels.

    The relative error is |1 - x|^(2^(steps + 1)).
    """
    power = arithmetic.add_const(x, -1.0)  # only its even powers are used, so the sign is free
    result = arithmetic.add_const(arithmetic.scale(x, -1.0), 2.0)
    for _ in range(steps):
        power = arithmetic.square(power)
        result = arithmetic.mul(result, arithmetic.add_const(power, 1.0))
    return result


def adaptive_inverse_factors(epsilon: float, alpha: float) -> list[float]:
    """Relaxation factors k of the adaptive Goldschmidt iteration for 1/x on [epsilon, 1].

    After the last, x times the result is in [1 - alpha, 1]. Source: THOR, section on softmax.
    """
    factors: list[float] = []
    while not factors or epsilon < 1 - alpha:
        k = 2 / (epsilon + 1)
        epsilon = k * epsilon * (2 - k * epsilon)
        factors.append(k)
    return factors


def adaptive_inverse(arithmetic: Arithmetic[T], x: T, factors: list[float]) -> T:
    """1/x with these relaxation factors: a = a k (2 - k b), b = b k (2 - k b); two levels a
    step.
    """
    k = factors[0]
    result = arithmetic.add_const(arithmetic.scale(x, -k * k), 2 * k)
    b = x
    for previous, k in pairwise(factors):
        correction = arithmetic.add_const(arithmetic.scale(b, -previous), 2.0)
        b = arithmetic.mul(arithmetic.scale(b, previous), correction)
        result = arithmetic.mul(result, arithmetic.add_const(arithmetic.scale(b, -k * k), 2 * k))
    return result


def adaptive_inverse_sqrt_factors(epsilon: float, alpha: float) -> list[float]:
    """Relaxation factors k of the adaptive iteration for 1/sqrt(x) on [epsilon, 1].

    k makes f(k epsilon) = f(k) for f(t) = t (3 - t)^2 / 4. After the last, x times the square of
    the result is in [1 - alpha, 1]. Source: THOR, section on LayerNorm.
    """
    factors: list[float] = []
    while not factors or epsilon < 1 - alpha:
        k = 3 / (1 + math.sqrt(epsilon) + epsilon)
        epsilon = k * epsilon * (3 - k * epsilon) ** 2 / 4
        factors.append(k)
    return factors


def adaptive_inverse_sqrt(arithmetic: Arithmetic[T], x: T, factors: list[float]) -> T:
    """1/sqrt(x) with these factors: b = b k^1.5 (3/k - a) / 2, a = a k^3 (3/k - a)^2 / 4."""
    k = factors[0]
    result = arithmetic.add_const(arithmetic.scale(x, -(k**1.5) / 2), 1.5 * k**0.5)
    a = x
    for previous, k in pairwise(factors):
        square = arithmetic.square(arithmetic.add_const(a, -3 / previous))
        a = arithmetic.mul(arithmetic.scale(a, previous**3 / 4), square)
        cubic = arithmetic.mul(arithmetic.scale(result, k**1.5 / 2), a)
        result = arithmetic.sub(arithmetic.scale(result, 1.5 * k**0.5), cubic)
    return result
