"""What every parameter set has because of its ring and its moduli alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Secret:
    """A secret, and the largest modulus of anything that is published under it.

    Whatever is published under a smaller modulus, as keys of lower levels are, is harder to break.

    Attributes:
        published: what there is under it.
        ring_degree: N, the number of its coefficients.
        log_q: log2 of that modulus, special primes included.
        weight: its coefficients that are not zero; None: dense, uniform in {-1, 0, 1}.
    """

    published: str
    ring_degree: int
    log_q: float
    weight: int | None = None

    def __str__(self) -> str:
        return "dense ternary" if self.weight is None else f"sparse h={self.weight}, encapsulated"


class Ring(ABC):
    """Base of parameter sets.

    Attributes:
        log_ring_degree: log2 of the ring degree N; a ciphertext has N/2 slots.
    """

    log_ring_degree: int

    @property
    def ring_degree(self) -> int:
        """N, twice the slots."""
        return 1 << self.log_ring_degree

    @property
    def slots(self) -> int:
        """Real numbers in a ciphertext."""
        return self.ring_degree // 2

    @property
    @abstractmethod
    def log_qp(self) -> float:
        """log2 of the product of all moduli under which a key or a ciphertext is published."""

    @property
    @abstractmethod
    def sparse(self) -> tuple[int, float] | None:
        """Weight of the secret around a bootstrap's raising of the modulus, and log2 of the modulus
        of the key that leads to it; None without bootstraps."""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets of a key set, the client's own first."""
        keys = "ciphertexts, relinearisation, conjugation and rotation keys"
        if self.sparse is None:
            return (Secret(keys, self.ring_degree, self.log_qp),)
        weight, log_q = self.sparse
        return (
            Secret(keys + ", key back from the sparse secret", self.ring_degree, self.log_qp),
            Secret("key to the sparse secret", self.ring_degree, log_q, weight),
        )
