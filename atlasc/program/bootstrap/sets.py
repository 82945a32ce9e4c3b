"""Parameter sets of the bootstrap: moduli, scales, and the range of the modular reduction."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BootstrapSet:
    """A chain of moduli, from q0 up to the modulus that a bootstrap raises to::

        q0 | primes of the program | EvalMod | CtS      beside: special primes

    A bootstrap begins with StC, on the lowest primes of the program. CtS's primes must keep the
    rounding of its matrices below EvalMod's errors. All sizes of primes are in bits.

    Attributes:
        base_bits: bits of q0, the modulus at level 0.
        scale_bits: log2 of the program's scale, and bits of its primes.
        levels: level after a bootstrap.
        stc_stages: stages of SlotsToCoeffs, and so the level before a bootstrap.
        ratio_bits: log2 of R, the ratio of q0 to a message of 1: what the modular reduction removes
            over what it leaves. It multiplies EvalMod's errors; the sine bends a message by the
            share (2 pi / R)^2 / 6.
        degree: degree of the modular reduction's Chebyshev sum, which is odd, or even with double
            angles.
        eval_bits: bits of the primes of EvalMod, from its last level upwards. The first square
            needs the largest scale: its rounding is multiplied by up to (pi K / 2^r)^2.
        cts_bits: bits of the prime of each stage of CoeffsToSlots, from the last stage upwards.
        special_primes, special_bits: number and bits of the special primes of key switches.
        secret_weight: Hamming weight of the sparse secret around ModRaise. 32 has 164 bits of
            security at N = 2^16 and q0 times one special prime (``atlasc/targets/estimates``).
        log2_failure: log2 of the greatest probability that one bootstrap fails.
        double_angles: number of double angles after the sum; each consumes a level.
        babies: baby steps of a stage of CtS and StC, whose giant steps are a chain: fewer rotation
            keys, and more rotations. 0: the fewest rotations, each with its key.
    """

    base_bits: int
    scale_bits: int
    levels: int
    stc_stages: int
    ratio_bits: float
    degree: int
    eval_bits: tuple[int, ...]
    cts_bits: tuple[int, ...]
    special_primes: int
    special_bits: int
    secret_weight: int = 32
    log2_failure: float = -128.0
    double_angles: int = 0
    babies: int = 0

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
            *[self.scale_bits] * self.levels,
            *self.eval_bits,
            *self.cts_bits,
        )

    @property
    def top(self) -> int:
        """The level of a ciphertext whose modulus is raised."""
        return len(self.prime_bits) - 1

    @property
    def log_scales(self) -> tuple[float, ...]:
        """log2 of the scale at each level, from 0 upwards.

        In EvalMod a square keeps its scale, from the program's scale upwards. The scales at the
        levels of CtS go in equal steps to q0, because a plaintext may have any scale: the slots of
        a raised ciphertext hold coefficients over q0.
        """
        found = [float(self.scale_bits)] * (self.levels + 1)
        for bits in self.prime_bits[self.levels + 1 : self.top + 1 - self.cts_stages]:
            found.append((found[-1] + bits) / 2)
        down = (self.base_bits - found[-1]) / self.cts_stages
        return (*found, *(found[-1] + stage * down for stage in range(1, self.cts_stages + 1)))

    @property
    def ratio(self) -> float:
        """R."""
        return 2.0**self.ratio_bits

    @property
    def shrink(self) -> float:
        """What StC multiplies a message by, so that q0 becomes R times as large as a message of
        1."""
        return 2.0 ** (self.base_bits - self.scale_bits - self.ratio_bits)


SETS = {
    "fourteen_levels": BootstrapSet(
        57, 46, 17, 3, 12.5, 56, (50, 50, 54, 56, 58, 58, 58, 56), (54, 54, 53), 5, 60,
        double_angles=2,
    ),
    "fifteen_levels_40": BootstrapSet(
        50, 40, 18, 3, 11.75, 56, (50, 50, 50, 56, 50, 56, 62, 50), (48, 48, 48), 8, 50,
        double_angles=2,
    ),
}  # fmt: skip
"""The bootstrap sets by name. Two more of each have `FEWER_KEYS`."""
FEWER_KEYS = {"fewer_keys": 8, "fewest_keys": 4}
"""End of a set's name -> its baby steps. At N = 2^16 they have 25 and 13 rotation keys in place of
38, and a bootstrap of two ciphertexts takes 1.03 and 1.21 times the work."""
SETS |= {
    f"{name}_{end}": replace(chosen, babies=babies)
    for name, chosen in SETS.items()
    for end, babies in FEWER_KEYS.items()
}


def most_keys(name: str) -> str:
    """The name of the set with the same moduli and the fewest rotations."""
    for end in FEWER_KEYS:
        name = name.removesuffix(f"_{end}")
    return name
