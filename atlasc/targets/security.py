"""Bits of security of a parameter set: the guidelines of 2024, and archived estimates.

The table holds the largest log2(QP) for which an RLWE instance with a dense ternary secret and an
error of standard deviation 3.19 keeps the stated bits against classical attacks. QP is the product
of *all* moduli under which a key or a ciphertext is ever published: the special primes of the key
switching keys count.

Source: Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption", eprint
2024/463, table 5.2, at every ring. That table has no ring of 2^10 beyond 128 bits; nor has this
one. Sparse secrets are not in it at all.

``estimates/lattice.json`` has runs of the lattice estimator for all secrets in use, as
``benchmarks/security/estimate.py`` wrote it, with the versions of the estimator and of Sage. At one
ring and weight a larger modulus is easier to break, so that an estimate holds for every smaller
modulus as well.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.targets.chain import Chain, Secret

ARCHIVE = Path(__file__).parent / "estimates" / "lattice.json"

REQUIRED_BITS = 128
"""Bits of security that a program must have, unless the user asked for an insecure test."""

_LIMITS = {
    128: (26, 53, 106, 214, 430, 868, 1747, 3523),
    192: (36, 73, 147, 297, 597, 1199, 2411),
    256: (27, 56, 114, 230, 462, 929, 1866),
}
MAX_LOG_QP: dict[int, dict[int, int]] = {
    bits: {2 ** (18 - len(limits) + place): limit for place, limit in enumerate(limits)}
    for bits, limits in _LIMITS.items()
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
        insecure_for_tests: accept less, as the user asked; a caller that passes True must
            say so in every artifact that it writes.

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


@cache
def archive() -> dict[str, Any]:
    """The archived estimates."""
    found: dict[str, Any] = json.loads(ARCHIVE.read_text(encoding="utf-8"))
    return found


def estimate_of(parameters: Chain) -> dict[str, Any]:
    """What a manifest says of a set's security.

    Returns:
        ``bits``: as :func:`set_bits`; ``secret``, ``log_qp``, ``estimate_bits``: of the secret that
        is the easiest to find by its estimate; ``estimator``: its commit, the version of Sage, the
        day; ``secrets``: the same for each secret, with what is published under it, the attack and
        the cost model that cost least, and the modulus that was estimated. ``estimate_bits`` is
        None where the archive has nothing, as for the rings of tests.
    """
    secrets: list[dict[str, Any]] = []
    for secret in parameters.secrets:
        found = _estimate(secret)
        known = {"secret": str(secret), "published": secret.published, "log_qp": secret.log_q}
        names = {"estimate_bits": "bits", "attack": "attack", "cost_model": "cost_model"}
        names["estimated_log_qp"] = "log_q"
        secrets.append(known | {name: found.get(entry) for name, entry in names.items()})
    weakest = min(secrets, key=lambda fact: fact["estimate_bits"] or 0.0)
    return {
        "bits": set_bits(parameters),
        **{name: weakest[name] for name in ("secret", "log_qp", "estimate_bits")},
        "estimator": archive()["estimator"],
        "secrets": secrets,
    }


def set_bits(parameters: Chain) -> int:
    """Bits of security of a whole set: the least of the table's for its dense secret and of the
    estimates of its sparse one, which counts as 0 where there is no estimate.

    Raises:
        AtlasError: the ring degree is not in the table.
    """
    bits = security_bits(parameters.ring_degree, parameters.log_qp)
    sparse = [secret for secret in parameters.secrets if secret.weight is not None]
    return min([bits, *(int(_estimate(secret).get("bits", 0)) for secret in sparse)])


def check_set(parameters: Chain, *, insecure_for_tests: bool = False) -> int:
    """The bits of :func:`set_bits`; raises as :func:`check_security`."""
    check_security(parameters.ring_degree, parameters.log_qp, insecure_for_tests=insecure_for_tests)
    bits = set_bits(parameters)
    if bits < REQUIRED_BITS and not insecure_for_tests:
        raise AtlasError(
            "the sparse secret of this set's bootstrap is not known to have "
            f"{REQUIRED_BITS} bits of security",
            why=f"the archived estimates give it {bits} at its ring and modulus",
            remedy="use a set that bootstraps at ring degree 65536, or --insecure-for-tests",
        )
    return bits


def _estimate(secret: Secret) -> dict[str, Any]:
    """The archive's entry for the smallest modulus that is large enough; empty without one."""
    fits: list[dict[str, Any]] = [
        entry
        for entry in archive()["estimates"]
        if (entry["ring_degree"], entry["weight"]) == (secret.ring_degree, secret.weight)
        and entry["log_q"] >= secret.log_q
    ]
    return min(fits, key=lambda entry: entry["log_q"], default={})
