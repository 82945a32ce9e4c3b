"""Imports every algorithm, so that `description.from_attribute` knows them all."""

from __future__ import annotations

from atlasc.passes.approximation.activation import ActivationApproximation
from atlasc.passes.approximation.channel_activation import ChannelActivation
from atlasc.passes.approximation.chebyshev_newton import ChebyshevNewtonNorm, ChebyshevSoftmax
from atlasc.passes.approximation.direct_softmax import DirectSoftmax
from atlasc.passes.approximation.nexus import LineNewtonNorm, PowerSoftmax, SignPiecewiseActivation
from atlasc.passes.approximation.norm import NormApproximation
from atlasc.passes.approximation.softmax import SoftmaxApproximation
from atlasc.passes.approximation.thor import AdaptiveNorm, AdaptiveSoftmax, CompositeActivation

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
