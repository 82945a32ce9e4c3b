"""Functions in many digits."""

from __future__ import annotations

import mpmath
import numpy as np


def exact_softmax(rows):
    """Softmax of each row in 40 digits."""
    with mpmath.workdps(40):
        result = []
        for row in rows:
            powers = [mpmath.exp(mpmath.mpf(float(x))) for x in row]
            total = mpmath.fsum(powers)
            result.append([float(p / total) for p in powers])
    return np.array(result)
