"""The settings of published systems, as far as their papers and codes tell."""

from __future__ import annotations

import math
from typing import ClassVar

from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.approximation.algorithms.activation import ActivationApproximation
from atlasc.passes.approximation.algorithms.chebyshev_newton import (
    ChebyshevNewtonNorm,
    ChebyshevSoftmax,
)
from atlasc.passes.approximation.algorithms.nexus import (
    LineNewtonNorm,
    PowerSoftmax,
    SignPiecewiseActivation,
)
from atlasc.passes.approximation.algorithms.norm import NormApproximation
from atlasc.passes.approximation.algorithms.thor import (
    AdaptiveNorm,
    AdaptiveSoftmax,
    CompositeActivation,
)
from atlasc.passes.approximation.description import Activation, Norm, Softmax
from atlasc.passes.approximation.fits.chebyshev_sum import Interval
from atlasc.passes.approximation.recipes.base import Recipe, default_shift


class Nexus(Recipe):
    """Zhang et al., Secure Transformer Inference Made Non-interactive (NDSS 2025; code
    zju-abclab/NEXUS).

    Softmax 17: x/128 and 7 squarings 8, mask of the sum 1, 0.01 times the sum 1, inverse 5, 0.01
    again 1, product 1. LayerNorm 22: two means 4 and a square 1, a line 1, 4 Newton steps 8,
    Goldschmidt 1 + 2*2 + 1, product and gamma 2. GELU 18: division 1, four polynomials of degree 9
    at 4, product 1. Together 17 + 2*22 + 18 = 79 a layer.

    NEXUS measures no ranges. We scale each norm into the range on which its constants converge,
    which is free.
    """

    name = "nexus"
    source = "Zhang et al., NEXUS (NDSS 2025)"

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
        # |1 - s / divisor| is smallest over an interval when the divisor is its middle.
        divisor = 100.0 if sums is None else (sums[0] + sums[1]) / 2
        return PowerSoftmax(shift=default_shift(shift, scores), divisor=divisor)

    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """See `Recipe.norm`."""
        return LineNewtonNorm(value_range)

    def activation(self, op_name: str, value_range: Interval | None = None) -> Activation:
        """See `Recipe.activation`."""
        if ACTIVATIONS[op_name.removeprefix("nn.")].linear_beyond is None:
            return ActivationApproximation(511, value_range)
        return SignPiecewiseActivation(value_range or (-5.0, 5.0))


class Thor(Recipe):
    """Moon et al., THOR (eprint 2024/1881; code crypto-starlab/THOR), with its BERT ranges.

    Softmax 41: exponential 5 and a squaring 1, sum 1, 8 steps of the inverse 16, product and square
    2, sum 1, 7 steps 14, product 1. LayerNorm 17 (attention, 5 steps) and 19 (output, 6 steps).
    GELU 12: 1 + 5 + 5 + 1. Together 89 a layer and 1068 for BERT-base, where 1070 is published:
    their code also uses a range of (0.75, 2500) for the output norm of two layers, one step of 2
    more in each (1072), and 4 rounds for the softmax of one (21 more); which of these the published
    figure counts we do not know.
    """

    name = "thor"
    source = "Moon et al., THOR (eprint 2024/1881)"

    ATTENTION_RANGE: ClassVar[Interval] = (0.15, 10.0)
    OUTPUT_RANGE: ClassVar[Interval] = (0.2, 150.0)

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
        if scores is None:
            return AdaptiveSoftmax(width=width or 128)
        span = scores[1] - scores[0]
        rounds = 1 if span <= 50 else 2  # the published (-70, 70) takes 2
        epsilon, keys = 2.0 ** (-11 if rounds == 1 else -18), width or 128
        if sums is not None:
            # With z = (x - greatest) / 2^r: sum e^z >= (sum e^(x - greatest))^(1/2^r).
            least = sums[0] * math.exp(default_shift(shift, scores) - scores[1])
            epsilon = min(0.5, least ** (0.5**rounds) / keys)
        return AdaptiveSoftmax(scores, rounds=rounds, epsilon=epsilon, width=keys)

    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """See `Recipe.norm`."""
        default = self.ATTENTION_RANGE if "attention" in location else self.OUTPUT_RANGE
        return AdaptiveNorm(value_range or default)

    def activation(self, op_name: str, value_range: Interval | None = None) -> Activation:
        """See `Recipe.activation`."""
        if ACTIVATIONS[op_name.removeprefix("nn.")].gate is None:
            return ActivationApproximation(511, value_range)
        return CompositeActivation(value_range or (-32.0, 32.0))


