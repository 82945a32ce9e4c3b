"""Parameter sets of the bootstrap: moduli, scales, and the range of the modular reduction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BootstrapSet:
    """A chain of moduli, from the modulus of a ciphertext before its bootstrap up to the top::

        q0 | primes of the program | StC | EvalMod | CtS      beside: special primes

    EvalMod's primes are large, because its errors are amplified by q0/scale. StC's primes may be
    small, because StC handles only the message. CtS's primes must keep the rounding of its matrices
    below EvalMod's errors. All sizes of primes are in bits.

    Attributes:
        base_bits: bits of q0, the modulus at level 0.
        scale_bits: log2 of the program's scale, and bits of its primes.
        levels_left: level after a bootstrap.
        stc_stages, stc_bits: stages of SlotsToCoeffs, and bits of the prime of each stage.
        degree: degree of the modular reduction's Chebyshev sum, which is odd, or even with double
            angles.
        eval_bits: bits of the primes of EvalMod.
        cts_bits: bits of the prime of each stage of CoeffsToSlots, from the last stage upwards.
        special_primes, special_bits: number and bits of the special primes of key switches.
        secret_weight: Hamming weight of the sparse secret around ModRaise. 32 has 164 bits of
            security at N = 2^16 and q0 times one special prime (``atlasc/targets/estimates``).
        log2_failure: log2 of the greatest probability that one bootstrap fails.
        double_angles: number of double angles after the sum; each consumes a level.
        square_bits: log2 of the factor by which the scale of the first square of an even sum is
            larger. The rounding of that square is multiplied by up to (pi K / 2^r)^2, more than all
            later ones.
    """

    base_bits: int
    scale_bits: int
    levels_left: int
    stc_stages: int
    stc_bits: int
    degree: int
    eval_bits: int
    cts_bits: tuple[int, ...]
    special_primes: int
    special_bits: int
    secret_weight: int = 32
    log2_failure: float = -128.0
    double_angles: int = 0
    square_bits: int = 0

    @property
    def cts_stages(self) -> int:
        """Stages of CoeffsToSlots."""
        return len(self.cts_bits)

    @property
    def eval_levels(self) -> int:
        """Levels of the modular reduction."""
        return self.degree.bit_length() + self.double_angles

    @property
    def prime_bits(self) -> tuple[int, ...]:
        """Sizes of the primes of Q in bits, from level 0 upwards."""
        return (
            self.base_bits,
            *[self.scale_bits] * self.levels_left,
            *[self.stc_bits] * self.stc_stages,
            *[self.eval_bits] * (self.eval_levels - 2),
            self.eval_bits + 2 * self.square_bits,
            self.eval_bits - self.square_bits,
            *self.cts_bits,
        )

    @property
    def top(self) -> int:
        """The level of a ciphertext whose modulus is raised."""
        return len(self.prime_bits) - 1

    @property
    def log_scales(self) -> tuple[float, ...]:
        """log2 of the scale at each level, from 0 upwards.

        The scales at the levels of a transform go in equal steps from one part's scale to the next
        part's, because a plaintext may have any scale. A raised ciphertext has the scale q0, at
        which its slots hold coefficients over q0.
        """
        up = (self.eval_bits - self.scale_bits) / self.stc_stages
        down = (self.base_bits - self.eval_bits) / self.cts_stages
        return (
            *[float(self.scale_bits)] * (self.levels_left + 1),
            *(self.scale_bits + stage * up for stage in range(1, self.stc_stages + 1)),
            *[float(self.eval_bits)] * (self.eval_levels - 2),
            float(self.eval_bits + self.square_bits),
            float(self.eval_bits),
            *(self.eval_bits + stage * down for stage in range(1, self.cts_stages + 1)),
        )

    @property
    def ratio(self) -> float:
        """q0 / scale: the ratio of what the modular reduction removes to the message."""
        return 2.0 ** (self.base_bits - self.scale_bits)


SETS = {
    "fourteen_levels": BootstrapSet(57, 46, 14, 3, 42, 127, 60, (57, 57, 57), 5, 60),
    "fourteen_levels_40": BootstrapSet(
        50, 40, 14, 3, 40, 56, 60, (50, 50, 50), 7, 50, double_angles=2, square_bits=3
    ),
}
"""The bootstrap sets by name."""
