"""Answers that may be passed on: decrypted numbers with noise that hides the secret key.

CKKS decrypts to the answer plus an error that depends on the secret key, and somebody with enough
exact decryptions may recover the key (Li and Micciancio, Eurocrypt 2021). Numbers that are passed
on get Gaussian noise so large that the error vanishes in it, and are rounded to the digits left.

The noise is that of Li, Micciancio, Schultz and Sorrell ("Securing Approximate Homomorphic
Encryption Using Differential Privacy", Crypto 2022): with errors of Euclidean norm B, tau answers
and kappa bits, its standard deviation is sigma = sqrt(12 tau) 2^(kappa/2) B. Then the
Kullback-Leibler divergence between the shared numbers with and without the errors is at most
B^2 / (2 sigma^2) = 2^-kappa / (24 tau) an answer: nobody tells the two apart with an advantage
above 2^(-kappa/2) / 6.9 over all tau answers. OpenFHE's ``NOISE_FLOODING_DECRYPT`` takes the same
factor, by default with kappa = 30 and tau = 1, times a standard deviation that its user measures in
a run beforehand. Lattigo's ``DecodePublic`` adds no noise: it rounds to a number of bits that its
user chooses.

Here B is sqrt(n) times the compiled bound of an element's error (``noise`` of an output,
:mod:`atlasc.compilation.noise_bound`), for the n numbers of an answer. Divergence is convex, so the
mean square of an error that is random is enough. The bound holds for inputs like those of
calibration and under the noise model; the proof is for a client that encrypts its own inputs and a
server that runs the program as given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.client.checks import Answers
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module

BITS = 30
"""kappa, at least."""


@dataclass(frozen=True)
class Flood:
    """The noise and the rounding of one output.

    Attributes:
        deviation: standard deviation of the noise.
        decimals: places after the point that are kept; negative: rounded before the point.
        digits: decimal digits of the greatest magnitude that are left.
    """

    deviation: float
    decimals: int
    digits: int


@dataclass(frozen=True)
class SharedAnswers(Answers):
    """Answers that may be passed on, with noise and rounded; no outputs where an answer of the
    batch is refused.

    Attributes:
        flooding: the noise of each output.
        number: how many answers these keys have shared, this one included.
    """

    flooding: dict[str, Flood]
    number: int


def floods(module: Module, count: int, bits: int = BITS, shares: int = 1) -> dict[str, Flood]:
    """By output name of a program, or of its interface; empty where it has no bound.

    The answers to ``count`` inputs are passed on together, at kappa ``bits``, as one of tau
    ``shares`` under one key.
    """
    outputs = module.outputs
    if not all({"noise", "magnitude"} <= op.attributes.keys() for op in outputs):
        return {}
    numbers = sum(count * math.prod(op.attributes["shape"][1:]) for op in outputs)
    factor = math.sqrt(12 * shares * numbers) * 2.0 ** (bits / 2)
    found = {}
    for op in outputs:
        deviation = factor * op.attributes["noise"]
        decimals = -math.ceil(math.log10(deviation))
        most = math.floor(math.log10(max(op.attributes["magnitude"], 1e-300)))
        found[op.attributes["name"]] = Flood(deviation, decimals, max(0, most + 1 + decimals))
    return found


def safe_digits(module: Module) -> int | None:
    """Digits of one input's answer that may be passed on; None where the program has no bound."""
    return min((flood.digits for flood in floods(module, 1).values()), default=None)


def require_digits(
    module: Module, count: int, bits: int = BITS, shares: int = 1
) -> dict[str, Flood]:
    """``floods``, checked before anything is decrypted.

    Raises:
        AtlasError: too few bits, no bound, or an output of which no digit is left.
    """
    if bits < BITS or shares < 1:
        raise AtlasError(
            f"{bits} bits for {shares} answers protect no key",
            remedy=f"give at least {BITS} bits and 1 answer",
        )
    found = floods(module, count, bits, shares)
    if not found:
        raise AtlasError(
            "nothing is known of the errors of this program",
            why="its outputs carry no bound",
            remedy="compile it again with this atlasc; or share a decision, not its numbers",
        )
    for name, flood in found.items():
        if flood.digits == 0:
            raise AtlasError(
                f"no digit of {name} may be passed on",
                why=f"to hide the secret key it needs noise of {flood.deviation:.2g}, as large as "
                "the answer: bootstraps and deep polynomials make large errors",
                remedy="share a decision alone, the class for example; or fewer numbers together, "
                "or answers of a program with smaller errors (--max-levels)",
            )
    return found


def share(
    outputs: Mapping[str, np.ndarray], flooding: Mapping[str, Flood]
) -> dict[str, np.ndarray]:
    """Exact answers by output name with their noise, rounded; ``flooding`` is of
    :func:`require_digits`, for as many inputs.
    """
    shared = {}
    for name, values in outputs.items():
        flood = flooding[name]
        noisy = values + flood.deviation * secure_normal(values.size).reshape(values.shape)
        shared[name] = np.round(noisy, flood.decimals)
    return shared


def secure_normal(count: int) -> np.ndarray:
    """Standard normal numbers from the system's randomness, up to 8.2 in magnitude."""
    from scipy.special import ndtri

    # 52 bits and a half are a double: with 53 the largest would be rounded to 1, and be infinite.
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(12)
    return ndtri((words.astype(np.float64) + 0.5) / 2.0**52)
