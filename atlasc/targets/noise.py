"""The errors that CKKS adds, as the simulator draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class NoiseModel:
    """Standard deviations of the Gaussian error that a primitive adds to each slot.

    Absolute errors of slot values, so they already contain the division by the scale. Rescaling
    happens on the ciphertext operands *before* a product (the result is left at the squared
    scale), as desilofhe and other libraries with lazy rescaling do: the error of a product grows
    with the other factor.

    Attributes:
        fresh: encryption.
        rescale: the rounding of one rescaling.
        key_switch: a rotation or a relinearisation.
        bootstrap: a bootstrap.
        bootstrap_cubic: a bootstrap takes the sine for the identity, so a *coefficient* c of the
            encoded polynomial comes back as c - bootstrap_cubic c^3. Slots that look random have
            tiny coefficients; but their mean is one coefficient, and it suffers.
    """

    fresh: float = 0.0
    rescale: float = 0.0
    key_switch: float = 0.0
    bootstrap: float = 0.0
    bootstrap_cubic: float = 0.0

    def of_bootstrap(self, share: float) -> float:
        """The deviation of a bootstrap whose slots repeat after a share of them: as many fewer
        coefficients of the modular reduction err. What errs after it is as much as two rescalings.
        """
        if share == 1:
            return self.bootstrap
        return math.hypot(self.bootstrap * math.sqrt(share), 2 * self.rescale)

    @classmethod
    def ckks(cls, ring_degree: int, log_scale: int = 40) -> NoiseModel:
        """The model for a dense ternary secret, after Cheon et al. 2017, section 3.

        Rounding a coefficient of both components gives variance (1 + h)/12 with h = 2N/3; a slot is
        a sum of N coefficients, so its variance is N times that. Fresh and key switching errors are
        at the squared scale (see above) and vanish beside it. At N = 2^16 the result, 1.4e-8, is
        what desilofhe 1.17.0 shows. The figures for the bootstrap were measured on that library:
        1.2e-5 on any two vectors that share one (6e-6 where a vector has one for itself); the cubic
        term on the vector of ones, which came back as 0.9984, and it predicts the error on uniform
        slots in [-16, 16], 7.4e-5, to the digit.
        """
        rescale = math.sqrt(ring_degree * (1 + 2 * ring_degree / 3) / 12) / 2.0**log_scale
        tiny = 3.2 * ring_degree / 2.0 ** (2 * log_scale)
        return cls(tiny, rescale, tiny, bootstrap=1.2e-5, bootstrap_cubic=1.6e-3)
