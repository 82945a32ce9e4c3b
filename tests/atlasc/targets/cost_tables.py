"""Cost tables for tests, by an exact law instead of a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from atlasc.program.counting_engine import COST_KINDS
from atlasc.targets.cost_table import Bootstrap, CostTable, Measured
from atlasc.targets.costs import KEY, KEY_SWITCHES
from atlasc.targets.machine import Machine
from atlasc_comparisons.desilo.parameters import DesiloParameters

MACHINE = Machine("Test 9000", 2, 16.0)


def law(parameters: DesiloParameters, primitive: str, level: int) -> float:
    """Seconds that follow the shape of the model: a key switch, or linear in the primes."""
    scale = parameters.ring_degree * parameters.log_ring_degree / 2**20
    if primitive not in KEY_SWITCHES:
        return scale * (2e-3 * (level + 2) + 1e-3)
    primes = level + 2 + parameters.special_primes
    return scale * primes * (1e-3 * parameters.digits(level) + 5e-3)


def table_of(
    sets: Iterable[DesiloParameters],
    seconds: Callable[[DesiloParameters, str, int], float] = law,
    **facts: object,
) -> CostTable:
    """A table measured at the top, the middle and the bottom of some sets."""
    names = [name for name in (*COST_KINDS, KEY) if not name.startswith("bootstrap")]
    measured = tuple(
        Measured(
            p.to_dict(),
            {
                n: {at: seconds(p, n, at) for at in (1, p.max_level // 2, p.max_level)}
                for n in names
            },
        )
        for p in sets
    )
    header = {"library": "1.17.0", "machine": MACHINE, "bootstrap": Bootstrap(30.0, 90.0, True)}
    return CostTable("desilo", date="2026-01-01", sets=measured, **{**header, **facts})  # type: ignore[arg-type]
