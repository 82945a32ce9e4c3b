"""Analyses of a module, whose results are attributes: statistics of calibration, and keys.

A pass declares which analyses it needs, keeps and makes (``passes/framework/pass_base.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atlasc.ir.module import IRLevel, Module, Op


@dataclass(frozen=True)
class Analysis:
    """An analysis, and the attributes that hold its result; see `Pass` for who needs and keeps it.

    Attributes:
        name: name in tables of the pipeline.
        level: level of the modules from which it is computed.
        of_ops, of_module: attributes of ops, and of the module, that hold its result.
    """

    name: str
    level: IRLevel
    of_ops: tuple[str, ...] = ()
    of_module: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """Name of the constant for the analysis in this module."""
        return self.name.upper().replace(" ", "_")

    def is_known(self, module: Module) -> bool:
        """Whether a module carries the result of the analysis."""
        return any(name in module.attributes for name in self.of_module) or any(
            name in op.attributes for op in module.ops for name in self.of_ops
        )


MAGNITUDES = Analysis("magnitudes", "poly", ("magnitude", "holds", "bound"))
NOISE_GAINS = Analysis("noise gains", "poly", ("mean", "noise_gain"))
KEY_PLAN = Analysis(
    "key plan",
    "ckks",
    of_module=(
        "rotations",
        "bootstrap_rotations",
        "composed_rotations",
        "derived_rotations",
        "root_levels",
        "relinearization_level",
        "conjugation_level",
        "key_memory",
    ),
)
ANALYSES = (MAGNITUDES, NOISE_GAINS, KEY_PLAN)

OBSERVED = (*MAGNITUDES.of_ops, *NOISE_GAINS.of_ops)
"""Attributes with statistics of calibration about a result. They do not change the computation."""


def observed(op: Op) -> dict[str, Any]:
    """The attributes of an op with statistics of calibration about its result."""
    return op.chosen(*OBSERVED)
