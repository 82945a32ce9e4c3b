"""Named settings: the paper's `is` and those of published systems, as baselines to compare with.

A recipe turns what calibration measured into approximations; without measurements it falls back on
the published ranges, or leaves the range open, so that the depth of a bare configuration can be
computed.

Depth of one BERT layer (softmax + two LayerNorms + GELU) in the paper's convention:

========= ======================= ==========================================
recipe    a layer                 published total for BERT-base (12 layers)
========= ======================= ==========================================
is        57 + 2*17 + 10 = 101    1212, reproduced
nexus     17 + 2*22 + 18 = 79     948, reproduced
thor      41 + 17 + 19 + 12 = 89  1070, where we get 1068 (see `Thor`)
moai      19 + 2*22 + 6 = 69      none known to us
arion     22 + 2*17 + 9 = 65      none known to us
polaris   18 + 2*14 + 7 = 53      none known to us; settings assumed
========= ======================= ==========================================
"""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.algorithms.iterative_softmax import SoftmaxApproximation
from atlasc.passes.approximation.algorithms.norm import NormApproximation
from atlasc.passes.approximation.description import Norm, Softmax
from atlasc.passes.approximation.fits.chebyshev_sum import Interval
from atlasc.passes.approximation.recipes.base import Recipe, default_shift
from atlasc.passes.approximation.recipes.published import Arion, Moai, Nexus, Polaris, Thor

__all__ = ["RECIPES", "IterativeSoftmaxRecipe", "Recipe", "recipe"]


class IterativeSoftmaxRecipe(Recipe):
    """The paper's expert setting: iterative softmax (5,5,5,5,7), degree 511 for norms and
    activations.
    """

    name = "is"
    source = "Cho et al. 2024, Fast and Accurate Homomorphic Softmax Evaluation (CCS 2024)"

    def softmax(
        self,
        layer: int | None = None,
        *,
        shift: float | None = None,
        scores: Interval | None = None,
        width: int | None = None,
        sums: Interval | None = None,
    ) -> Softmax:
        """See `Recipe.softmax`."""
        return SoftmaxApproximation((5, 5, 5, 5, 7), shift=default_shift(shift, scores))

    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """See `Recipe.norm`."""
        return NormApproximation(511, value_range)


RECIPES: dict[str, Recipe] = {
    r.name: r for r in (IterativeSoftmaxRecipe(), Nexus(), Thor(), Moai(), Arion(), Polaris())
}


def recipe(name: str) -> Recipe:
    """The recipe of that name; raises AtlasError with the known names otherwise."""
    try:
        return RECIPES[name]
    except KeyError:
        raise AtlasError(
            f"there is no recipe {name!r}", remedy=f"use one of {', '.join(RECIPES)}"
        ) from None
