"""The evaluation keys of a program, as roles read them; the pass ``rotation-keys`` plans them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from atlasc.ir.module import Module

KEYS = ("rotations", "relinearization_level", "conjugation_level")
"""Attributes of a module that a :class:`KeyPlan` is read from."""
DERIVATION = ("derived_rotations", "root_levels")
"""Those of a module with keys that a server derives."""
HOPS = 8
"""Most rotations between a key that is sent and one that is derived: each adds its error. It is
`most_hops` of ``runtime_cuda/ckks/keys/derived_keys.hpp``."""
MEMORY = "key_memory"
"""Attribute of a module with a plan under a budget: the budget in bytes."""


class Root(NamedTuple):
    """A root, by which a server derives keys up to some level.

    Attributes:
        last: it divides by the primes of the levels above that one, up to this.
        bytes: of the root in memory; a client sends half of them.
    """

    last: int
    bytes: int


@dataclass(frozen=True)
class Derivation:
    """Rotation keys that a server derives from others (``ckks/keys/derived_keys.hpp``).

    A key for the amount a is that for a - r, rotated by the root of r. The key for the amount 0 is
    known to everybody.

    Attributes:
        level: the highest level of a derived key.
        last: roots divide by the primes of the levels above ``level``, up to this one.
        roots: derived amount -> amount of its root.
    """

    level: int = -1
    last: int = -1
    roots: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KeyPlan:
    """The evaluation keys of a program.

    Attributes:
        rotations: amount -> highest level at which it is used, derived keys included.
        relinearization_level, conjugation_level: highest level of the two other keys; None: no key.
        derivation: the rotation keys that a client does not send.
    """

    rotations: dict[int, int]
    relinearization_level: int | None = None
    conjugation_level: int | None = None
    derivation: Derivation = field(default=Derivation(), kw_only=True)

    def union(self, other: KeyPlan) -> KeyPlan:
        """The keys of both plans, each at the greater level. Of two derivations the first one
        stays, without the keys that the other plan lifts: these are sent.
        """
        rotations = dict(self.rotations)
        for amount, level in other.rotations.items():
            rotations[amount] = max(level, rotations.get(amount, level))
        deriving = self if self.derivation.roots else other
        roots, own = deriving.derivation.roots.items(), deriving.rotations
        kept = {one: by for one, by in roots if rotations.get(one) == own.get(one)}
        return KeyPlan(
            rotations,
            _greater(self.relinearization_level, other.relinearization_level),
            _greater(self.conjugation_level, other.conjugation_level),
            derivation=replace(deriving.derivation, roots=kept) if kept else Derivation(),
        )

    @property
    def sent(self) -> dict[int, int]:
        """The rotation keys that a client sends: amount -> level."""
        return {one: at for one, at in self.rotations.items() if one not in self.derivation.roots}

    @property
    def other_levels(self) -> list[int]:
        """Levels of the two other keys, −1 where there is no key."""
        levels = self.relinearization_level, self.conjugation_level
        return [-1 if level is None else level for level in levels]

    def facts(self) -> dict[str, Any]:
        """The fields as JSON values, without a derivation of nothing."""
        found = asdict(self)
        if not self.derivation.roots:
            del found["derivation"]
        return found

    def attributes(self) -> dict[str, Any]:
        """The attributes of a module that :func:`key_plan` reads."""
        rotations = [[amount, level] for amount, level in sorted(self.rotations.items())]
        found = dict(zip(KEYS, (rotations, *self.other_levels), strict=True))
        of = self.derivation
        if of.roots:
            derived = [[amount, root] for amount, root in sorted(of.roots.items())]
            found |= zip(DERIVATION, (derived, [of.level, of.last]), strict=True)
        return found


def _greater(one: int | None, other: int | None) -> int | None:
    """The greater of two levels; None if neither is known."""
    return max((level for level in (one, other) if level is not None), default=None)


def key_plan(program: Module) -> KeyPlan:
    """The keys of a program that has a rotation plan."""
    rotations, *levels = (program.attributes[name] for name in KEYS)
    derivation = Derivation()
    if derived := program.attributes.get(DERIVATION[0]):
        level, last = program.attributes[DERIVATION[1]]
        derivation = Derivation(level, last, dict(derived))
    known = (None if level < 0 else level for level in levels)
    return KeyPlan(dict(rotations), *known, derivation=derivation)
