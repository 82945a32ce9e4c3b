"""Recipes: named settings. `is` is the paper's; installed packages may add baselines.

A recipe gives each family of ops an algorithm and its settings. Settings come from the calibration.
Without a calibration they are the published ones, or a range stays open: then the depth can be
counted, but nothing can be evaluated.

Another package registers a recipe by an entry point of the group ``atlasc.recipes``, and the
algorithms that it uses by a module in the group ``atlasc.algorithms``. The package in ``plugins/``
has the recipes of published systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from atlasc.calibration.ranges import Range
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Op, family_of
from atlasc.ir.plugins import loaded, misnamed, plugins, require_own
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.polynomials.description import Activation, Approximation
from atlasc.polynomials.fits.chebyshev_sum import Interval
from atlasc.polynomials.fitted import covered, paper_ranges


class OpFacts(NamedTuple):
    """Facts about an op that a recipe may use.

    Attributes:
        op: name of the op, such as "nn.softmax".
        location: module path, for recipes that distinguish norms.
        range: range of the scores at temperature 1, of the variance (or mean square) plus epsilon,
            or of the argument; None without calibration.
        sums: softmax only: range of the row sums of exp(score - greatest score).
        width: softmax only: number of keys in a row.
        known: softmax only: the calibrated range with all statistics.
    """

    op: str
    location: str = ""
    range: Interval | None = None
    sums: Interval | None = None
    width: int = 128
    known: Range | None = None

    @staticmethod
    def of(op: Op, known: Range | None) -> OpFacts:
        """The facts of an op and of its calibrated range."""
        width = op.operands[0].tensor.shape[-1]
        if known is None:
            return OpFacts(op.name, op.location, width=width)
        sums = None if known.row_sums is None else covered(known.row_sums)
        return OpFacts(op.name, op.location, known.scores_at(0), sums, width, known)

    @property
    def greatest(self) -> float:
        """The greatest score; 0 without calibration."""
        return 0.0 if self.range is None else self.range[1]

    def log_keys(self, halvings: int) -> float | None:
        """See `Range.log_keys`; None without calibration."""
        return None if self.known is None else self.known.log_keys(halvings)

    def range_or(self, attention: Interval, output: Interval | None = None) -> Interval:
        """The calibrated range, or a published one; the norm after an MLP may have its own."""
        published = attention if "attention" in self.location else output or attention
        return self.range or published

    def exp_range(self, published: Interval) -> Interval:
        """The range of the shifted scores, at least (-1, 1), or a published one."""
        return (min(-1.0, self.range[0] - self.greatest), 1.0) if self.range else published


class Recipe(NamedTuple):
    """The algorithms and settings for each family of ops."""

    softmax: Callable[[OpFacts], Approximation]
    norm: Callable[[OpFacts], Approximation]
    activation: Callable[[OpFacts], Approximation]

    def approximation(self, facts: OpFacts) -> Approximation:
        """The approximation of an op: degree 511 for activations that the recipe does not cover."""
        chosen: Approximation = getattr(self, family_of(facts.op))(facts)
        if isinstance(chosen, Activation) and not chosen.covers(facts.op.removeprefix("nn.")):
            return ActivationApproximation(511, facts.range)
        return chosen


def iterative_softmax(known: Range | None) -> SoftmaxApproximation:
    """The softmax of the recipe `is`."""
    iterations = (5, 5, 5, 5, 7)
    if known is None:
        return SoftmaxApproximation(iterations)
    return SoftmaxApproximation(iterations, **paper_ranges(known, len(iterations)))


# The paper's expert setting: an iterative softmax (5,5,5,5,7), and degree 511 for the others.
# Cho et al. 2024, Fast and Accurate Homomorphic Softmax Evaluation (CCS 2024).
IS = Recipe(
    softmax=lambda facts: iterative_softmax(facts.known),
    norm=lambda facts: NormApproximation(511, facts.range),
    activation=lambda facts: ActivationApproximation(511, facts.range),
)
GROUP = "atlasc.recipes"


def recipe_names() -> tuple[str, ...]:
    """The names of all recipes, those of installed packages included."""
    return ("is", *(name for name in plugins(GROUP) if name != "is"))


def recipe(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        AtlasError: there is no such recipe; the recipe of an installed package cannot be used, or
            has the name of ours.
    """
    if name == "is":
        require_own(GROUP, name)
        return IS
    if name not in plugins(GROUP):
        raise AtlasError(
            f"there is no recipe {name!r}",
            remedy=f"use one of {', '.join(recipe_names())}; those of published systems are in the "
            "package atlasc-comparisons (plugins/)",
        )
    found: Recipe = loaded(
        plugins(GROUP)[name],
        lambda one: misnamed(name) if isinstance(one, Recipe) else "its object is no Recipe",
    )
    return found
