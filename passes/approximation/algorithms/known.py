"""Imports every algorithm, so that `description.from_attribute` knows them all."""

from __future__ import annotations

from atlasc.passes.approximation.algorithms.activation import ActivationApproximation
from atlasc.passes.approximation.algorithms.channel_activation import ChannelActivation
from atlasc.passes.approximation.algorithms.chebyshev_newton import (
    ChebyshevNewtonNorm,
    ChebyshevSoftmax,
)
from atlasc.passes.approximation.algorithms.direct_softmax import DirectSoftmax
from atlasc.passes.approximation.algorithms.nexus import (
    LineNewtonNorm,
    PowerSoftmax,
    SignPiecewiseActivation,
)
from atlasc.passes.approximation.algorithms.norm import NormApproximation
from atlasc.passes.approximation.algorithms.softmax import SoftmaxApproximation
from atlasc.passes.approximation.algorithms.thor import (
    AdaptiveNorm,
    AdaptiveSoftmax,
    CompositeActivation,
)

ALGORITHMS = (
    SoftmaxApproximation,
    DirectSoftmax,
    NormApproximation,
    ActivationApproximation,
    ChannelActivation,
    PowerSoftmax,
    LineNewtonNorm,
    SignPiecewiseActivation,
    AdaptiveSoftmax,
    AdaptiveNorm,
    CompositeActivation,
    ChebyshevSoftmax,
    ChebyshevNewtonNorm,
)
