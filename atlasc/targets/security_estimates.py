"""How hard the secrets of a parameter set are to find: the guidelines' table for dense ones, and
archived runs of the lattice estimator for all of them.

``estimates/lattice.json`` is what ``benchmarks/security/estimate.py`` wrote, with the versions of
the estimator and of Sage. At one ring and weight a larger modulus is easier to break, so that an
estimate holds for every smaller modulus as well.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from atlasc.ir.errors import AtlasError
from atlasc.targets.ring import Secret
from atlasc.targets.security import REQUIRED_BITS, check_security, security_bits


class HasSecrets(Protocol):
    """A parameter set."""

    @property
    def ring_degree(self) -> int:
        """N, twice the slots."""
        ...

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli."""
        ...

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets of a key set."""
        ...


ARCHIVE = Path(__file__).parent / "estimates" / "lattice.json"


@lru_cache(maxsize=1)
def _archive() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ARCHIVE.read_text(encoding="utf-8"))
    return found


def estimate_of(parameters: HasSecrets) -> dict[str, Any]:
    """What a manifest says of a set's security.

    Returns:
        ``bits``: as :func:`set_bits`; ``secret``, ``log_qp``, ``estimate_bits``: of the secret that
        is the easiest to find by its estimate; ``estimator``: its commit, the version of Sage, the
        day; ``secrets``: the same for each secret, with what is published under it, the attack and
        the cost model that cost least, and the modulus that was estimated. ``estimate_bits`` is
        None where the archive has nothing, as for the rings of tests.
    """
    secrets = [_fact(secret) for secret in parameters.secrets]
    weakest = min(secrets, key=lambda fact: fact["estimate_bits"] or 0.0)
    return {
        "bits": set_bits(parameters),
        **{name: weakest[name] for name in ("secret", "log_qp", "estimate_bits")},
        "estimator": _archive()["estimator"],
        "secrets": secrets,
    }


def set_bits(parameters: HasSecrets) -> int:
    """Bits of security of a whole set: the least of the table's for its dense secret and of the
    estimates of its sparse one, which counts as 0 where nobody estimated it.

    Raises:
        AtlasError: the ring degree is not in the table.
    """
    bits = security_bits(parameters.ring_degree, parameters.log_qp)
    for secret in parameters.secrets:
        if secret.weight is not None:
            found = _estimate(secret)
            bits = min(bits, 0 if found is None else int(found["bits"]))
    return bits


def check_set(parameters: HasSecrets, *, insecure_for_tests: bool = False) -> int:
    """The bits of :func:`set_bits`, refused below 128.

    Args:
        parameters: a set.
        insecure_for_tests: accept less, as the user asked; whoever passes True must say so in
            every artifact that it writes.

    Raises:
        AtlasError: fewer than 128 bits and not ``insecure_for_tests``.
    """
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


def _fact(secret: Secret) -> dict[str, Any]:
    found = _estimate(secret)
    return {
        "secret": str(secret),
        "published": secret.published,
        "log_qp": secret.log_q,
        "estimate_bits": None if found is None else found["bits"],
        "attack": None if found is None else found["attack"],
        "cost_model": None if found is None else found["cost_model"],
        "estimated_log_qp": None if found is None else found["log_q"],
    }


def _estimate(secret: Secret) -> dict[str, Any] | None:
    """The archive's entry for the smallest modulus that is large enough."""
    fits = [
        entry
        for entry in _archive()["estimates"]
        if (entry["ring_degree"], entry["weight"]) == (secret.ring_degree, secret.weight)
        and entry["log_q"] >= secret.log_q
    ]
    return min(fits, key=lambda entry: entry["log_q"], default=None)
