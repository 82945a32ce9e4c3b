"""The passes that ``atlasc opt`` runs, by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from atlasc.passes.approximation.expand import Expand
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.scales import AssignScales
from atlasc.passes.pass_base import Pass

PASSES: dict[str, type[Pass]] = {
    kind.name: kind
    for kind in (
        Canonicalise,
        Expand,
        NormaliseAffine,
        FoldFeatures,
        AssignScales,
        Pack,
        PlaceBootstraps,
        RotationKeys,
    )
}
"""In the order in which ``compile`` runs them."""


def describe(kind: type[Pass]) -> tuple[str, str]:
    """A pass's options with their defaults (``levels=14,bootstrap=true``), and what it does."""
    options = ",".join(
        f"{field.name.replace('_', '-')}={_text(field.default)}"
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    )
    return options, " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
