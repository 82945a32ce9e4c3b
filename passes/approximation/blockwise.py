"""Nonlinear ops under their approximations, on NumPy arrays, in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.functions import keep_mask
from atlasc.ir.module import Op
from atlasc.ir.opdef import Site
from atlasc.passes.approximation.arithmetic import Interval, NumpyArithmetic
from atlasc.passes.approximation.description import Activation, Approximation, Norm, Softmax
from atlasc.passes.approximation.expand import activation_function

BLOCK = 1 << 16
"""Elements of a block: its temporaries fit into a core's second-level cache."""
LEAST_TRUNCATED = 32

BlockFunction = Callable[[np.ndarray, slice], np.ndarray]
"""From rows of a tensor, and which ones they are, to the rows of the result."""


@dataclass(frozen=True)
class BlockArithmetic(NumpyArithmetic):
    """Evaluation in the clear that leaves out what cannot be seen.

    Inside its domain a Chebyshev sum changes by at most the sum of the coefficients left out, so
    trailing ones below the precision of the dtype are skipped: a GELU of degree 511 has about 100
    that matter. Outside the domain the sum is evaluated in full, as it explodes there.
    """

    def row_sum(self, a: NDArray[Any]) -> NDArray[Any]:
        """Sum over the last axis. Nothing cancels here (norms get centred rows): no wider type."""
        return np.einsum("...i->...", a)[..., None]

    def chebyshev(
        self, a: NDArray[Any], coefficients: NDArray[np.float64], domain: Interval
    ) -> NDArray[Any]:
        """The sum, without the terms that do not count."""
        if len(coefficients) > LEAST_TRUNCATED:
            kept = significant(coefficients, np.finfo(self.dtype).eps / 128)
            if kept < len(coefficients) and domain[0] <= a.min() and a.max() <= domain[1]:
                coefficients = coefficients[:kept]
        return super().chebyshev(a, coefficients, domain)


def significant(coefficients: NDArray[np.float64], tolerance: float) -> int:
    """How many leading coefficients leave a rest below tolerance times the sum of all."""
    rest = np.cumsum(np.abs(coefficients[::-1]))
    return max(1, len(coefficients) - int(np.searchsorted(rest, tolerance * rest[-1])))


class Blockwise:
    """Evaluates nonlinear ops row by row on several threads.

    Args:
        dtype: float32 or float64.
        threads: how many work on the blocks of one tensor.
        limit: magnitude from which a result counts as exploded.
    """

    def __init__(self, dtype: Any, threads: int, limit: float) -> None:
        self.arithmetic = BlockArithmetic(np.dtype(dtype).type, 1)
        self.limit = limit
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def evaluate(
        self, op: Op, site: Site, arrays: list[np.ndarray], approximation: Approximation
    ) -> np.ndarray | None:
        """The op's result, or None if it explodes or is not finite."""
        x = arrays[0]
        if isinstance(approximation, Softmax):
            keep = keep_mask(site, x, arrays[1] if len(arrays) > 1 else None)
            return self._map(self._softmax(approximation, keep, x), x)
        return self._map(self._block_function(op, site, approximation), x)

    def _softmax(
        self, approximation: Softmax, keep: np.ndarray | None, scores: np.ndarray
    ) -> BlockFunction:
        if keep is None or keep.all():
            return lambda rows, block: approximation.apply(self.arithmetic, rows)
        kept = np.broadcast_to(keep, scores.shape).reshape(-1, scores.shape[-1])
        fill = scores.dtype.type(approximation.mask_fill)

        def masked(rows: np.ndarray, block: slice) -> np.ndarray:
            arithmetic = replace(self.arithmetic, keep=kept[block])
            return approximation.apply(arithmetic, np.where(kept[block], rows, fill))

        return masked

    def _block_function(self, op: Op, site: Site, approximation: Approximation) -> BlockFunction:
        arithmetic = self.arithmetic
        if isinstance(approximation, Activation):
            function = activation_function(op)
            return lambda rows, block: approximation.apply(arithmetic, rows, function)
        assert isinstance(approximation, Norm)
        gamma = site.constant("gamma", arithmetic.dtype)
        beta = site.constant("beta", arithmetic.dtype) if "beta" in site.attributes else None
        epsilon, centred = site.attributes["epsilon"], op.name == "nn.layer_norm"

        def norm(rows: np.ndarray, block: slice) -> np.ndarray:
            # As `expand` emits it: centring, then the norm of a mean square.
            if centred:
                rows = rows - rows.mean(axis=-1, keepdims=True)
            return approximation.apply(
                arithmetic, rows, "nn.rms_norm", rows.shape[-1], epsilon, gamma, beta
            )

        return norm

    def _map(self, function: BlockFunction, x: np.ndarray) -> np.ndarray | None:
        rows = x.reshape(-1, x.shape[-1])
        size = max(1, BLOCK // rows.shape[1])
        if len(rows) <= size:
            y = self._checked(function, rows, slice(None))
            return None if y is None else y.reshape(x.shape)
        result = np.empty_like(rows)

        def work(start: int) -> bool:
            block = slice(start, start + size)
            y = self._checked(function, rows[block], block)
            if y is not None:
                result[block] = y
            return y is not None

        starts = range(0, len(rows), size)
        done = map(work, starts) if self._pool is None else self._pool.map(work, starts)
        return result.reshape(x.shape) if all(done) else None

    def _checked(
        self, function: BlockFunction, rows: np.ndarray, block: slice
    ) -> np.ndarray | None:
        with np.errstate(all="ignore"):
            y = function(rows, block)
            # A comparison with a value that is not a number is false.
            return y if y.max() <= self.limit and -self.limit <= y.min() else None
