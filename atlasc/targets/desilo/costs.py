"""What a primitive of desilofhe costs; the shape of a cost is that of `fitted_costs`."""

from __future__ import annotations

from atlasc.passes.execution.counting_engine import Primitive
from atlasc.targets.costs.files import active_table, doubts
from atlasc.targets.costs.fitted import KEY, KEY_SWITCHES, FittedCosts, MeasuredSeconds
from atlasc.targets.costs.table import CostTable
from atlasc.targets.desilo.library import installed_version
from atlasc.targets.desilo.parameters import BOOTSTRAPPED, DesiloParameters

__all__ = ["KEY", "KEY_SWITCHES", "DesiloCosts", "active_costs", "cost_doubts", "cost_table"]

BACKEND = "desilo"


class DesiloCosts(FittedCosts[DesiloParameters]):
    """Costs by a cost table.

    Args:
        table: measured on some machine.

    Raises:
        AtlasError: the table's parameter sets are not those of desilofhe.
    """

    def __init__(self, table: CostTable) -> None:
        super().__init__(table, DesiloParameters.from_dict)

    def _measured(self, parameters: DesiloParameters) -> MeasuredSeconds:
        """Of this set; the set with bootstraps is otherwise as fast as the leveled one."""
        found = self._sets.get(parameters)
        if found is None and parameters == BOOTSTRAPPED:
            found = self._sets.get(DesiloParameters(16, 4))
        return found or {}


def active_costs() -> DesiloCosts:
    """Costs by the table in use (see :mod:`atlasc.targets.costs.files`)."""
    return DesiloCosts(active_table(BACKEND))


def cost_table(parameters: DesiloParameters) -> dict[tuple[Primitive, int], float]:
    """Costs of all primitives at all levels by the table in use."""
    return active_costs().costs(parameters)


def cost_doubts() -> list[str]:
    """Why the table in use may be wrong on this machine."""
    return doubts(BACKEND, installed_version())
