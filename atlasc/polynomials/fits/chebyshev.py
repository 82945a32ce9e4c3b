"""Chebyshev fits that are right to double precision, kept on disk, and their fused evaluation.

A fit is a JSON file under $ATLASC_CACHE, or else under ~/.cache/atlasc. A file is written elsewhere
and then renamed, so concurrent writers are harmless. If the folder cannot be written or a file is
damaged, the fit is computed again.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, Schema, read_json
from atlasc.ir.scalar_functions import function as named_function

Interval = tuple[float, float]

_BITS = 160
"""Binary digits of computations of a fit: 120 digits of samples and cosines survive the
products.
"""
_FIXED_POINT = 1 << 128
_FALLBACK_BLOCK = 4096


def levels_of_degree(degree: int) -> int:
    """Levels of a polynomial whose argument is in [-1, 1]: ceil(log2(degree + 1))."""
    if degree < 0:
        raise ValueError("a degree cannot be negative")
    return degree.bit_length()


def check_domain(function: str, degree: int, interval: Interval) -> Interval:
    """The interval of a fit; AtlasError if it is empty or the function is not defined on it."""
    low, high = float(interval[0]), float(interval[1])
    if degree < 0 or not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise AtlasError(
            f"cannot fit a polynomial of degree {degree} on ({low:g}, {high:g})",
            remedy="give a degree of at least 0 and a finite interval with low < high",
        )
    if named_function(function).positive_domain and low <= 0:
        raise AtlasError(
            f"{function} is not defined on all of ({low:g}, {high:g})",
            why="the argument of this function must be positive",
            remedy="check the calibrated range, or its margin",
        )
    return low, high


def fit(function: str, degree: int, interval: Interval) -> NDArray[np.float64]:
    """Coefficients of the interpolant at the degree+1 Chebyshev nodes of the first kind.

    Source: Trefethen, Approximation Theory and Approximation Practice, chapter 4.

    Returns:
        float64 [degree + 1], read-only; coefficient k belongs to T_k.

    Raises:
        AtlasError: the interval is empty, or the function is not finite on it.
    """
    return _fit_named(function, degree, *check_domain(function, degree, interval))


@lru_cache(maxsize=4096)
def _fit_named(name: str, degree: int, low: float, high: float) -> NDArray[np.float64]:
    found = load(name, degree, (low, high))
    if found is None:
        found = _interpolate(named_function(name).precise, degree, low, high)
        store(name, degree, (low, high), found)
    found.setflags(write=False)
    return found


def _interpolate(
    precise: Callable[[Any, Any], Any], degree: int, low: float, high: float
) -> NDArray[np.float64]:
    """The cosine transform in exact integers; each coefficient is rounded to double once.

    So the absolute error of a coefficient is one rounding, for every degree.
    """
    from mpmath import mp

    count = degree + 1
    cosines = _fixed_cosines(count)
    with mp.workprec(_BITS):
        middle, half = (mp.mpf(high) + mp.mpf(low)) / 2, (mp.mpf(high) - mp.mpf(low)) / 2
        nodes = (mp.mpf(cosine) / _FIXED_POINT for cosine in cosines[1 : 2 * count : 2])
        values = [precise(mp, middle + half * node) for node in nodes]
        if not all(map(mp.isfinite, values)):
            raise AtlasError(f"the function to fit is not finite inside ({low:g}, {high:g})")
        samples = np.array([int(mp.nint(v * _FIXED_POINT)) for v in values], dtype=object)
    odd = 2 * np.arange(count) + 1
    coefficients = np.empty(count)
    for j in range(count):
        total = int(np.dot(cosines[(j * odd) % (4 * count)], samples))
        coefficients[j] = (1 if j == 0 else 2) * total / (count * _FIXED_POINT * _FIXED_POINT)
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


class _Fit(Schema):
    """The JSON form of a fit."""

    format: Literal[1] = 1
    function: str
    degree: int
    interval: Interval
    coefficients: tuple[float, ...]


def cache_directory() -> Path:
    """The folder in which fits are kept."""
    root = os.environ.get("ATLASC_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "atlasc") / "chebyshev"


def load(function: str, degree: int, interval: Interval) -> NDArray[np.float64] | None:
    """The coefficients on disk; None if there is no readable file for exactly this fit."""
    try:
        found = read_json(_path(function, degree, interval), _Fit, "the fit", MIB)
    except (AtlasError, RuntimeError):
        return None
    wanted = function, degree, interval, degree + 1
    matches = wanted == (found.function, found.degree, found.interval, len(found.coefficients))
    return np.array(found.coefficients, dtype=np.float64) if matches else None


def store(function: str, degree: int, interval: Interval, c: NDArray[np.float64]) -> bool:
    """Write a fit, with all digits of its numbers; False if the folder cannot be written."""
    values = tuple(c.tolist())
    found = _Fit(function=function, degree=degree, interval=interval, coefficients=values)
    try:
        path = _path(function, degree, interval)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            written = Path(aside) / path.name
            written.write_text(found.model_dump_json(indent=1), encoding="utf-8")
            written.replace(path)
    except (OSError, RuntimeError):
        return False
    return True


def _path(function: str, degree: int, interval: Interval) -> Path:
    key = f"1|{function}|{degree}|{interval[0]!r}|{interval[1]!r}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return cache_directory() / f"{function}-{degree}-{digest}.json"


def evaluate(
    x: NDArray[Any],
    coefficients: NDArray[np.float64],
    interval: Interval,
    threads: int | None = None,
) -> NDArray[Any]:
    """sum_k coefficients[k] T_k(t), where t maps `interval` to [-1, 1], elementwise, in one pass.

    Computed in float64 for every dtype; outside the interval it grows as the polynomial does.

    Args:
        x: of any shape; float32 stays float32, everything else becomes float64.
        coefficients: shape (degree + 1,), or (C, degree + 1) for the C channels of the last axis.
        interval: (low, high) of the argument.
        threads: greatest number of threads; None for the number of processors.
    """
    low, high = float(interval[0]), float(interval[1])
    x = np.asarray(x)
    if x.dtype != np.float32:
        x = x.astype(np.float64, copy=False)
    coefficients = np.ascontiguousarray(coefficients, dtype=np.float64)
    native, threads = native_library(), threads or os.cpu_count() or 1
    if native is not None and coefficients.ndim == 1:
        run = native.evaluate_f32 if x.dtype == np.float32 else native.evaluate_f64
        y = run(np.ascontiguousarray(x), coefficients, low, high, threads)
        return y.reshape(x.shape)
    if native is not None and (low, high) == (-1.0, 1.0):
        single = x.dtype == np.float32
        run = native.evaluate_columns_f32 if single else native.evaluate_columns_f64
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        return run(rows, np.ascontiguousarray(coefficients.T), threads).reshape(x.shape)
    rows = np.ascontiguousarray(x).reshape(-1, *coefficients.shape[:-1])
    result = np.empty_like(rows)
    size = max(1, _FALLBACK_BLOCK * len(rows) // max(1, rows.size))
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        t = rows[block].astype(np.float64) * (2 / (high - low)) - (low + high) / (high - low)
        result[block] = np.polynomial.chebyshev.chebval(t, coefficients.T, tensor=False)
    return result.reshape(x.shape)


@lru_cache(maxsize=1)
def native_library() -> Any:
    """The compiled kernels; None, with a warning, if they were not built."""
    try:
        return importlib.import_module("atlasc.polynomials._native")
    except ImportError as error:
        warnings.warn(
            f"the native Chebyshev kernel is missing ({error}); NumPy is used instead, which is "
            "many times slower. "
            "Install the package from its wheel, or with a C++ compiler.",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
