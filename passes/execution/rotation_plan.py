"""How a program rotates its ciphertexts: own keys, the bootstrap key, compositions.

A plan says for every amount that the kernels ask for which key switches it takes. It is part of the
program (module attributes), so that every engine makes the same ones:

* ``rotations`` = [[amount, level], …]: keys, each with the highest level that it serves;
* ``bootstrap_rotations`` = [amount, …]: rotated with the bootstrap key, at any level;
* ``composed_rotations`` = [[amount, first, last], …] with amount = first + last (mod slots): first
  rotated by ``first``, as the plan says of that, and then by ``last`` with one key switch.

An own key comes first, then the bootstrap key, then the composition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from atlasc.ir.module import Module
from atlasc.passes.execution.engine import Ct, Engine

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
        """The plan of a program; None where none was made yet."""
        attributes = module.attributes
        if "rotations" not in attributes:
            return None
        return cls(
            dict(attributes["rotations"]),
            frozenset(attributes.get("bootstrap_rotations", ())),
            {a: (first, last) for a, first, last in attributes.get("composed_rotations", ())},
        )

    def attributes(self) -> dict[str, Any]:
        """What :meth:`of` reads back; nothing is said of what the plan does not use."""
        facts: dict[str, Any] = {
            "rotations": [[a, level] for a, level in sorted(self.keys.items())]
        }
        if self.bootstrap:
            facts["bootstrap_rotations"] = sorted(self.bootstrap)
        if self.composed:
            facts["composed_rotations"] = [
                [a, *parts] for a, parts in sorted(self.composed.items())
            ]
        return facts

    def hoists(self, amount: int, level: int) -> bool:
        """Whether an own key serves: only such rotations share a decomposition."""
        return self.keys.get(amount, -1) >= level

    def path(self, amount: int, level: int) -> tuple[int, ...]:
        """The key switches of a rotation at a level, in order.

        An amount that the plan does not know is its own path: the engine then says that it has no
        key.
        """
        if self.hoists(amount, level) or amount in self.bootstrap or amount not in self.composed:
            return (amount,)
        first, last = self.composed[amount]
        return (*self.path(first, level), last)

    def used(self, levels: Mapping[int, int]) -> dict[int, int]:
        """The keys behind some key switches, ``levels``: amount -> highest level of use."""
        return {a: min(level, self.keys[a]) for a, level in levels.items() if a in self.keys}


Tree = dict[int, Any]
"""Key switches that start with common ones: amount -> what follows it."""


def path_tree(paths: Sequence[tuple[int, ...]]) -> Tree:
    """What several rotations of one ciphertext share, each key switch once."""
    tree: Tree = {}
    for path in paths:
        branch = tree
        for amount in path:
            branch = branch.setdefault(amount, {})
    return tree


class PlannedEngine(Generic[Ct]):
    """An engine whose rotations follow a plan; everything else it does as it always does.

    Rotations of one ciphertext share what their paths have in common, and those by own keys of one
    ciphertext are hoisted.

    Args:
        engine: does the key switches.
        plan: of the program.
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
        self._walk(path_tree(list(paths.values())), (), level, done)
        return [done[paths[amount]] for amount in wanted]

    def _walk(
        self, tree: Tree, before: tuple[int, ...], level: int, done: dict[tuple[int, ...], Ct]
    ) -> None:
        hoisted = [amount for amount in tree if self._plan.hoists(amount, level)]
        rotated = dict(zip(hoisted, self._engine.rotate_many(done[before], hoisted), strict=True))
        for amount, following in tree.items():
            if amount not in rotated:
                rotated[amount] = self._engine.rotate(done[before], amount)
            path = (*before, amount)
            done[path] = rotated[amount]
            self._walk(following, path, level, done)


def planned(engine: Engine[Ct], module: Module) -> Engine[Ct]:
    """The engine with a program's plan; without a plan the engine itself."""
    plan = RotationPlan.of(module)
    return engine if plan is None else PlannedEngine(engine, plan)
