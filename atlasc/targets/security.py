"""Bits of security of a ring and its moduli, by the guidelines of 2024.

The tables hold the largest log2(QP) for which an RLWE instance with a dense ternary secret and an
error of standard deviation 3.19 keeps the stated bits against classical attacks. QP is the product
of *all* moduli under which a key or a ciphertext is ever published: the special primes of the key
switching keys count.

Source: Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption", eprint
2024/463, table 5.2, at every ring. That table has no ring of 2^10 beyond 128 bits; nor has this
one. ``benchmarks/security`` computes its limits again with the lattice estimator. Sparse secrets
are not in it at all: ``atlasc/targets/security_estimates.py`` has an estimate of each in use.
"""

from __future__ import annotations

import math

from atlasc.ir.errors import AtlasError

REQUIRED_BITS = 128
"""What a program must have unless the user asked for an insecure test."""

MAX_LOG_QP: dict[int, dict[int, int]] = {
    128: {
        2**10: 26,
        2**11: 53,
        2**12: 106,
        2**13: 214,
        2**14: 430,
        2**15: 868,
        2**16: 1747,
        2**17: 3523,
    },
    192: {
        2**11: 36,
        2**12: 73,
        2**13: 147,
        2**14: 297,
        2**15: 597,
        2**16: 1199,
        2**17: 2411,
    },
    256: {
        2**11: 27,
        2**12: 56,
        2**13: 114,
        2**14: 230,
        2**15: 462,
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
            why=f"the guidelines cover ring degrees {min(MAX_LOG_QP[128])} to "
            f"{max(MAX_LOG_QP[128])} (powers of two) at {', '.join(map(str, MAX_LOG_QP))} bits",
        )
    return MAX_LOG_QP[bits][ring_degree]


def security_bits(ring_degree: int, log_qp: float) -> int:
    """Bits of security of ``ring_degree`` with moduli of ``log_qp`` bits in all.

    At or above 128 bits the answer is the highest level of the table that is met: 128, 192 or 256.
    Below, it is a rough estimate, good only for saying how far off the parameters are: at a fixed
    ring degree the cost exponent of lattice reduction falls about as 1/log(QP), so it is
    128 * max_log_qp / log_qp, rounded down and at most 127: no set above the limit is told secure.
    From 2^13 to 2^16 that is within 1.3 bits of the lattice estimator (uSVP, MATZOV) down to 80.

    Raises:
        AtlasError: the ring degree is not in the table, or ``log_qp`` is no size of moduli.
    """
    limit = max_log_qp(ring_degree)
    if not 0 < log_qp < math.inf:
        raise AtlasError(f"log2(QP) = {log_qp} is no size of moduli")
    if log_qp > limit:
        return min(REQUIRED_BITS - 1, int(REQUIRED_BITS * limit / log_qp))
    return max(bits for bits, limits in MAX_LOG_QP.items() if log_qp <= limits.get(ring_degree, 0))


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
            why=f"log2(QP) = {log_qp:.0f} at ring degree {ring_degree}, where the guidelines of "
            f"eprint 2024/463 allow {max_log_qp(ring_degree)}",
            remedy="use a larger ring or fewer levels, or --insecure-for-tests to try it anyway",
        )
    return bits