class Moai(Recipe):
    """Zhang et al., MOAI (ICLR 2026, eprint 2025/991; code dtc2025ag/MOAI_GPU).

    Softmax 19: NEXUS's exponential 8, sum 1, inverse with 8 steps 9, product 1; a constant is
    subtracted so that the sum needs no divisor (8.1 in the code). The steps are a parameter of the
    code; 8 is what its test of the inverse uses. Norms 22, as NEXUS. GELU 6: one polynomial of
    degree 24, whose coefficients are our Chebyshev fit. In all 69 a layer.
    """

    name = "moai"
    source = "Zhang et al., MOAI (ICLR 2026, eprint 2025/991)"

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
        if shift is None and scores is None:
            return PowerSoftmax(steps=8, divisor=1.0, shift=8.1)
        # Moves the sums into (0, 2); at most `width` where the shift is the greatest score.
        greatest = (width or 128) if sums is None else sums[1]
        margin = math.log(greatest / 1.9)
        return PowerSoftmax(steps=8, divisor=1.0, shift=default_shift(shift, scores) + margin)

    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """See `Recipe.norm`."""
        return LineNewtonNorm(value_range)

    def activation(self, op_name: str, value_range: Interval | None = None) -> Activation:
        """See `Recipe.activation`."""
        return ActivationApproximation(24, value_range)


class Arion(Recipe):
    """Zhang et al., ARION (code hangenba/Arion), with its BERT-base ranges.

    Softmax 22: exponential of degree 63 on (-60, 15) 7, sum 1, inverse of degree 255 on (0.02, 400)
    9 and 2 Newton steps 4, product 1; 2.08 is subtracted from the scores. LayerNorm 17: 7 around
    1/sqrt of degree 31 (6) and 2 Newton steps (4), on (0.001, 2.1) after attention and (0.5, 2500)
    after the MLP. GELU 9: degree 255 on (-61, 136). In all 65 a layer.
    """

    name = "arion"
    source = "Arion: Attention-Optimized Transformer Inference on Encrypted Data (hangenba/Arion)"

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
        if shift is None and scores is None:
            return ChebyshevSoftmax(2.08, 63, (-60.0, 15.0), 255, (0.02, 400.0), 2)
        offset = default_shift(shift, scores)
        exp_range = _exp_range(scores, offset, -60.0)
        return ChebyshevSoftmax(offset, 63, exp_range, 255, sums or (0.02, 400.0), 2)

    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """See `Recipe.norm`."""
        default = (0.001, 2.1) if "attention" in location else (0.5, 2500.0)
        return ChebyshevNewtonNorm(31, 2, value_range or default)

    def activation(self, op_name: str, value_range: Interval | None = None) -> Activation:
        """See `Recipe.activation`."""
        return ActivationApproximation(255, value_range or (-61.0, 136.0))


class Polaris(Recipe):
    """Stand-in for POLARIS: neither its paper nor its code could be consulted.

    Assumed: one Chebyshev sum for each function and no iterations. Softmax 18: exponential of
    degree 31 (6), sum 1, inverse of degree 511 (10), product 1; norms and activation of degree 63
    (14 and 7). In all 53 a layer. Do not read figures of this recipe as POLARIS's.
    """

    name = "polaris"
    source = "POLARIS; settings assumed, see the documentation of the recipe"
    assumed = True

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
        offset = default_shift(shift, scores)
        sums = sums or (0.1, 2.0 * (width or 128))
        return ChebyshevSoftmax(offset, 31, _exp_range(scores, offset, -40.0), 511, sums)

    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """See `Recipe.norm`."""
        return NormApproximation(63, value_range)

    def activation(self, op_name: str, value_range: Interval | None = None) -> Activation:
        """See `Recipe.activation`."""
        return ActivationApproximation(63, value_range)


def _exp_range(scores: Interval | None, shift: float, low: float) -> Interval:
    """Range of the shifted scores, at least (.., 1) so that a shift below the greatest score stays
    inside.
    """
    if scores is None:
        return low, 1.0
    return min(-1.0, scores[0] - shift), max(1.0, scores[1] - shift)
