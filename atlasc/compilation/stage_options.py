"""The options of commands that run a stage of ``compile`` alone.

The module imports no library at its top level, as :mod:`atlasc.compilation.options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atlasc.compilation.declared import documented, option, switch
from atlasc.compilation.options import BatchOptions, LimitOptions, TargetOptions


@documented
@dataclass(frozen=True, kw_only=True)
class InspectOptions(BatchOptions, TargetOptions):
    """How a model, or an IR text that is no program yet, is lowered to see its costs."""

    recipe: str = option("Named settings: is, nexus, thor, moai, arion or polaris.", default="is")
    generate: bool = switch("Show the step of a decoder, for atlasc generate, not its window.")


@documented
@dataclass(frozen=True, kw_only=True)
class LowerOptions(BatchOptions, LimitOptions, TargetOptions):
    """How an nn module or a model is lowered."""

    recipe: str | None = option("Recipe for ops that have no approximation yet.")
    settings: Path | None = option("front.json of a search; pick from it as compile does.")
    calibration: Path | None = option("Ranges: the file that calibrate -o wrote.")
    data: Path | None = option("Inputs by name (.npz), to measure magnitudes for bootstraps.")
