"""Bits of security of a ring and its moduli, by the homomorphic encryption standard.

The tables hold the largest log2(QP) for which an RLWE instance with a dense ternary secret and an
error of standard deviation 3.2 keeps the stated bits against classical attacks. QP is the product
of *all* moduli under which a key or a ciphertext is ever published: the special primes of the key
switching keys count.

Sources: ring degrees 2^10..2^15, Albrecht et al., "Homomorphic Encryption Security Standard",
2018, table 1 (ternary secret, classical). 2^16 and 2^17, which that table lacks, follow
Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption", 2024
(eprint 2024/463), as OpenFHE's table of standard lattice parameters has them.
"""

from __future__ import annotations

from atlasc.ir.errors import AtlasError

REQUIRED_BITS = 128
"""What a program must have unless the user asked for an insecure test."""

MAX_LOG_QP: dict[int, dict[int, int]] = {
    128: {
        2**10: 27,
        2**11: 54,
        2**12: 109,
        2**13: 218,
        2**14: 438,
        2**15: 881,
        2**16: 1747,
        2**17: 3523,
    },
    192: {
        2**10: 19,
        2**11: 37,
        2**12: 75,
        2**13: 152,
        2**14: 305,
        2**15: 611,
        2**16: 1199,
        2**17: 2411,
    },
    256: {
        2**10: 14,
        2**11: 29,
        2**12: 58,
        2**13: 118,
        2**14: 237,
        2**15: 476,
        2**16: 929,
        2**17: 1866,
    },
}
"""Security bits -> ring degree -> largest log2(QP), dense ternary secret, classical attacks."""


def max_log_qp(ring_degree: int, bits: int = REQUIRED_BITS) -> int:
    """The largest log2(QP) that keeps ``bits`` (128, 192 or 256) at ``ring_degree``.

    Raises:
        AtlasError: the table has no such ring degree or security level.
    """
    if bits not in MAX_LOG_QP or ring_degree not in MAX_LOG_QP[bits]:
        raise AtlasError(
            f"no security figure for ring degree {ring_degree} at {bits} bits",
            why=f"the standard covers ring degrees {min(MAX_LOG_QP[128])} to "
            f"{max(MAX_LOG_QP[128])} (powers of two) at {', '.join(map(str, MAX_LOG_QP))} bits",
        )
    return MAX_LOG_QP[bits][ring_degree]


def security_bits(ring_degree: int, log_qp: float) -> int:
    """Bits of security of ``ring_degree`` with moduli of ``log_qp`` bits in all.

    At or above 128 bits the answer is the highest standard level that is met: 128, 192 or 256.
    Below, it is a rough estimate, good only for saying how far off the parameters are: at a fixed
    ring degree the cost exponent of lattice reduction falls about as 1/log(QP), so it is
    128 * max_log_qp / log_qp, rounded down and at most 127.

    Raises:
        AtlasError: the ring degree is not in the table.
    """
    limit = max_log_qp(ring_degree)
    if log_qp > limit:
        return min(REQUIRED_BITS - 1, int(REQUIRED_BITS * limit / log_qp))
    return max(bits for bits in MAX_LOG_QP if log_qp <= MAX_LOG_QP[bits][ring_degree])


def check_security(ring_degree: int, log_qp: float, *, insecure_for_tests: bool = False) -> int:
    """The security bits of a choice of parameters, refused below 128.

    Args:
        ring_degree: N, a power of two; a ciphertext has N/2 slots.
        log_qp: log2 of the product of all moduli, special primes included.
        insecure_for_tests: accept less, as the user asked; whoever passes True must say so in
            every artifact that it writes.

    Raises:
        AtlasError: fewer than 128 bits and not ``insecure_for_tests``.
    """
    bits = security_bits(ring_degree, log_qp)
    if bits < REQUIRED_BITS and not insecure_for_tests:
        raise AtlasError(
            f"these parameters have about {bits} bits of security; {REQUIRED_BITS} are required",
            why=f"log2(QP) = {log_qp:.0f} at ring degree {ring_degree}, where the homomorphic "
            f"encryption standard allows {max_log_qp(ring_degree)}",
            remedy="use a larger ring or fewer levels, or --insecure-for-tests to try it anyway",
        )
    return bits
