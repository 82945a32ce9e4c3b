"""Seconds of the primitives at a parameter set: measured at some levels, fitted in between.

A key switch at level l works with d digits on p = r + k primes (r of the ciphertext, k special
ones that it computes with): d p products with the key, and about p transforms before and after. All
other primitives are linear in the primes of the ciphertext. This gives the form of a cost as a
function of the level. Its few constants are fitted to the table for each ring degree; at measured
parameter sets the fit is bent to pass through the measured seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.program.costs import PrimitiveCosts
from atlasc.program.counting_engine import COST_KINDS, CostKind
from atlasc.targets.cost_table import Bootstrap, CostTable, active_table, damaged
from atlasc.targets.parameters import ParameterSet

KEY = "key"
SUBSTITUTES: dict[CostKind, tuple[CostKind, ...]] = {
    "transform_baby": ("rotate_hoisted",),
    "transform_giant": ("rotate",),
    "transform_product": ("mul_plain", "add"),
    "transform_dense": ("mul_plain", "add"),
    "transform_result": ("rescale",),
}
"""What a ``transform`` consists of on an engine that has none of its own. By a table without
seconds of its kinds it costs as much."""
LIKE: dict[CostKind, CostKind] = {"add_scalar": "add_plain"}
"""Kinds that a table may not tell apart. By a table without seconds of one it costs as the other
does."""
KEY_SWITCHES = ("rotate", "rotate_hoisted", "hoist", "mul", "square", KEY, *SUBSTITUTES)
"""Primitives whose cost grows with the digits of a key switch, or with the special primes; others
are linear in the primes of a ciphertext."""
BOOTSTRAPS: tuple[CostKind, ...] = ("bootstrap", "bootstrap_one", "bootstrap_narrow")
REFERENCE = ("rotate", "mul", "mul_plain", "rotate_hoisted")
"""Primitives by which two tables are compared."""
TRANSFORM = 10.0
"""Number of products of a residue that take as long as its number-theoretic transform."""


class FittedCosts:
    """Costs of a parameter set by a cost table.

    Args:
        table: a table, measured on some machine.
        parameters: a parameter set of the table's backend.

    Raises:
        AtlasError: the table's parameter sets belong to another backend.
    """

    def __init__(self, table: CostTable, parameters: ParameterSet) -> None:
        self.table, self.parameters = table, parameters
        try:
            sets = {parameters.from_dict(one.parameters): one.seconds for one in table.sets}
        except AtlasError as error:
            raise damaged(table.path, error.what) from None
        # A set with a bootstrap that was not measured is as fast as the leveled set.
        measured = parameters.measured_as
        known = (measured, replace(parameters, bootstrap=False))  # type: ignore[call-arg]
        self._sets = sets
        self._measured = next((sets[one] for one in known if one in sets), {})
        self._curves: dict[str, NDArray[np.float64]] = {}

    def cost(self, primitive: str, level: int) -> float:
        """Seconds of one call.

        Args:
            primitive: name in the counting engine, or ``key``.
            level: level of the lower operand; for a bootstrap, of its result; for a key, the
                highest level that it serves.

        Raises:
            AtlasError: the table lacks the primitive.
        """
        if primitive in BOOTSTRAPS:
            found, needs = self._bootstrap(), self.parameters.needs
            narrow = found.narrow_seconds if primitive == "bootstrap_narrow" else None
            one = found.one_seconds if primitive != "bootstrap" else None
            more = self._more_work(primitive)
            return (narrow or one or found.seconds) * more * needs.landing(primitive, level)
        if not any(primitive in one for one in self._sets.values()):
            if primitive in SUBSTITUTES:
                return sum(self.cost(part, level) for part in SUBSTITUTES[primitive])
            primitive = LIKE.get(primitive, primitive)  # type: ignore[call-overload]
        if primitive not in self._curves:
            self._curves[primitive] = self._curve(primitive)
        return float(self._curves[primitive][level])

    def _more_work(self, kind: str) -> float:
        """The work of a kind of bootstrap, as a multiple of that of the measured set."""
        work, measured = self.parameters.needs.work, self.parameters.measured_as.needs.work
        return work[kind] / measured[kind] if work else 1.0

    def costs(self) -> dict[tuple[CostKind, int], float]:
        """Seconds of all primitives at all levels, for ``Counts.seconds``."""
        every = range(self.parameters.max_level + 1)
        at: dict[str, Iterable[int]] = dict.fromkeys(COST_KINDS, every)
        at |= dict.fromkeys(BOOTSTRAPS, every if self.parameters.bootstrap else ())
        return {(name, level): self.cost(name, level) for name in COST_KINDS for level in at[name]}

    def key_seconds(
        self, rotations: Mapping[int, int], relinearization_level: int | None = None
    ) -> float:
        """Predicted seconds to make the keys of a program. ``rotations``: amount -> level."""
        levels, total = list(rotations.values()), 0.0
        if self.parameters.bootstrap:
            own, measured = self.parameters.needs, self.parameters.measured_as.needs
            total = self._bootstrap().key_seconds
            if own != measured:
                total *= own.memory["bootstrap_keys"] / measured.memory["bootstrap_keys"]
        elif relinearization_level is not None:
            levels.append(relinearization_level)
        return total + sum(self.cost(KEY, level) for level in levels)

    def _bootstrap(self) -> Bootstrap:
        if self.table.bootstrap is None:
            raise AtlasError(
                f"the cost table {self.table.path} has no seconds of a bootstrap",
                remedy="measure a bootstrap: for desilo with atlasc calibrate-backend --bootstrap",
            )
        return self.table.bootstrap

    def _curve(self, primitive: str) -> NDArray[np.float64]:
        """Seconds at each level, ``[levels]``.

        The constants of the fit are not negative and have the least relative errors: at this ring
        degree, or over all ring degrees if this one was not measured.
        """
        from scipy.optimize import nnls

        rows = [
            (one.log_ring_degree, _terms(one, primitive, level) / seconds)
            for one, measured in self._sets.items()
            for level, seconds in measured.get(primitive, {}).items()
        ]
        if not rows:
            raise AtlasError(
                f"the cost table {self.table.path} has no seconds of {primitive}",
                remedy="measure again (docs/costs.md)",
            )
        same = [row for ring, row in rows if ring == self.parameters.log_ring_degree]
        matrix = np.array(same or [row for _, row in rows])
        constants = nnls(matrix, np.ones(len(matrix)))[0]

        def fitted(levels: Iterable[int]) -> NDArray[np.float64]:
            return np.array([_terms(self.parameters, primitive, at) @ constants for at in levels])

        every, known = range(self.parameters.max_level + 1), self._measured.get(primitive)
        if not known:
            return fitted(every)
        levels = sorted(known)
        bends = np.array([known[level] for level in levels]) / fitted(levels)
        return fitted(every) * np.interp(every, levels, bends)


def _terms(parameters: ParameterSet, primitive: str, level: int) -> NDArray[np.float64]:
    """The terms that the fitted constants multiply: products with a key, primes, and 1."""
    scale = 2.0 ** (parameters.log_ring_degree - 16) * parameters.log_ring_degree / 16
    residues = float(parameters.residues(level))
    if primitive not in KEY_SWITCHES:
        return scale * np.array([0.0, residues, 1.0])
    special = parameters.special_primes if primitive == KEY else parameters.special_at(level)
    primes = residues + special
    digits = parameters.digits(level)
    return scale * np.array([digits * primes, primes, 1.0])


def ratio(table: CostTable, other: CostTable, kind: type[ParameterSet]) -> float:
    """How many times longer the key switches and products of one table take than those of another.

    This is the geometric mean over the levels that the first table has at its largest ring degree.
    """
    logs = []
    largest = max(one.parameters["log_ring_degree"] for one in table.sets)
    for one in table.sets:
        parameters = kind.from_dict(one.parameters)
        if parameters.log_ring_degree == largest:
            both = [FittedCosts(each, parameters) for each in (table, other)]
            for primitive in REFERENCE:
                for level in one.seconds[primitive]:
                    seconds = [fitted.cost(primitive, level) for fitted in both]
                    logs.append(np.subtract(*np.log(seconds)))
    return float(np.exp(np.mean(logs)))


# --- by the table in use


def fitted_costs(parameters: ParameterSet) -> FittedCosts | None:
    """Costs by the table in use for the set; None if there is no table.

    Raises:
        AtlasError: the table is missing or damaged.
    """
    table = active_table(parameters.family, parameters.cost_table)
    return None if table is None else FittedCosts(table, parameters)


def measured_costs(parameters: ParameterSet) -> PrimitiveCosts | None:
    """Seconds of all primitives at all levels; None without a cost table."""
    fitted = fitted_costs(parameters)
    return None if fitted is None else fitted.costs()


def costs_of(parameters: ParameterSet) -> PrimitiveCosts:
    """Measured costs; without a table relative costs, which can only be compared."""
    return measured_costs(parameters) or relative_costs(parameters)


def relative_costs(parameters: ParameterSet) -> PrimitiveCosts:
    """Costs by the number of residues that a primitive touches; 1 is a rotation at the top level.

    On average, the key switches of a bootstrap have half of the primes that it consumes.
    """
    table: dict[tuple[CostKind, int], float] = {}
    needs = parameters.needs

    def work(level: int) -> dict[CostKind, float]:
        special = parameters.special_at(level)
        return relative_work(parameters.residues(level), special, parameters.digits(level))

    middle = work((parameters.max_level + len(parameters.moduli.primes)) // 2)["rotate"]
    switches = (needs.key_switches, needs.key_switches_of_one, needs.key_switches_narrow)
    for level in range(parameters.max_level + 1):
        known = work(level)
        for name, count in zip(BOOTSTRAPS, switches, strict=True):
            known[name] = count * middle * needs.landing(name, level)
        table |= {(name, level): known[name] for name in COST_KINDS}
    top = table["rotate", parameters.max_level]
    return {key: cost / top for key, cost in table.items()}


def relative_work(residues: int, special: int, digits: int) -> dict[CostKind, float]:
    """Residues that each primitive touches, but a bootstrap, a transform counting as `TRANSFORM`.

    Args:
        residues, special: primes of a ciphertext, and special ones.
        digits: of a key switch.
    """
    wide = residues + special
    switch = 2 * digits * wide + 2 * (wide + residues) * TRANSFORM
    hoist = digits * wide * TRANSFORM  # the shared part of hoisted rotations
    known: dict[str, float] = dict.fromkeys(("rotate", "mul", "square"), hoist + switch)
    known |= {
        "rotate_hoisted": switch,
        "hoist": hoist,
        "rescale": 2 * residues * TRANSFORM,
        "mul_plain": (1 + TRANSFORM) * residues,
        "add_plain": TRANSFORM * residues,
    }
    found = {name: known.get(name, 2.0 * residues) for name in COST_KINDS}
    found |= {name: found[other] for name, other in LIKE.items()}
    return found | {name: sum(found[part] for part in SUBSTITUTES[name]) for name in SUBSTITUTES}
