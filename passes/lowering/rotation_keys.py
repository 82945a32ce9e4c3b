"""``rotation-keys``: which rotation keys a placed program needs, and at which level."""

from __future__ import annotations

from dataclasses import dataclass, field

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.costs import program_costs
from atlasc.passes.execution.rotation_plan import PLAN_ATTRIBUTES, RotationPlan
from atlasc.passes.framework.pass_base import KEY_PLAN, MAGNITUDES, NOISE_GAINS, Pass, Report
from atlasc.passes.framework.rewriting import Rewriter
from atlasc.passes.lowering.keys.choose_rotations import (
    KeyModel,
    Uses,
    choose_rotations,
    rotation_seconds,
)
from atlasc.passes.lowering.keys.sizes import parse_size, size_text

MEMORY = "key_memory"
"""Attribute of a module whose plan was made under a budget, in bytes."""


@dataclass(frozen=True)
class RotationKeys(Pass):
    """Plan the rotations: which amounts have a key, to which level, and how the others are made.

    The module gets the attributes of a `RotationPlan`, and the levels of two other keys, −1 where
    they are not needed: ``relinearization_level`` (products) and ``conjugation_level``.

    Attributes:
        key_memory: bytes of all rotation keys (a pipeline writes 4G); the plan of least predicted
            time within them is chosen. Without it every amount has a key at the highest level of
            its use, unless that saves no time.
        model: sizes and costs of keys.
    """

    name = "rotation-keys"
    takes = "ckks"
    keeps = (MAGNITUDES, NOISE_GAINS)
    makes = (KEY_PLAN,)
    key_memory: int | None = field(default=None, metadata={"parse": parse_size})
    model: KeyModel | None = field(default=None, metadata={"option": False})

    def run(self, module: Module, report: Report) -> Module:
        """Ckks module with levels to the same with its keys planned; an earlier plan is dropped."""
        budget = self.key_memory
        if budget is not None and self.model is None:
            raise AtlasError(
                f"{self.name}: the sizes of keys are not known",
                why=f"no parameter set has the slots and the levels of @{module.name}",
                remedy="place bootstraps for the levels of a set, or give no key_memory",
            )
        rewriter = Rewriter(module)
        for op in module.ops:
            rewriter.copy(op)
        planned = rewriter.module
        for name in (*PLAN_ATTRIBUTES, MEMORY):
            planned.attributes.pop(name, None)
        total = program_costs(planned).total
        plan = RotationPlan(dict(sorted(total.rotation_levels.items())))
        if self.model is not None:
            plan = choose_rotations(
                total.rotation_groups, self.model, module.attributes["slots"], budget
            )
            _require_size(plan, self.model, budget)
            report.say(
                _account(
                    total.rotation_groups, plan, RotationPlan(total.rotation_levels), self.model
                )
            )
        top = max((at for name, at in total.primitives if name in ("mul", "square")), default=-1)
        planned.attributes |= plan.attributes()
        planned.attributes["relinearization_level"] = top
        planned.attributes["conjugation_level"] = total.conjugation_level
        if budget is not None:
            planned.attributes[MEMORY] = budget
        report.say(f"{len(plan.keys)} rotation keys, relinearisation to level {top}")
        return planned


def _require_size(plan: RotationPlan, model: KeyModel, budget: int | None) -> None:
    """Raise AtlasError for a plan, the smallest, that is larger than the budget."""
    size = model.size(plan.keys)
    if budget is not None and size > budget:
        raise AtlasError(
            f"the rotation keys do not fit into {size_text(budget)}",
            why=f"with fewer than {len(plan.keys)} keys of {size_text(size)} together, some "
            "rotation would need more than three key switches",
            remedy=f"use --key-memory {size_text(size)} or more",
        )


def _account(uses: Uses, plan: RotationPlan, full: RotationPlan, model: KeyModel) -> str:
    sizes = [size_text(model.size(one.keys)) for one in (plan, full)]
    seconds = [rotation_seconds(uses, one, model.costs) for one in (plan, full)]
    return (
        f"{len(full.keys)} amounts: {len(plan.keys)} keys of {sizes[0]}, {len(plan.bootstrap)} "
        f"rotated with the bootstrap key, {len(plan.composed)} composed; all keys: {sizes[1]}, "
        f"{seconds[0] - seconds[1]:.1f} s less"
    )


@dataclass(frozen=True)
class KeyPlan:
    """The evaluation keys of a program.

    Attributes:
        rotations: amount -> highest level at which it is used.
        relinearization_level, conjugation_level: the same of the two other keys; None: no key.
    """

    rotations: dict[int, int]
    relinearization_level: int | None = None
    conjugation_level: int | None = None


def key_plan(program: Module) -> KeyPlan:
    """The keys of a program that went through ``rotation-keys``."""
    levels = (program.attributes[name] for name in ("relinearization_level", "conjugation_level"))
    relinearization, conjugation = (None if level < 0 else level for level in levels)
    return KeyPlan(dict(program.attributes["rotations"]), relinearization, conjugation)


def rotation_reach(program: Module, max_level: int) -> dict[int, int]:
    """Amounts of single key switches, and the highest level at which the plan has them."""
    plan = RotationPlan.of(program)
    assert plan is not None
    return {**plan.keys, **dict.fromkeys(plan.bootstrap, max_level)}
