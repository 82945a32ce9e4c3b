"""Rotation plans: by own keys, by the bootstrap key, or composed of other rotations.

A plan says which key switches each amount of the kernels takes. It is part of the program (module
attributes), so that every engine does the same:

* ``rotations`` = [[amount, level], …]: keys, each with the highest level that it serves;
* ``bootstrap_rotations`` = [amount, …]: rotated with the bootstrap key, at any level;
* ``composed_rotations`` = [[amount, first, last], …] with amount = first + last (mod slots): first
  rotated by ``first``, according to the plan, and then by ``last`` with one key switch.

An own key has priority, then the bootstrap key, then the composition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from atlasc.ir.module import Module
from atlasc.program.engine import Ct, Engine

PLAN_ATTRIBUTES = ("rotations", "bootstrap_rotations", "composed_rotations")


@dataclass(frozen=True)
class RotationPlan:
    """See the module; all amounts are to the left, 0 < amount < slots.

    Attributes:
        keys: amount -> highest level that its key serves.
        bootstrap: amounts that are rotated with the bootstrap key.
        composed: amount -> (first, last).
    """

    keys: Mapping[int, int]
    bootstrap: frozenset[int] = frozenset()
    composed: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Module) -> RotationPlan | None:
        """The plan of a program; None if it has none yet."""
        if "rotations" not in module.attributes:
            return None
        keys, bootstrap, composed = (module.attributes.get(name, ()) for name in PLAN_ATTRIBUTES)
        parts = {amount: (first, last) for amount, first, last in composed}
        return cls(dict(keys), frozenset(bootstrap), parts)

    def attributes(self) -> dict[str, Any]:
        """The attributes that :meth:`of` reads; unused parts of the plan are left out."""
        keys = [[amount, level] for amount, level in sorted(self.keys.items())]
        composed = [[amount, *parts] for amount, parts in sorted(self.composed.items())]
        facts = zip(PLAN_ATTRIBUTES, (keys, sorted(self.bootstrap), composed), strict=True)
        return {name: fact for name, fact in facts if fact or name == "rotations"}

    def hoists(self, amount: int, level: int) -> bool:
        """Whether the amount has its own key at the level; only then do rotations share work."""
        return self.keys.get(amount, -1) >= level

    def path(self, amount: int, level: int) -> tuple[int, ...]:
        """The key switches of a rotation at a level, in order.

        An amount that the plan does not know is its own path; the engine then reports that it has
        no key.
        """
        if self.hoists(amount, level) or amount in self.bootstrap or amount not in self.composed:
            return (amount,)
        first, last = self.composed[amount]
        return (*self.path(first, level), last)

    def used(self, levels: Mapping[int, int]) -> dict[int, int]:
        """The keys behind some key switches. ``levels``: amount -> highest level of use."""
        return {a: min(level, self.keys[a]) for a, level in levels.items() if a in self.keys}


class PlannedEngine(Generic[Ct]):
    """An engine whose rotations follow a plan; all other methods are unchanged.

    Rotations of one ciphertext share the common beginnings of their paths. Rotations of one
    ciphertext by own keys are hoisted.
    """

    def __init__(self, engine: Engine[Ct], plan: RotationPlan) -> None:
        self._engine, self._plan = engine, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def rotate(self, ciphertext: Ct, amount: int) -> Ct:
        """Rotation to the left, at the same level."""
        return self.rotate_many(ciphertext, [amount])[0]

    def rotate_many(self, ciphertext: Ct, amounts: Sequence[int]) -> list[Ct]:
        """One rotation to the left for each amount."""
        level, slots = self._engine.level(ciphertext), self._engine.slots
        wanted = [amount % slots for amount in amounts]
        paths = {a: self._plan.path(a, level) if a else () for a in wanted}
        done: dict[tuple[int, ...], Ct] = {(): ciphertext}
        self._walk((), list(paths.values()), level, done)
        return [done[paths[amount]] for amount in wanted]

    def _walk(
        self,
        before: tuple[int, ...],
        paths: list[tuple[int, ...]],
        level: int,
        done: dict[tuple[int, ...], Ct],
    ) -> None:
        """Do all paths that begin with the path ``before``, which is done."""
        end = len(before) + 1
        following = dict.fromkeys(p[:end] for p in paths if p[: end - 1] == before != p)
        hoisted = [path for path in following if self._plan.hoists(path[-1], level)]
        rotated = self._engine.rotate_many(done[before], [path[-1] for path in hoisted])
        done.update(zip(hoisted, rotated, strict=True))
        for path in following:
            if path not in done:
                done[path] = self._engine.rotate(done[before], path[-1])
            self._walk(path, paths, level, done)


def rotation_reach(program: Module, max_level: int) -> dict[int, int]:
    """Amount of a single key switch -> the highest level at which the plan has it."""
    plan = RotationPlan.of(program)
    assert plan is not None
    return {**plan.keys, **dict.fromkeys(plan.bootstrap, max_level)}
