"""Bits of security of the secrets of a parameter set: guidelines of 2024, archived estimates.

The table holds the largest log2(QP) for which an RLWE instance with a dense ternary secret and an
error of standard deviation 3.19 keeps the stated bits against classical attacks. QP is the product
of *all* moduli under which a key or a ciphertext is ever published: the special primes of the key
switching keys count.

Source: Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption", eprint
2024/463, table 5.2, at every ring. That table has no ring of 2^10 beyond 128 bits, so this table
has none, either. Sparse secrets are not in it.

``estimates/lattice.json`` has runs of the lattice estimator for all secrets in use, with the
versions of the estimator and of Sage; ``benchmarks/security/estimate.py`` wrote it. For the same
ring and weight a larger modulus is easier to break, so an estimate holds for every smaller modulus
as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError

ARCHIVE = Path(__file__).parent / "estimates" / "lattice.json"

REQUIRED_BITS = 128
"""Bits of security that a program must have."""

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


@dataclass(frozen=True)
class Secret:
    """A secret, and the largest modulus of anything that is published under it.

    Anything published under a smaller modulus, such as a key of a lower level, is harder to break.

    Attributes:
        published: what is published under the secret.
        ring_degree: N, the number of its coefficients.
        log_q: log2 of the largest modulus, special primes included.
        weight: number of non-zero coefficients; None: dense, uniform in {-1, 0, 1}.
    """

    published: str
    ring_degree: int
    log_q: float
    weight: int | None = None

    def __str__(self) -> str:
        return "dense ternary" if self.weight is None else f"sparse h={self.weight}, encapsulated"

    @property
    def bits(self) -> int:
        """Bits of security of the secret: by the table if it is dense, by the archive if it is
        sparse.

        A sparse secret without an estimate counts as 0.

        Raises:
            AtlasError: the ring degree is not in the table.
        """
        if self.weight is None:
            return security_bits(self.ring_degree, self.log_q)
        return int(self.estimate.get("bits", 0))

    @property
    def estimate(self) -> dict[str, Any]:
        """The archive's entry for the smallest modulus that is large enough; empty if there is
        none.
        """
        fits: list[dict[str, Any]] = [
            entry
            for entry in archive()["estimates"]
            if (entry["ring_degree"], entry["weight"]) == (self.ring_degree, self.weight)
            and entry["log_q"] >= self.log_q
        ]
        return min(fits, key=lambda entry: entry["log_q"], default={})


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


@cache
def estimated_log_qp(ring_degree: int) -> int:
    """The largest log2(QP) for which the archive has an estimate of 128 bits of a dense secret, at
    most `max_log_qp`; 0 for a ring without one.
    """
    fits = [
        entry["log_q"]
        for entry in archive()["estimates"]
        if (entry["ring_degree"], entry["weight"]) == (ring_degree, None)
        and entry["bits"] >= REQUIRED_BITS
    ]
    return min(max(fits), max_log_qp(ring_degree)) if fits else 0


def security_bits(ring_degree: int, log_qp: float) -> int:
    """Bits of security of ``ring_degree`` with moduli of ``log_qp`` bits in total.

    From 128 bits on, this is the highest level of the table that is met: 128, 192 or 256. Below, it
    is a rough estimate that shows how far off the parameters are: at a fixed ring degree the cost
    exponent of lattice reduction falls about as 1/log(QP), so the estimate is 128 * max_log_qp /
    log_qp, rounded down and at most 127, so that no set above the limit counts as secure. From 2^13
    to 2^16 it is within 1.3 bits of the lattice estimator (uSVP, MATZOV) down to 80 bits.

    Raises:
        AtlasError: the ring degree is not in the table, or ``log_qp`` is not a positive number.
    """
    limit = max_log_qp(ring_degree)
    if not 0 < log_qp < math.inf:
        raise AtlasError(f"log2(QP) = {log_qp} is not a size of moduli")
    if log_qp > limit:
        return min(REQUIRED_BITS - 1, int(REQUIRED_BITS * limit / log_qp))
    return max(bits for bits, limits in MAX_LOG_QP.items() if log_qp <= limits.get(ring_degree, 0))


def check_security(secrets: Sequence[Secret]) -> None:
    """Raise AtlasError unless all secrets of a parameter set have 128 bits of security."""
    weakest = min(secrets, key=lambda secret: secret.bits)
    if weakest.bits < REQUIRED_BITS:
        known = "no archived estimate shows more"
        if weakest.weight is None:
            known = f"the guidelines of eprint 2024/463 allow {max_log_qp(weakest.ring_degree)}"
        raise AtlasError(
            f"these parameters have about {weakest.bits} bits of security; {REQUIRED_BITS} are "
            "required",
            why=f"a secret ({weakest}) has log2(QP) = {weakest.log_q:.0f} at ring degree "
            f"{weakest.ring_degree}: {known}",
            remedy="use a larger ring or fewer levels",
        )


@cache
def archive() -> dict[str, Any]:
    """The archived estimates."""
    found: dict[str, Any] = json.loads(ARCHIVE.read_text(encoding="utf-8"))
    return found


def estimates_of(secrets: Sequence[Secret]) -> dict[str, Any]:
    """The security of a set with these secrets, for a manifest.

    Returns:
        ``bits``: the least of all secrets. ``secret``, ``log_qp``, ``estimate_bits``: of the secret
        that is the easiest to find by its estimate. ``estimator``: its commit, the version of Sage,
        the day. ``secrets``: for each secret the same numbers, what is published under it, the
        cheapest attack and cost model, and the modulus of the estimate. ``estimate_bits`` is None
        if the archive has no entry, as for the rings of tests.
    """
    names = {"estimate_bits": "bits", "attack": "attack", "cost_model": "cost_model"}
    names |= {"estimated_log_qp": "log_q"}
    facts: list[dict[str, Any]] = [
        {"secret": str(secret), "published": secret.published, "log_qp": secret.log_q}
        | {name: secret.estimate.get(entry) for name, entry in names.items()}
        for secret in secrets
    ]
    weakest = min(facts, key=lambda fact: fact["estimate_bits"] or 0.0)
    return {
        "bits": min(secret.bits for secret in secrets),
        **{name: weakest[name] for name in ("secret", "log_qp", "estimate_bits")},
        "estimator": archive()["estimator"],
        "secrets": facts,
    }
