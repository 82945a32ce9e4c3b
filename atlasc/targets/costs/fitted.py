"""Costs of a backend whose key switches work on digits: measured seconds, and what lies between.

A key switch at level l works with d digits on p = r + k primes (r of the ciphertext, k special
ones): d p products with the key, and about p transforms before and after. Everything else is linear
in the primes of the ciphertext. That is the shape of a cost in the level; its few constants are
fitted to the table for each ring degree, and at measured parameter sets the fit is bent through the
measured seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.counting_engine import PRIMITIVES, Primitive
from atlasc.targets.chain import Chain
from atlasc.targets.costs.table import Bootstrap, CostTable, damaged

KEY = "key"
"""Makes one evaluation key; in a table beside the primitives."""
KEY_SWITCHES = ("rotate", "rotate_hoisted", "hoist", "mul", "square", KEY)
"""Primitives whose cost is of the digits of a key switch; all others are linear in the primes."""


class FittedCosts:
    """Costs by a cost table.

    Args:
        table: measured on some machine.
        read: a parameter set from what the table says of it.

    Raises:
        AtlasError: the table's parameter sets are not those of the backend.
    """

    def __init__(self, table: CostTable, read: Callable[[Mapping[str, Any]], Chain]) -> None:
        self.table = table
        try:
            self._sets = {read(one.parameters): one.seconds for one in table.sets}
        except AtlasError as error:
            raise damaged(table.path, error.what) from None
        self._fits: dict[tuple[int, str], NDArray[np.float64]] = {}

    def cost(self, parameters: Chain, primitive: str, level: int) -> float:
        """Seconds of one call.

        Args:
            parameters: which engine.
            primitive: as the counting engine names it, or ``key``.
            level: of the lower operand; of the result of a bootstrap; that a key reaches.

        Raises:
            AtlasError: the table does not have the primitive.
        """
        if primitive == "bootstrap":
            return self._bootstrap().seconds
        fitted = self._fitted(parameters, primitive, level)
        sets = (parameters, parameters.cost_substitute)
        found = next((self._sets[one] for one in sets if one in self._sets), {})
        measured = found.get(primitive)
        if measured is None:
            return fitted
        known = {at: s / self._fitted(parameters, primitive, at) for at, s in measured.items()}
        levels = sorted(known)
        return fitted * float(np.interp(level, levels, [known[at] for at in levels]))

    def costs(self, parameters: Chain) -> dict[tuple[Primitive, int], float]:
        """Costs of all primitives at all levels, for ``Counts.seconds``."""
        table: dict[tuple[Primitive, int], float] = {
            (primitive, level): self.cost(parameters, primitive, level)
            for primitive in PRIMITIVES
            if primitive != "bootstrap"
            for level in range(parameters.max_level + 1)
        }
        if parameters.bootstrap_level is not None:
            table["bootstrap", parameters.bootstrap_level] = self._bootstrap().seconds
        return table

    def key_seconds(
        self,
        parameters: Chain,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
    ) -> float:
        """Predicted time to make the keys of a program. ``rotations``: amount -> level."""
        levels = list(rotations.values())
        total = 0.0
        if parameters.bootstrap_level is not None:
            total = self._bootstrap().key_seconds
        elif relinearization_level is not None:
            levels.append(relinearization_level)
        return total + sum(self.cost(parameters, KEY, level) for level in levels)

    def _bootstrap(self) -> Bootstrap:
        if self.table.bootstrap is None:
            raise AtlasError(
                f"the cost table {self.table.path} does not tell what a bootstrap costs",
                remedy="measure it: for desilo with atlasc calibrate-backend --bootstrap",
            )
        return self.table.bootstrap

    def _fitted(self, parameters: Chain, primitive: str, level: int) -> float:
        key = (parameters.log_ring_degree, primitive)
        if key not in self._fits:
            self._fits[key] = self._fit(*key)
        return float(_terms(parameters, primitive, level) @ self._fits[key])

    def _fit(self, log_ring_degree: int, primitive: str) -> NDArray[np.float64]:
        """Constants of the shape, none negative: the least relative errors at one ring degree, or
        at all where none of it was measured.
        """
        from scipy.optimize import nnls

        rows = [
            (parameters, _terms(parameters, primitive, level) / seconds)
            for parameters, measured in self._sets.items()
            for level, seconds in measured.get(primitive, {}).items()
        ]
        if not rows:
            raise AtlasError(
                f"the cost table {self.table.path} has no seconds of {primitive}",
                remedy="measure again (docs/costs.md)",
            )
        same = [row for p, row in rows if p.log_ring_degree == log_ring_degree]
        matrix = np.array(same or [row for _, row in rows])
        constants, _ = nnls(matrix, np.ones(len(matrix)))
        return np.asarray(constants)


def _terms(parameters: Chain, primitive: str, level: int) -> NDArray[np.float64]:
    """The three numbers that the fitted constants multiply: products with a key, primes, 1."""
    scale = 2.0 ** (parameters.log_ring_degree - 16) * parameters.log_ring_degree / 16
    residues = float(parameters.residues(level))
    if primitive not in KEY_SWITCHES:
        return scale * np.array([0.0, residues, 1.0])
    primes = residues + parameters.special_primes
    return scale * np.array([parameters.digits(level) * primes, primes, 1.0])
