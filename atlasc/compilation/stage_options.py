"""The options of commands that run a stage of ``compile`` alone.

The module imports no library at its top level, as :mod:`atlasc.compilation.options`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from atlasc.compilation.declared import documented, option, switch, title
from atlasc.compilation.options import BatchOptions, LimitOptions, TargetOptions
from atlasc.ir.errors import AtlasError
from atlasc.targets import DEFAULT, target_names


@documented
@dataclass(frozen=True, kw_only=True)
class InspectOptions(BatchOptions, TargetOptions):
    """How a model, or an IR text that is no program yet, is lowered to see its costs."""

    recipe: str = option("Named settings: is, nexus, thor, moai, arion or polaris.", default="is")
    target: str = option(
        f"Target whose costs are predicted: {', '.join(target_names())}.", default="",
        unset=f"{DEFAULT}; a program's own",
    )  # fmt: skip
    generate: bool = switch("Show the step of a decoder, for atlasc generate, not its window.")

    def filled(self) -> InspectOptions:
        """The same options with the target of a model that is not compiled yet."""
        return replace(self, target=self.target or DEFAULT)

    def require_lowered(self, what: str) -> None:
        """Raise AtlasError for options that say how a model is lowered, given for a program."""
        if self.generate:
            raise AtlasError(
                f"{what} is lowered already, and is no window of a decoder",
                remedy="leave --generate out; the step of a bundle is its folder step",
            )
        plain = replace(InspectOptions(), target=self.target, costs=self.costs)
        others = [f.name for f in fields(self) if getattr(self, f.name) != getattr(plain, f.name)]
        if others:
            raise AtlasError(
                f"{', '.join(title(self, name) for name in others)} changes nothing of {what}",
                why="it is lowered already, and this says how a model is lowered",
                remedy="leave the option out, or inspect the model itself",
            )


@documented
@dataclass(frozen=True, kw_only=True)
class LowerOptions(BatchOptions, LimitOptions, TargetOptions):
    """How an nn module or a model is lowered."""

    recipe: str | None = option("Recipe for ops that have no approximation yet.")
    settings: Path | None = option("front.json of a search; pick from it as compile does.")
    calibration: Path | None = option("Ranges: the file that calibrate -o wrote.")
    data: Path | None = option("Inputs by name (.npz), to measure magnitudes for bootstraps.")
