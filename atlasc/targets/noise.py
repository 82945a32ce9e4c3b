"""The errors that CKKS adds, as the simulator draws them and as the bound on noise counts them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ERROR_VARIANCE = 10.5
"""Variance of a coefficient of an error: centred binomial, 42 bits (``ckks/keys/sampling.hpp``)."""


@dataclass(frozen=True)
class NoiseModel:
    """Standard deviations of the error that a primitive adds to the real part of each slot.

    The imaginary part gets an error of the same size. An op that packs two values as the parts of a
    complex one reads both errors. Only a bootstrap clears the imaginary part.

    All numbers are absolute errors of slot values: the division by the scale is included.

    Attributes:
        fresh: an encryption.
        rescale: the rounding of one rescale of a factor, before a product.
        key_switch: the roundings of a rotation or a conjugation, with the rescale that its operand
            may still need.
        digits: by level, the error that the digits of the key add to a key switch: a lower level
            has fewer digits. Empty if they add nothing.
        relinearize: the key switch of a product of ciphertexts at the highest level.
        settle: the rescale that a product or a lower level may still need before decryption.
        encode: the encoding of a vector, for the factor 1; if not zero, numbers are rounded, too.
        bootstrap: a bootstrap.
        bootstrap_cubic: factor of the cubic error of a bootstrap that ends with SlotsToCoeffs. It
            treats the sine as the identity, so a *coefficient* c of the encoded polynomial comes
            back as c - bootstrap_cubic c^3. Slots that look random have tiny coefficients; but
            their mean is one coefficient, and it suffers.
    """

    fresh: float = 0.0
    rescale: float = 0.0
    key_switch: float = 0.0
    bootstrap: float = 0.0
    bootstrap_cubic: float = 0.0
    relinearize: float = 0.0
    settle: float = 0.0
    encode: float = 0.0
    digits: tuple[float, ...] = ()

    def of_key_switch(self, level: int) -> float:
        """Standard deviation of a rotation or a conjugation at a level."""
        return math.hypot(self.key_switch, self.digits[level]) if self.digits else self.key_switch

    @classmethod
    def ckks(
        cls, ring_degree: int, log_scale: float = 40, ratios: Sequence[Sequence[float]] = ()
    ) -> NoiseModel:
        """The model of atlasc's engine, for a dense ternary secret (coefficients of variance 2/3).

        A slot is a sum of N coefficients times roots of unity; the variance of its real part is
        N/2 times that of a coefficient (Cheon et al. 2017, section 3):

        * a fresh ciphertext has the error of its key, 10.5, and the rounding of the encoding, 1/12;
        * a rescaling, and the division of a key switch by P, round both parts: 1/12 (1 + 2N/3);
        * a key switch adds a sum over digits: each coefficient of a digit, uniform up to its
          modulus D, times N coefficients of the key's error, over P: N 10.5/12 (D/P)^2 (Han and Ki
          2020, section 3). A relinearization does so at the squared scale, where it vanishes.

        Measured on the engine at N = 2^13 to 2^15: all within 3% (``tests/atlasc/targets``).

        Args:
            ring_degree: N.
            log_scale: log2 of the scale.
            ratios: D/P of each digit of a key switch, for levels 0, 1, ...
        """
        unit = math.sqrt(ring_degree / 2) / 2.0**log_scale
        rounding = (1 + 2 * ring_degree / 3) / 12
        digit = unit * math.sqrt(ring_degree * ERROR_VARIANCE / 12)
        digits = tuple(digit * math.hypot(*at_level) for at_level in ratios)
        rescale = unit * math.sqrt(rounding)
        return cls(
            fresh=unit * math.sqrt(ERROR_VARIANCE + 1 / 12),
            rescale=rescale,
            key_switch=math.sqrt(2) * rescale,
            digits=digits,
            relinearize=digits[-1] / 2.0**log_scale if digits else 0.0,
            settle=rescale,
            encode=unit * math.sqrt(1 / 12),
        )
