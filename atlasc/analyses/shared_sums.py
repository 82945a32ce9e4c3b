"""Errors of a value whose copies share a Chebyshev sum.

An error that is the same in all copies passes as it does through the whole sum P: it is multiplied
by P'. An error that differs from copy to copy is not. Copy j evaluates a part F_j, and the P' of
the whole is the sum of all F_j'. Independent errors of one size are multiplied by the root of the
sum of all F_j'^2. That is less than |P'| where P is steep, since the parts share the slope. It is
more where P is flat and the slopes of the parts cancel.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from atlasc.program.paterson_stockmeyer import parts

_POINTS, _PARTS = 512, 8


@lru_cache(maxsize=1024)
def excess_gain(coefficients: tuple[float, ...], copies: int, reach: float = 1.0) -> float:
    """By how much errors that differ from copy to copy are multiplied beyond P', as a second error
    beside that of P': the root mean square in the worst part of [-reach, reach].
    """
    pieces = parts(np.array(coefficients), copies).T
    x = reach * np.sin(np.linspace(-np.pi / 2, np.pi / 2, _POINTS))
    values = chebyshev.chebval(x, pieces)  # [copies, points]
    slopes = chebyshev.chebval(x, chebyshev.chebder(pieces))
    power, slope = x, np.ones_like(x)
    for index in range(int(math.log2(len(pieces) * copies))):
        if 1 << index >= len(pieces):
            bit = index + 1 - len(pieces).bit_length()
            chosen = (np.arange(copies) >> bit & 1).astype(bool)[:, None]
            factor = np.where(chosen, power, 1.0)
            slopes = slopes * factor + values * np.where(chosen, slope, 0.0)
            values = values * factor
        power, slope = 2 * power**2 - 1, 4 * power * slope
    beyond = np.square(slopes).sum(axis=0) - np.square(slopes.sum(axis=0))
    return float(math.sqrt(max(0.0, beyond.reshape(_PARTS, -1).mean(axis=1).max())))
