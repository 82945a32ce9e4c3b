"""Evaluates nonlinear ops with their approximations on NumPy arrays, in blocks that fit the cache.

An approximation runs as a row program if one can be recorded. Otherwise, and without the native
library, it is evaluated with NumPy's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.module import Op
from atlasc.ir.opdef import Site
from atlasc.ir.ops.masks import keep_mask
from atlasc.polynomials.arithmetic import NumpyArithmetic, Term
from atlasc.polynomials.description import Approximation, Softmax, applied
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.simulation.row_programs import NotRecordable, RowProgram, kept_terms

BLOCK = 1 << 16
"""Elements of a block, chosen so that temporaries fit into a core's second-level cache."""
PROGRAMS = 1 << 12
"""Number of row programs that are kept: for all ops of a model and all approximations of a
search.
"""


@dataclass(frozen=True)
class BlockArithmetic(NumpyArithmetic):
    """Cleartext evaluation that leaves out terms without effect.

    Inside its domain a Chebyshev sum changes by at most the sum of the coefficients that are left
    out, so trailing coefficients below the precision of the dtype are skipped: a GELU of degree 511
    has about 100 that matter. Outside the domain the sum is evaluated in full, because it explodes
    there.
    """

    def step(self, name: str, *operands: Any, constant: Any = None) -> Any:
        """The result of an operation."""
        if name == "row_sum":  # nothing cancels here (norms get centred rows), so no wider type
            return np.einsum("...i->...", operands[0])[..., None]
        if name == "chebyshev":
            return self._chebyshev(operands[0], constant)
        return super().step(name, *operands, constant=constant)

    def _chebyshev(self, a: np.ndarray, total: ChebyshevSum) -> np.ndarray:
        """The sum without the terms that have no effect.

        Which terms count depends on each element alone, so that results do not depend on how inputs
        are divided among threads or workers.
        """
        domain, coefficients = total.domain, total.coefficients
        kept = coefficients.shape[-1]
        if coefficients.ndim == 1:
            kept = kept_terms(coefficients, self.dtype)
        short = ChebyshevSum.of(coefficients[..., :kept], domain)
        result = super().step("chebyshev", a, constant=short)
        if kept < coefficients.shape[-1] and not (domain[0] <= a.min() and a.max() <= domain[1]):
            outside = ~((domain[0] <= a) & (a <= domain[1]))
            result[outside] = super().step("chebyshev", a[outside], constant=total)
        return result


class Blockwise:
    """Evaluates nonlinear ops row by row on several threads.

    Args:
        dtype: float32 or float64.
        threads: number of threads for the blocks of one tensor.
        limit: magnitude from which a result counts as exploded.
    """

    def __init__(self, dtype: Any, threads: int, limit: float) -> None:
        self.arithmetic = BlockArithmetic(np.dtype(dtype).type, 1)
        self.limit = limit
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._programs: dict[tuple[Op, Approximation], RowProgram | None] = {}
        self._lock = Lock()

    def evaluate(
        self,
        op: Op,
        site: Site,
        arrays: list[np.ndarray],
        approximation: Approximation,
        exploded: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """The op's result on its operands, or None if it explodes; see `on_rows`."""
        x, keep = arrays[0], None
        if isinstance(approximation, Softmax):
            keep = keep_mask(site, *arrays)
        return self.on_rows(op, site, x, approximation, keep, exploded)

    def on_rows(
        self,
        op: Op,
        site: Site,
        x: np.ndarray,
        approximation: Approximation,
        keep: np.ndarray | None = None,
        exploded: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """The result for any rows of the op's argument, or None if it explodes or is not finite.

        Args:
            op, site: the op.
            x: [..., n] rows of its argument.
            approximation: the approximation.
            keep: softmax only: the keys that each query may see, broadcast to x; None for all.
            exploded: [N] for the N inputs in x; set to True for inputs that explode. Their rows
                become zeros, which are harmless later. None if the inputs are not watched.
        """
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        result, size = np.empty_like(rows), max(1, BLOCK // x.shape[-1])
        kept = None
        if keep is not None and not keep.all():
            kept = np.broadcast_to(keep, x.shape).reshape(rows.shape)
        watched = None if exploded is None else np.zeros(len(rows), dtype=np.bool_)
        algorithm = algorithm_of(op, site, approximation)
        program = self._program((op, approximation), algorithm)

        def work(start: int) -> bool:
            block = slice(start, start + size)
            seen = None if kept is None else kept[block]
            found = None if watched is None else watched[block]
            if program is not None:
                return program.run(rows[block], seen, result[block], self.limit, found)
            arithmetic, y = replace(self.arithmetic, keep=seen), result[block]
            with np.errstate(all="ignore"):
                y[...] = arithmetic.run(algorithm, rows[block])
            # A comparison with NaN is false.
            finite = (np.abs(y) <= self.limit).all(axis=-1)
            if found is not None:
                found[:] = ~finite
            return bool(finite.all())

        starts = range(0, len(rows), size)
        done = map(work, starts) if self._pool is None else self._pool.map(work, starts)
        if exploded is None or watched is None:
            return result.reshape(x.shape) if all(done) else None
        if not all(list(done)):
            of_inputs: NDArray[np.bool_] = np.any(watched.reshape(len(exploded), -1), axis=1)
            exploded |= of_inputs
            result.reshape(len(exploded), -1)[of_inputs] = 0
        return result.reshape(x.shape)

    def _program(
        self, key: tuple[Op, Approximation], algorithm: Callable[[Term], Term]
    ) -> RowProgram | None:
        """The row program of an approximation, or None if it has none.

        Parts of the inputs ask at the same time. All must get the same answer, because NumPy's path
        differs in the last bits.
        """
        with self._lock:
            if key not in self._programs:
                program = None
                with suppress(NotRecordable):
                    program = RowProgram(self.arithmetic.dtype, algorithm)
                if len(self._programs) >= PROGRAMS:
                    self._programs.clear()
                self._programs[key] = program
            return self._programs[key]


def algorithm_of(op: Op, site: Site, approximation: Approximation) -> Callable[[Term], Term]:
    """The function of an op under its approximation, with the constants of its site."""
    constants = [site.constant(name) for name in ("gamma", "beta") if name in site.attributes]
    return lambda x: applied(op, approximation, x, *constants)
