"""Chebyshev fits right to double precision, and their fused evaluation on arrays."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import function as named_function
from atlasc.passes.approximation.fits import coefficient_cache

#: Binary digits carried while fitting: 120 of the samples and cosines survive the products.
_BITS = 160
_FIXED_POINT = 1 << 128
_FALLBACK_BLOCK = 4096


def levels_of_degree(degree: int) -> int:
    """Levels that a polynomial of this degree takes: ceil(log2(degree + 1)), its argument being in
    [-1, 1].
    """
    if degree < 0:
        raise ValueError("a degree is not negative")
    return degree.bit_length()


def fit(
    function: str | Callable[[Any], Any], degree: int, interval: tuple[float, float]
) -> NDArray[np.float64]:
    """Coefficients of the interpolant at the degree+1 Chebyshev nodes of the first kind.

    Samples and cosines have 120 correct bits, the cosine transform is done in exact integers and
    each coefficient
    is rounded to double once: the absolute error of a coefficient is one rounding, whatever the
        degree.
    Source: Trefethen, Approximation Theory and Approximation Practice, chapter 4.

    Args:
        function: a name in `scalar_functions.FUNCTIONS` (cached in memory and on disk), or a
            function of an mpmath number.
        degree: of the polynomial.
        interval: (low, high) of the argument.

    Returns:
        float64 array of shape (degree + 1,), read-only; coefficient k belongs to T_k.

    Raises:
        AtlasError: the interval is empty, or the function is not finite on it.
    """
    low, high = check_domain(function, degree, interval)
    if isinstance(function, str):
        return _fit_named(function, degree, low, high)
    return _interpolate(lambda mp, x: function(x), degree, low, high)


def check_domain(
    function: str | Callable[[Any], Any], degree: int, interval: tuple[float, float]
) -> tuple[float, float]:
    """The interval of a fit; AtlasError where it is empty or the function is not defined on it."""
    low, high = float(interval[0]), float(interval[1])
    if degree < 0 or not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise AtlasError(
            f"cannot fit a polynomial of degree {degree} on ({low:g}, {high:g})",
            remedy="give a degree of at least 0 and a finite interval with low < high",
        )
    if isinstance(function, str) and named_function(function).positive_domain and low <= 0:
        raise AtlasError(
            f"{function} is not defined on all of ({low:g}, {high:g})",
            why="its argument must be positive",
            remedy="check the calibrated range, or its margin",
        )
    return low, high


@lru_cache(maxsize=4096)
def _fit_named(name: str, degree: int, low: float, high: float) -> NDArray[np.float64]:
    cached = coefficient_cache.load(name, degree, (low, high))
    if cached is None:
        cached = _interpolate(named_function(name).precise, degree, low, high)
        coefficient_cache.store(name, degree, (low, high), cached)
    cached.setflags(write=False)
    return cached


def _interpolate(
    precise: Callable[[Any, Any], Any], degree: int, low: float, high: float
) -> NDArray[np.float64]:
    from mpmath import mp

    count = degree + 1
    cosines = _fixed_cosines(count)
    with mp.workprec(_BITS):
        middle, half = (mp.mpf(high) + mp.mpf(low)) / 2, (mp.mpf(high) - mp.mpf(low)) / 2
        samples = []
        for k in range(count):
            node = mp.mpf(cosines[2 * k + 1]) / _FIXED_POINT
            value = precise(mp, middle + half * node)
            if not mp.isfinite(value):
                raise AtlasError(f"the function to fit is not finite inside ({low:g}, {high:g})")
            samples.append(int(mp.nint(value * _FIXED_POINT)))
    vector = np.array(samples, dtype=object)
    odd = 2 * np.arange(count) + 1
    coefficients = np.empty(count)
    for j in range(count):
        total = int(np.dot(cosines[(j * odd) % (4 * count)], vector))
        scale = count * _FIXED_POINT * _FIXED_POINT
        coefficients[j] = total / scale if j == 0 else 2 * total / scale
    coefficients.setflags(write=False)
    return coefficients


@lru_cache(maxsize=8)
def _fixed_cosines(count: int) -> NDArray[np.object_]:
    """cos(pi m / (2 count)) for m < 4 count, as fixed-point integers."""
    from mpmath import mp

    with mp.workprec(_BITS):
        quarter = [
            int(mp.nint(mp.cos(mp.pi * m / (2 * count)) * _FIXED_POINT)) for m in range(count + 1)
        ]
    falling = quarter + [-value for value in quarter[-2::-1]]
    return np.array(falling + falling[-2:0:-1], dtype=object)


def evaluate(
    x: NDArray[Any],
    coefficients: NDArray[np.float64],
    interval: tuple[float, float],
    threads: int | None = None,
) -> NDArray[Any]:
    """sum_k coefficients[k] T_k(t), where t maps `interval` to [-1, 1], elementwise and in one
    pass.

    Computed in float64 whatever the dtype; outside the interval it grows as the polynomial does.

    Args:
        x: array of any shape; float32 stays float32, everything else becomes float64.
        coefficients: shape (degree + 1,), or (C, degree + 1) for C places of the last axis.
        interval: (low, high) of the argument.
        threads: how many to use at most; None for the number of processors.

    Returns:
        array of the shape of x.
    """
    low, high = float(interval[0]), float(interval[1])
    x = np.asarray(x)
    if x.dtype != np.float32:
        x = x.astype(np.float64, copy=False)
    coefficients = np.ascontiguousarray(coefficients, dtype=np.float64)
    native = native_library() if coefficients.ndim == 1 else None
    if native is None:
        return _evaluate_numpy(x, coefficients, low, high)
    run = native.evaluate_f32 if x.dtype == np.float32 else native.evaluate_f64
    y = run(np.ascontiguousarray(x), coefficients, low, high, threads or os.cpu_count() or 1)
    return y.reshape(x.shape)


@lru_cache(maxsize=1)
def native_library() -> Any:
    """The compiled kernels; None, with a warning, where they were not built."""
    try:
        return importlib.import_module("atlasc.passes.approximation._native")
    except ImportError as error:
        warnings.warn(
            f"the native Chebyshev kernel is missing ({error}); numpy is used, many times slower. "
            "Install the package from its wheel, or with a C++ compiler present.",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def _evaluate_numpy(
    x: NDArray[Any], coefficients: NDArray[np.float64], low: float, high: float
) -> NDArray[Any]:
    rows = np.ascontiguousarray(x).reshape(-1, *coefficients.shape[:-1])
    result = np.empty_like(rows)
    size = max(1, _FALLBACK_BLOCK * len(rows) // max(1, rows.size))
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        t = rows[block].astype(np.float64) * (2 / (high - low)) - (low + high) / (high - low)
        result[block] = np.polynomial.chebyshev.chebval(t, coefficients.T, tensor=False)
    return result.reshape(x.shape)
