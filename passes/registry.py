"""The pipeline: one list of passes, which everything that runs or shows passes reads."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import Approximate
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.calibration.centre_keys import CentreKeys
from atlasc.passes.framework.pass_base import Pass
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.assign_scales import AssignScales
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.merge_equal_ops import MergeEqualOps
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.select_early import SelectEarly

PIPELINE: tuple[type[Pass], ...] = (
    Canonicalise,
    CentreKeys,
    Approximate,
    Expand,
    NormaliseAffine,
    FoldFeatures,
    MergeEqualOps,
    AssignScales,
    SelectEarly,
    Pack,
    GatherSums,
    PlaceBootstraps,
    RotationKeys,
)
"""In the order in which they run. What a pass takes, needs and keeps is declared in its class."""

PASSES: dict[str, type[Pass]] = {kind.name: kind for kind in PIPELINE}
"""By name, as ``atlasc opt`` runs them."""

WHEN = {
    "always": "always",
    "settings": "with what a calibration or a search has chosen",
    "cheaper": "where the program then costs less",
}
TABLE_MARKS = ("<!-- passes: begin -->", "<!-- passes: end -->")
"""Around the table of ``passes_table`` in a document."""


def check_level(step: Pass, module: Module) -> None:
    """Refuse a module that a pass does not work on.

    Raises:
        AtlasError: the module is at another level, or a ckks module does not tell its slots.
    """
    if module.level != step.takes:
        fitting = [kind.name for kind in PIPELINE if kind.takes == module.level]
        raise AtlasError(
            f"{step.name} works on {step.takes} modules, @{module.name} is at the {module.level} "
            "level",
            remedy=f"passes for it: {', '.join(fitting)}",
        )
    if step.takes == "ckks":
        require_slots(module)


def require_slots(module: Module) -> None:
    """Refuse, with an AtlasError, a ckks module that does not tell its slots."""
    if "slots" not in module.attributes:
        raise AtlasError(
            f"@{module.name} does not tell the slots of its ciphertexts",
            remedy="give the module the attribute slots, as pack does",
        )


def describe(kind: type[Pass]) -> tuple[str, str]:
    """A pass's options with their defaults (``levels=14,bootstrap=true``), and what it does."""
    return kind().options, " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())


def passes_table() -> str:
    """The pipeline as a table in Markdown."""
    rows = ["| Pass | Level | Needs | Runs | What it does |", "|---|---|---|---|---|"]
    root = Path(__file__).resolve().parent
    for kind in PIPELINE:
        file = Path(inspect.getfile(kind)).resolve().relative_to(root).as_posix()
        levels = kind.takes if kind.gives is None else f"{kind.takes} → {kind.gives}"
        needs = ", ".join(analysis.name for analysis in kind.needs)
        name, what = f"[`{kind.name}`](../passes/{file})", describe(kind)[1]
        rows.append(f"| {name} | {levels} | {needs} | {WHEN[kind.when]} | {what} |")
    return "\n".join(rows)


def with_passes_table(document: str) -> str:
    """A document with the table between its marks brought up to date."""
    begin, end = TABLE_MARKS
    before, _, rest = document.partition(begin)
    return f"{before}{begin}\n{passes_table()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        place.write_text(with_passes_table(place.read_text(encoding="utf-8")), encoding="utf-8")
