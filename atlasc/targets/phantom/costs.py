"""What a primitive of the C++ runtime on Phantom-FHE costs: a table that was measured on a GPU.

``--costs FILE`` names one, in the format of :mod:`cost_table` with the backend ``phantom`` and
parameters as :class:`PhantomParameters` writes them.
"""

from __future__ import annotations

from atlasc.targets.costs.files import known_table
from atlasc.targets.costs.fitted import FittedCosts
from atlasc.targets.phantom.parameters import PhantomParameters

BACKEND = "phantom"


def active_costs() -> FittedCosts[PhantomParameters] | None:
    """Costs by the table in use; None where nobody measured.

    Raises:
        AtlasError: the table is damaged.
    """
    table = known_table(BACKEND)
    return None if table is None else FittedCosts(table, PhantomParameters.from_dict)
