"""Coefficients that an approximation carries in place of the interpolant's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Interval
from atlasc.passes.approximation.fits.chebyshev import fit

Given = tuple[float, ...] | None


def checked(given: Any, degree: int) -> Given:
    """Coefficients as floats; raises AtlasError where they are not finite or too few or many."""
    if given is None:
        return None
    values = tuple(float(value) for value in given)
    if len(values) != degree + 1 or not np.isfinite(values).all():
        raise AtlasError(
            f"a polynomial of degree {degree} has {degree + 1} finite coefficients",
            why=f"there are {len(values)}",
        )
    return values


def chosen(
    given: Sequence[float] | None, name: str, degree: int, interval: Interval
) -> NDArray[np.float64]:
    """The given coefficients, or those of the interpolant of the function."""
    return fit(name, degree, interval) if given is None else np.asarray(given, dtype=np.float64)
