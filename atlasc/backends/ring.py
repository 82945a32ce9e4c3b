"""What every parameter set has because of its ring alone."""

from __future__ import annotations


class Ring:
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
