"""What a bootstrap needs of keys, memory and work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atlasc.program.key_plan import KeyPlan


@dataclass(frozen=True)
class BootstrapNeeds:
    """The keys and the memory of a bootstrap; empty in a leveled set.

    Attributes:
        rotations: amounts, to the left, of the bootstrap's rotation keys; a program may use them.
        shared: those amounts whose keys are like any other and can be hoisted: amount -> level,
            which is at least the highest level of a program.
        key_levels: levels of the relinearization key and the conjugation key.
        key_switches: key switches of one bootstrap; 0 if they are not known.
        key_switches_of_one: key switches of the bootstrap of a ciphertext without a partner.
        key_switches_narrow: key switches of a narrow bootstrap.
        landings: for each kind of bootstrap (``bootstrap``, ``bootstrap_one``,
            ``bootstrap_narrow``) its work by the level after it, as a share of that of the highest
            one; empty where a bootstrap always ends at one level.
        work: for each kind of bootstrap its work at the highest level, in residues; empty if it is
            not known. Sets with the same moduli can be compared.
        memory: purpose -> bytes, beside these two keys.
    """

    rotations: frozenset[int] = frozenset()
    shared: Mapping[int, int] = field(default_factory=dict)
    key_levels: tuple[int, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    key_switches: int = 0
    key_switches_of_one: int = 0
    key_switches_narrow: int = 0
    landings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)

    def landing(self, kind: str, level: int) -> float:
        """The work of a bootstrap that ends at a level, as such a share."""
        shares = self.landings.get(kind)
        return shares[level] if shares else 1.0

    def with_plan(self, plan: KeyPlan) -> KeyPlan:
        """The keys that are like any other, with those of a program's plan."""
        return plan.union(KeyPlan(dict(self.shared), *self.key_levels))
