"""The passes that ``atlasc opt`` runs, by name."""

from __future__ import annotations

import dataclasses

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import IRLevel, Module
from atlasc.passes.approximation.approximate import Approximate
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.calibration.centre_keys import CentreKeys
from atlasc.passes.framework.pass_base import Pass, option_text
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.assign_scales import AssignScales
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.select_early import SelectEarly

PASSES: dict[str, type[Pass]] = {
    kind.name: kind
    for kind in (
        CentreKeys,
        Canonicalise,
        Approximate,
        Expand,
        NormaliseAffine,
        FoldFeatures,
        AssignScales,
        SelectEarly,
        Pack,
        GatherSums,
        PlaceBootstraps,
        RotationKeys,
    )
}
"""In the order in which ``compile`` runs them."""


TAKES: dict[str, IRLevel] = {
    "centre-keys": "nn",
    "canonicalise": "nn",
    "approximate": "nn",
    "expand": "nn",
    "normalise-affine": "poly",
    "fold-features": "poly",
    "assign-scales": "poly",
    "select-early": "poly",
    "pack": "poly",
    "gather-sums": "ckks",
    "place-bootstraps": "ckks",
    "rotation-keys": "ckks",
}
"""The level of the modules that a pass works on."""


def check_level(step: Pass, module: Module) -> None:
    """Refuse a module that a pass does not work on.

    Raises:
        AtlasError: the module is at another level, or a ckks module does not tell its slots.
    """
    wanted = TAKES[step.name]
    if module.level != wanted:
        fitting = [name for name, level in TAKES.items() if level == module.level]
        raise AtlasError(
            f"{step.name} works on {wanted} modules, @{module.name} is at the {module.level} level",
            remedy=f"passes for it: {', '.join(fitting)}",
        )
    if wanted == "ckks":
        require_slots(module)


def require_slots(module: Module) -> None:
    """Refuse a ckks module that does not tell its slots.

    Raises:
        AtlasError: it does not.
    """
    if "slots" not in module.attributes:
        raise AtlasError(
            f"@{module.name} does not tell the slots of its ciphertexts",
            remedy="give the module the attribute slots, as pack does",
        )


def describe(kind: type[Pass]) -> tuple[str, str]:
    """A pass's options with their defaults (``levels=14,bootstrap=true``), and what it does."""
    options = ",".join(
        f"{field.name.replace('_', '-')}={option_text(field.default)}"
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.metadata.get("option", True)
    )
    return options, " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())
