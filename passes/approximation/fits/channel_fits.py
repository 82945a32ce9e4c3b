"""Weighted fits of all channels of an activation at once.

The same problem as in `weighted`, for each channel: least squares over what it saw and, lambda
times, over its range; lambda is the least for which the error stays bounded on the whole range. The
argument is mapped to [-1, 1], so that the Chebyshev polynomials on the grid are those of all
channels; each channel is solved by normal equations. They lose digits, but far fewer than a fit of
such degrees can show.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.scalar_functions import function
from atlasc.passes.approximation.fits.weighted import FLOORS, Bound, between
from atlasc.passes.calibration.ranges import ChannelRanges

Array = NDArray[np.float64]

HIGHEST_CHANNEL_DEGREE = 63
"""Above this degree one polynomial for all channels has a smaller error than other
approximations."""
BOUND = Bound(0.05, 4.0)
"""Of the greatest magnitude in a channel. It is looser than that of one polynomial for all
channels, since few channels have rare large arguments."""
BLOCK = 256
"""Channels that are solved at once."""
GRID = 257


def channel_fits(name: str, degree: int, ranges: ChannelRanges, weighted: bool = True) -> Array:
    """Coefficients [C, degree + 1] of each channel's Chebyshev sum on its own range.

    Args:
        name: of the function, in `scalar_functions.FUNCTIONS`.
        degree: `HIGHEST_CHANNEL_DEGREE` at most.
        weighted: False for the interpolants.
    """
    low, high, seen = (np.asarray(part) for part in (ranges.low, ranges.high, ranges.quantiles))
    found = []
    for start in range(0, len(low), BLOCK):
        block = slice(start, start + BLOCK)
        problem = _ChannelProblem(name, degree, low[block], high[block])
        found.append(problem.weighted(seen[block]) if weighted else problem.interpolants)
    return np.concatenate(found)


class _ChannelProblem:
    """Some channels; values and errors are shares of the greatest magnitude in a channel."""

    def __init__(self, name: str, degree: int, low: Array, high: Array) -> None:
        self.function, self.degree = function(name), degree
        self.middle, self.half = (low + high)[:, None] / 2, (high - low)[:, None] / 2
        grid = np.cos(np.pi * np.linspace(0, 1, GRID))
        self.grid, values = self._basis(grid), self._values(grid)
        self.scale = np.abs(values).max(axis=1, keepdims=True)
        self.scale[self.scale == 0] = 1.0
        self.on_grid = values / self.scale
        angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
        cosines = np.cos(np.outer(angles, np.arange(degree + 1))) * 2 / (degree + 1)
        self.interpolants = self._values(np.cos(angles)) @ cosines
        self.interpolants[:, 0] /= 2

    def _basis(self, t: Array) -> Array:
        found: Array = np.polynomial.chebyshev.chebvander(t, self.degree).astype(np.float64)
        return found

    def _values(self, t: Array) -> Array:
        return self.function.numpy(self.middle + self.half * t)

    def weighted(self, quantiles: Array) -> Array:
        """[C, degree + 1] the fits."""
        t = np.clip((between(quantiles) - self.middle) / self.half, -1, 1)
        basis, values = self._basis(t), self._values(t) / self.scale
        rows = basis.transpose(0, 2, 1)
        square, right = rows @ basis / t.shape[1], rows @ values[:, :, None] / t.shape[1]
        grid_square = self.grid.T @ self.grid / GRID
        grid_right = (self.on_grid @ self.grid / GRID)[:, :, None]
        usual, fits = self.interpolants / self.scale, self.interpolants.copy()
        bound = np.minimum(BOUND.error, BOUND.times * self._worst(usual, slice(None)))
        left = np.arange(len(fits))
        for floor in FLOORS:
            system = square[left] + floor * grid_square
            found = np.linalg.solve(system, right[left] + floor * grid_right[left])[:, :, 0]
            good = self._worst(found, left) <= bound[left]
            better = good & (
                _mean_square(basis[left], found, values[left])
                < _mean_square(basis[left], usual[left], values[left])
            )
            fits[left[better]] = found[better] * self.scale[left[better]]
            left = left[~good]
            if not len(left):
                break
        return fits

    def _worst(self, coefficients: Array, channels: slice | NDArray[np.intp]) -> Array:
        """[C] greatest error on the range."""
        errors: Array = np.abs(coefficients @ self.grid.T - self.on_grid[channels])
        return errors.max(axis=1)


def _mean_square(basis: Array, coefficients: Array, values: Array) -> Array:
    errors = (basis @ coefficients[:, :, None])[:, :, 0] - values
    return np.asarray(np.mean(np.square(errors), axis=1))
