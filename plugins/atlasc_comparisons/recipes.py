"""Recipes of published systems, as baselines to compare with.

Settings come from the calibration. Without a calibration they are the published ones, or a range
stays open: then the depth can be counted, but nothing can be evaluated.

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

from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    ChebyshevNewtonNorm,
    ChebyshevSoftmax,
    NormApproximation,
)
from atlasc.polynomials.description import Approximation
from atlasc.polynomials.recipes import OpFacts, Recipe
from atlasc_comparisons.nexus import LineNewtonNorm, PowerSoftmax, SignPiecewiseActivation
from atlasc_comparisons.thor import AdaptiveNorm, AdaptiveSoftmax, CompositeActivation


def _nexus_softmax(facts: OpFacts) -> Approximation:
    # |1 - s / divisor| is least over an interval of s where the divisor is its middle.
    divisor = 100.0 if facts.sums is None else sum(facts.sums) / 2
    return PowerSoftmax(divisor=divisor, shift=facts.greatest, log_keys=facts.log_keys(0))


def _thor_softmax(facts: OpFacts) -> Approximation:
    # The published range of scores (-70, 70) takes 2 rounds.
    known = facts.known
    if known is None or facts.sums is None:
        return AdaptiveSoftmax(width=facts.width)
    rounds = 1 if known.high - known.low <= 50 else 2
    scores, least = known.scores_at(rounds), facts.sums[0] ** (0.5**rounds)
    if known.log_sums is not None:
        least = math.exp(known.log_sums[rounds][0] - scores[1] / 2**rounds)
    epsilon = min(0.5, least / facts.width)
    return AdaptiveSoftmax(
        scores, rounds, epsilon=epsilon, width=facts.width, log_keys=facts.log_keys(rounds)
    )


def _moai_softmax(facts: OpFacts) -> Approximation:
    # The shift moves the sums into (0, 2). They are at most `width` where it is the greatest score.
    sums = facts.width if facts.sums is None else facts.sums[1]
    shift = 8.1 if facts.range is None else facts.greatest + math.log(sums / 1.9)
    return PowerSoftmax(steps=8, divisor=1.0, shift=shift, log_keys=facts.log_keys(0))


def _arion_softmax(facts: OpFacts) -> Approximation:
    shift = 2.08 if facts.range is None else facts.greatest
    exp_range, sums = facts.exp_range((-60.0, 15.0)), facts.sums or (0.02, 400.0)
    return ChebyshevSoftmax(
        shift, 63, exp_range, 255, sums, newton_steps=2, log_keys=facts.log_keys(0)
    )


def _polaris_softmax(facts: OpFacts) -> Approximation:
    exp_range, sums = facts.exp_range((-40.0, 1.0)), facts.sums or (0.1, 2.0 * facts.width)
    return ChebyshevSoftmax(facts.greatest, 31, exp_range, 511, sums, log_keys=facts.log_keys(0))


# Zhang et al., Secure Transformer Inference Made Non-interactive (NDSS 2025; code
# zju-abclab/NEXUS). Softmax 17: x/128 and 7 squarings 8, mask of the sum 1, 0.01 times the sum
# 1, inverse 5, 0.01 again 1, product 1. LayerNorm 22: two means 4 and a square 1, a line 1, 4
# Newton steps 8, Goldschmidt 1 + 2*2 + 1, product and gamma 2. GELU 18: division 1, four
# polynomials of degree 9 at 4, product 1.
# NEXUS measures no ranges. We scale the argument of each norm into the range on which its
# constants converge. That costs nothing.
NEXUS = Recipe(
    softmax=_nexus_softmax,
    norm=lambda facts: LineNewtonNorm(facts.range),
    activation=lambda facts: SignPiecewiseActivation(facts.range_or((-5.0, 5.0))),
)

# Moon et al., THOR (eprint 2024/1881; code crypto-starlab/THOR), with its BERT ranges. Softmax
# 41: exponential 5 and a squaring 1, sum 1, 8 steps of the inverse 16, product and square 2,
# sum 1, 7 steps 14, product 1. LayerNorm 17 (attention, 5 steps) and 19 (output, 6 steps). GELU
# 12: 1 + 5 + 5 + 1. For BERT-base their code has two more settings: the output norm of two
# layers has a range of (0.75, 2500), one step of 2 more in each (1072), and the softmax of one
# layer has 4 rounds (21 more). We do not know which of these the published figure counts.
THOR = Recipe(
    softmax=_thor_softmax,
    norm=lambda facts: AdaptiveNorm(facts.range_or((0.15, 10.0), output=(0.2, 150.0))),
    activation=lambda facts: CompositeActivation(facts.range_or((-32.0, 32.0))),
)

# Zhang et al., MOAI (ICLR 2026, eprint 2025/991; code dtc2025ag/MOAI_GPU). Softmax 19: NEXUS's
# exponential 8, sum 1, inverse with 8 steps 9, product 1. A constant is subtracted from the
# scores (8.1 in the code), so that the sum needs no divisor. The steps are a parameter of the
# code; its test of the inverse uses 8. Norms 22, as NEXUS. GELU 6: one polynomial of degree 24,
# whose coefficients are our Chebyshev fit.
MOAI = Recipe(
    softmax=_moai_softmax,
    norm=lambda facts: LineNewtonNorm(facts.range),
    activation=lambda facts: ActivationApproximation(24, facts.range),
)

# Arion: Attention-Optimized Transformer Inference on Encrypted Data (code hangenba/Arion), with
# the code's BERT-base ranges. Softmax 22: exponential of degree 63 on (-60, 15) 7, sum 1,
# inverse of degree 255 on (0.02, 400) 9 and 2 Newton steps 4, product 1; 2.08 is subtracted
# from the scores. LayerNorm 17: 7 around 1/sqrt of degree 31 (6) and 2 Newton steps (4), on
# (0.001, 2.1) after attention and (0.5, 2500) after the MLP. GELU 9: degree 255 on (-61, 136).
ARION = Recipe(
    softmax=_arion_softmax,
    norm=lambda facts: ChebyshevNewtonNorm(
        31, 2, facts.range_or((0.001, 2.1), output=(0.5, 2500.0))
    ),
    activation=lambda facts: ActivationApproximation(255, facts.range_or((-61.0, 136.0))),
)

# A stand-in for POLARIS: we could consult neither its paper nor its code. We assume one
# Chebyshev sum for each function and no iterations. Softmax 18: exponential of degree 31 (6),
# sum 1, inverse of degree 511 (10), product 1. Norms and activation have degree 63 (14 and 7).
# Do not read figures of this recipe as POLARIS's.
POLARIS = Recipe(
    softmax=_polaris_softmax,
    norm=lambda facts: NormApproximation(63, facts.range),
    activation=lambda facts: ActivationApproximation(63, facts.range),
)
