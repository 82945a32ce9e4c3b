"""Chebyshev coefficients on disk: one JSON text per fit, 17 significant digits a number.

The directory is $ATLASC_CACHE, else ~/.cache/atlasc. A file appears complete or not at all (written
aside, then renamed), so concurrent writers are harmless; a directory that cannot be written, or a
damaged file, only costs the time of fitting again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import Schema, read_json
from atlasc.ir.files.plain import MIB

FORMAT = 1
MAX_FIT = MIB
"""Bytes of a fit."""


class _Fit(Schema):
    """The JSON form of a fit; 17 digits may be those of an integer."""

    format: Literal[1]
    function: str
    degree: int
    interval: tuple[float, float]
    coefficients: tuple[float, ...]


def cache_directory() -> Path:
    """Where fits are kept."""
    root = os.environ.get("ATLASC_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "atlasc") / "chebyshev"


def to_text(
    function: str, degree: int, interval: tuple[float, float], c: NDArray[np.float64]
) -> str:
    """The fit as JSON text; numbers have 17 significant digits and so read back bit for bit."""
    numbers = ",\n  ".join(f"{value:.17g}" for value in c)
    low, high = (f"{end:.17g}" for end in interval)
    return (
        f'{{"format": {FORMAT}, "function": "{function}", "degree": {degree}, '
        f'"interval": [{low}, {high}], "coefficients": [\n  {numbers}\n]}}\n'
    )


def load(function: str, degree: int, interval: tuple[float, float]) -> NDArray[np.float64] | None:
    """The cached coefficients, or None where there is no readable file for exactly this fit."""
    try:
        fit = read_json(_path(function, degree, interval), _Fit, "the fit", MAX_FIT)
    except (AtlasError, RuntimeError):
        return None
    matches = (fit.function, fit.degree, fit.interval) == (function, degree, interval)
    if not matches or len(fit.coefficients) != degree + 1:
        return None
    return np.array(fit.coefficients, dtype=np.float64)


def store(
    function: str, degree: int, interval: tuple[float, float], c: NDArray[np.float64]
) -> bool:
    """Writes the fit; returns False where the directory cannot be written."""
    temporary = None
    try:
        path = _path(function, degree, interval)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(to_text(function, degree, interval, c))
        os.replace(temporary, path)
    except (OSError, RuntimeError):
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return False
    return True


def _path(function: str, degree: int, interval: tuple[float, float]) -> Path:
    key = f"{FORMAT}|{function}|{degree}|{interval[0]!r}|{interval[1]!r}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return cache_directory() / f"{function}-{degree}-{digest}.json"
