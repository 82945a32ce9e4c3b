"""The evaluation keys of a program, as roles read them; the pass ``rotation-keys`` plans them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atlasc.ir.module import Module

KEYS = ("rotations", "relinearization_level", "conjugation_level")
"""Attributes of a module that a :class:`KeyPlan` is read from."""
MEMORY = "key_memory"
"""Attribute of a module with a plan under a budget: the budget in bytes."""


@dataclass(frozen=True)
class KeyPlan:
    """The evaluation keys of a program.

    Attributes:
        rotations: amount -> highest level at which it is used.
        relinearization_level, conjugation_level: highest level of the two other keys; None: no key.
    """

    rotations: dict[int, int]
    relinearization_level: int | None = None
    conjugation_level: int | None = None

    def union(self, other: KeyPlan) -> KeyPlan:
        """The keys of both plans, each at the greater level."""
        rotations = dict(self.rotations)
        for amount, level in other.rotations.items():
            rotations[amount] = max(level, rotations.get(amount, level))
        return KeyPlan(
            rotations,
            _greater(self.relinearization_level, other.relinearization_level),
            _greater(self.conjugation_level, other.conjugation_level),
        )

    @property
    def other_levels(self) -> list[int]:
        """Levels of the two other keys, −1 where there is no key."""
        levels = self.relinearization_level, self.conjugation_level
        return [-1 if level is None else level for level in levels]

    def attributes(self) -> dict[str, Any]:
        """The attributes of a module that :func:`key_plan` reads."""
        rotations = [[amount, level] for amount, level in sorted(self.rotations.items())]
        return dict(zip(KEYS, (rotations, *self.other_levels), strict=True))


def _greater(one: int | None, other: int | None) -> int | None:
    """The greater of two levels; None if neither is known."""
    return max((level for level in (one, other) if level is not None), default=None)


def key_plan(program: Module) -> KeyPlan:
    """The keys of a program that has a rotation plan."""
    rotations, *levels = (program.attributes[name] for name in KEYS)
    return KeyPlan(dict(rotations), *(None if level < 0 else level for level in levels))
