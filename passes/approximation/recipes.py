"""Named settings: the paper's `is` and those of published systems, as baselines to compare with.

A recipe is a table: for each family of ops an algorithm and its settings. A setting is a value, or
a rule that takes it from what calibration measured. Without measurements the published ranges are
used, or the range stays open, so that the depth of a bare configuration can be computed.

Depth of one BERT layer (softmax + two LayerNorms + GELU) in the paper's convention:

========= ======================= ==========================================
recipe    a layer                 published total for BERT-base (12 layers)
========= ======================= ==========================================
is        57 + 2*17 + 10 = 101    1212, reproduced
nexus     17 + 2*22 + 18 = 79     948, reproduced
thor      41 + 17 + 19 + 12 = 89  1070, where we get 1068 (see `thor` below)
moai      19 + 2*22 + 6 = 69      none known to us
arion     22 + 2*17 + 9 = 65      none known to us
polaris   18 + 2*14 + 7 = 53      none known to us; settings assumed
========= ======================= ==========================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Op
from atlasc.passes.approximation.algorithms.chebyshev import (
    ActivationApproximation,
    ChebyshevNewtonNorm,
    ChebyshevSoftmax,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.passes.approximation.algorithms.nexus import (
    LineNewtonNorm,
    PowerSoftmax,
    SignPiecewiseActivation,
)
from atlasc.passes.approximation.algorithms.thor import (
    AdaptiveNorm,
    AdaptiveSoftmax,
    CompositeActivation,
)
from atlasc.passes.approximation.description import Activation, Approximation, family_of
from atlasc.passes.approximation.fits.chebyshev_sum import Interval
from atlasc.passes.calibration.ranges import Range


class Facts(NamedTuple):
    """What a recipe may ask of an op.

    Attributes:
        op: its name, such as "nn.softmax".
        location: module path, for recipes that tell norms apart.
        range: of the scores, of the variance (or mean square) plus epsilon, or of the argument;
            None without calibration.
        sums: softmax only: range of the row sums of exp(score - greatest score).
        width: softmax only: keys in a row.
    """

    op: str
    location: str = ""
    range: Interval | None = None
    sums: Interval | None = None
    width: int = 128

    @staticmethod
    def of(op: Op, known: Range | None) -> Facts:
        """The facts of an op and of its calibrated range."""
        width = op.operands[0].tensor.shape[-1]
        if known is None:
            return Facts(op.name, op.location, width=width)
        return Facts(op.name, op.location, (known.low, known.high), known.row_sums, width)

    @property
    def greatest(self) -> float:
        """The greatest score; 0 without calibration."""
        return 0.0 if self.range is None else self.range[1]


Rule = Callable[[Facts], Any]
Choice = Callable[[Facts], Approximation]


class Recipe(NamedTuple):
    """What the ops of each family get."""

    softmax: Choice
    norm: Choice
    activation: Choice

    def approximation(self, facts: Facts) -> Approximation:
        """The approximation of an op."""
        chosen: Choice = getattr(self, family_of(facts.op))
        return chosen(facts)


def choice(algorithm: type[Approximation], **settings: Any | Rule) -> Choice:
    """An algorithm and its settings; activations that it does not cover get `FULL`."""

    def chosen(facts: Facts) -> Approximation:
        if issubclass(algorithm, Activation) and not algorithm.covers(facts.op.removeprefix("nn.")):
            return FULL(facts)
        return algorithm(**{n: v(facts) if callable(v) else v for n, v in settings.items()})

    return chosen


measured: Rule = attrgetter("range")
greatest: Rule = attrgetter("greatest")


def measured_or(default: Interval, of_outputs: Interval | None = None) -> Rule:
    """The calibrated range, or a published one; norms after an MLP may have one of their own."""
    return lambda facts: (
        facts.range or (default if "attention" in facts.location else of_outputs or default)
    )


def exp_range(published: Interval) -> Rule:
    """The range of the shifted scores, at least (-1, 1), or a published one."""
    return lambda facts: (
        (min(-1.0, facts.range[0] - facts.greatest), 1.0) if facts.range else published
    )


def _middle_of_sums(facts: Facts) -> float:
    # |1 - s / divisor| is smallest over an interval when the divisor is its middle.
    return 100.0 if facts.sums is None else (facts.sums[0] + facts.sums[1]) / 2


def _thor_rounds(facts: Facts) -> int:
    # The published range of scores (-70, 70) takes 2.
    return 1 if facts.range is None or facts.range[1] - facts.range[0] <= 50 else 2


def _thor_epsilon(facts: Facts) -> float:
    rounds = _thor_rounds(facts)
    if facts.range is None or facts.sums is None:
        return 2.0 ** (-11 if rounds == 1 else -18)
    # With z = (x - greatest) / 2^r: sum e^z >= (sum e^(x - greatest))^(1/2^r).
    return min(0.5, facts.sums[0] ** (0.5**rounds) / facts.width)


def _moai_shift(facts: Facts) -> float:
    if facts.range is None:
        return 8.1
    # Moves the sums into (0, 2); they are at most `width` where the greatest score is subtracted.
    sums = facts.width if facts.sums is None else facts.sums[1]
    return facts.greatest + math.log(sums / 1.9)


FULL = choice(ActivationApproximation, degree=511, range=measured)

RECIPES = {
    # The paper's expert setting: iterative softmax (5,5,5,5,7), degree 511 for the others. Cho et
    # al. 2024, Fast and Accurate Homomorphic Softmax Evaluation (CCS 2024).
    "is": Recipe(
        softmax=choice(SoftmaxApproximation, iterations=(5, 5, 5, 5, 7), shift=greatest),
        norm=choice(NormApproximation, degree=511, range=measured),
        activation=FULL,
    ),
    # Zhang et al., Secure Transformer Inference Made Non-interactive (NDSS 2025; code
    # zju-abclab/NEXUS). Softmax 17: x/128 and 7 squarings 8, mask of the sum 1, 0.01 times the sum
    # 1, inverse 5, 0.01 again 1, product 1. LayerNorm 22: two means 4 and a square 1, a line 1, 4
    # Newton steps 8, Goldschmidt 1 + 2*2 + 1, product and gamma 2. GELU 18: division 1, four
    # polynomials of degree 9 at 4, product 1.
    # NEXUS measures no ranges. We scale each norm into the range on which its constants converge,
    # which is free.
    "nexus": Recipe(
        softmax=choice(PowerSoftmax, shift=greatest, divisor=_middle_of_sums),
        norm=choice(LineNewtonNorm, range=measured),
        activation=choice(SignPiecewiseActivation, range=measured_or((-5.0, 5.0))),
    ),
    # Moon et al., THOR (eprint 2024/1881; code crypto-starlab/THOR), with its BERT ranges. Softmax
    # 41: exponential 5 and a squaring 1, sum 1, 8 steps of the inverse 16, product and square 2,
    # sum 1, 7 steps 14, product 1. LayerNorm 17 (attention, 5 steps) and 19 (output, 6 steps). GELU
    # 12: 1 + 5 + 5 + 1. For BERT-base their code also uses a range of (0.75, 2500) for the output
    # norm of two layers, one step of 2 more in each (1072), and 4 rounds for the softmax of one (21
    # more); which of these the published figure counts we do not know.
    "thor": Recipe(
        softmax=choice(
            AdaptiveSoftmax,
            score_range=measured_or((-27.2493, 21.72692)),
            rounds=_thor_rounds,
            epsilon=_thor_epsilon,
            width=attrgetter("width"),
        ),
        norm=choice(AdaptiveNorm, range=measured_or((0.15, 10.0), of_outputs=(0.2, 150.0))),
        activation=choice(CompositeActivation, range=measured_or((-32.0, 32.0))),
    ),
    # Zhang et al., MOAI (ICLR 2026, eprint 2025/991; code dtc2025ag/MOAI_GPU). Softmax 19: NEXUS's
    # exponential 8, sum 1, inverse with 8 steps 9, product 1; a constant is subtracted so that the
    # sum needs no divisor (8.1 in the code). The steps are a parameter of the code; 8 is what its
    # test of the inverse uses. Norms 22, as NEXUS. GELU 6: one polynomial of degree 24, whose
    # coefficients are our Chebyshev fit.
    "moai": Recipe(
        softmax=choice(PowerSoftmax, steps=8, divisor=1.0, shift=_moai_shift),
        norm=choice(LineNewtonNorm, range=measured),
        activation=choice(ActivationApproximation, degree=24, range=measured),
    ),
    # Arion: Attention-Optimized Transformer Inference on Encrypted Data (code hangenba/Arion), with
    # the code's BERT-base ranges. Softmax 22: exponential of degree 63 on (-60, 15) 7, sum 1,
    # inverse of degree 255 on (0.02, 400) 9 and 2 Newton steps 4, product 1; 2.08 is subtracted
    # from the scores. LayerNorm 17: 7 around 1/sqrt of degree 31 (6) and 2 Newton steps (4), on
    # (0.001, 2.1) after attention and (0.5, 2500) after the MLP. GELU 9: degree 255 on (-61, 136).
    "arion": Recipe(
        softmax=choice(
            ChebyshevSoftmax,
            shift=lambda facts: 2.08 if facts.range is None else facts.greatest,
            exp_degree=63,
            exp_range=exp_range((-60.0, 15.0)),
            inverse_degree=255,
            inverse_range=lambda facts: facts.sums or (0.02, 400.0),
            newton_steps=2,
        ),
        norm=choice(
            ChebyshevNewtonNorm,
            degree=31,
            newton_steps=2,
            range=measured_or((0.001, 2.1), of_outputs=(0.5, 2500.0)),
        ),
        activation=choice(
            ActivationApproximation, degree=255, range=measured_or((-61.0, 136.0))
        ),
    ),
    # Stand-in for POLARIS: neither its paper nor its code could be consulted. Assumed: one
    # Chebyshev sum for each function and no iterations. Softmax 18: exponential of degree 31 (6),
    # sum 1, inverse of degree 511 (10), product 1; norms and activation of degree 63 (14 and 7). Do
    # not read figures of this recipe as POLARIS's.
    "polaris": Recipe(
        softmax=choice(
            ChebyshevSoftmax,
            shift=greatest,
            exp_degree=31,
            exp_range=exp_range((-40.0, 1.0)),
            inverse_degree=511,
            inverse_range=lambda facts: facts.sums or (0.1, 2.0 * facts.width),
        ),
        norm=choice(NormApproximation, degree=63, range=measured),
        activation=choice(ActivationApproximation, degree=63, range=measured),
    ),
}  # fmt: skip


def recipe(name: str) -> Recipe:
    """The recipe of that name; raises AtlasError with the known names otherwise."""
    if name not in RECIPES:
        raise AtlasError(f"there is no recipe {name!r}", remedy=f"use one of {', '.join(RECIPES)}")
    return RECIPES[name]
