"""Ring and moduli of a parameter set, and the sizes that follow from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar


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


class Chain(ABC):
    """The moduli of a parameter set.

    Attributes:
        log_ring_degree: log2 of the ring degree N; a ciphertext has N/2 slots.
        special_primes: number of special primes, by which a key switch divides.
        bootstrap: false in a leveled set.
        base_primes: primes of a ciphertext at level 0.
    """

    log_ring_degree: int
    special_primes: int
    bootstrap: bool | str
    base_primes: ClassVar[int] = 1

    @property
    @abstractmethod
    def max_level(self) -> int:
        """Levels of a fresh ciphertext of a program, and of one after a bootstrap."""

    @property
    @abstractmethod
    def prime_bits(self) -> tuple[int, ...]:
        """Sizes of the primes of Q in bits: at level 0, then upwards, then those that a bootstrap
        consumes."""

    @property
    @abstractmethod
    def special_bits(self) -> tuple[int, ...]:
        """Sizes of the special primes in bits."""

    @property
    @abstractmethod
    def sparse(self) -> tuple[int, float] | None:
        """Weight of the secret around a bootstrap's raising of the modulus, and log2 of the modulus
        of the key that leads to it; None without bootstraps."""

    @property
    def cost_substitute(self) -> Chain:
        """The set whose measured costs stand for this one's where it was not measured itself."""
        return self

    @property
    def ring_degree(self) -> int:
        """N, twice the slots."""
        return 1 << self.log_ring_degree

    @property
    def slots(self) -> int:
        """Real numbers in a ciphertext."""
        return self.ring_degree // 2

    @property
    def bootstrap_level(self) -> int | None:
        """Levels after a bootstrap; None for a leveled set."""
        return self.max_level if self.bootstrap else None

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli under which a key or a ciphertext is published."""
        return float(sum(self.prime_bits) + sum(self.special_bits))

    @property
    def dnum(self) -> int:
        """Digits of a key switch at the top of the chain, where a bootstrap starts."""
        return self.digits(len(self.prime_bits) - self.base_primes)

    def digits(self, level: int) -> int:
        """Digits of the decomposition in a key switch at ``level``."""
        return -(-self.residues(level) // self.special_primes)

    def residues(self, level: int) -> int:
        """Primes of a ciphertext at ``level``."""
        return level + self.base_primes

    def ciphertext_bytes(self, level: int) -> int:
        """Size of a ciphertext at ``level``, in memory and in a file."""
        return 2 * self.residues(level) * self.ring_degree * 8

    def key_bytes(self, level: int) -> int:
        """Size of a relinearisation, conjugation or rotation key that reaches ``level``."""
        primes = self.residues(level) + self.special_primes
        return 2 * self.digits(level) * primes * self.ring_degree * 8

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
