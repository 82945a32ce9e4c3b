"""``rotation-keys``: plans which rotation keys a placed program gets, and at which level."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import KEY_PLAN, MAGNITUDES, NOISE_GAINS
from atlasc.ir.module import Module
from atlasc.ir.rewriting import with_attributes
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.lowering.keys.choose_rotations import (
    KeyModel,
    choose_rotations,
    rotation_seconds,
)
from atlasc.passes.lowering.keys.sizes import KeysDoNotFit, parse_size, size_text
from atlasc.program.costs import program_costs
from atlasc.program.key_plan import DERIVATION, MEMORY, KeyPlan, key_plan
from atlasc.program.rotation_plan import PLAN_ATTRIBUTES, RotationPlan


@dataclass(frozen=True)
class RotationKeys(Pass):
    """Plan the rotations: the amounts with a key, its level, and how other amounts are composed.

    The module gets the attributes of a `RotationPlan`, and the levels of two other keys, −1 if they
    are not needed: ``relinearization_level`` (products) and ``conjugation_level``.

    Attributes:
        key_memory: bytes of all rotation keys (in a pipeline: 4G); the plan of least predicted time
            within them is chosen. Without it every amount has a key at the highest level of its
            use, unless that saves no time.
        model: sizes and costs of keys.
    """

    name = "rotation-keys"
    takes = "ckks"
    keeps = (MAGNITUDES, NOISE_GAINS)
    makes = (KEY_PLAN,)
    key_memory: int | None = field(default=None, metadata={"parse": parse_size})
    model: KeyModel | None = field(default=None, metadata={"option": False})

    def run(self, module: Module, report: Report) -> Module:
        """Plan the keys of a ckks module with levels; an earlier plan is dropped."""
        budget = self.key_memory
        if budget is not None and self.model is None:
            raise AtlasError(
                f"{self.name}: the sizes of keys are not known",
                why=f"no parameter set has the slots and the levels of @{module.name}",
                remedy="place bootstraps for the levels of a set, or leave key_memory out",
            )
        planned = with_attributes(module, lambda op: op.attributes)
        for name in (*PLAN_ATTRIBUTES, *DERIVATION, MEMORY):
            planned.attributes.pop(name, None)
        total = program_costs(planned).total
        plan = every = RotationPlan(dict(sorted(total.rotation_levels.items())))
        if self.model is not None:
            uses, slots = total.rotation_groups, module.attributes["slots"]
            required = total.transform_levels
            plan = choose_rotations(uses, self.model, slots, budget, required)
            sizes = [self.model.size(one.keys) for one in (plan, every)]
            if budget is not None and sizes[0] > budget:
                if required and not module.attributes.get("fewer_keys"):
                    planned.attributes["fewer_keys"] = True
                    report.say("linear transforms take fewer keys")
                    return self.run(planned, report)
                least = size_text(sizes[0])
                raise KeysDoNotFit(
                    f"the rotation keys do not fit into {size_text(budget)}",
                    why=f"with fewer than {len(plan.keys)} keys of {least} together, some "
                    "rotation would need more than three key switches, or a step of a transform "
                    "would have no key",
                    remedy=f"use at least {least} as key-memory of --target",
                    least=sizes[0],
                )
            seconds = [rotation_seconds(uses, one, self.model.costs) for one in (plan, every)]
            report.say(
                f"{len(every.keys)} amounts: {len(plan.keys)} keys of {size_text(sizes[0])}, "
                f"{len(plan.bootstrap)} rotated with the bootstrap key, {len(plan.composed)} "
                f"composed; all keys: {size_text(sizes[1])}, {seconds[0] - seconds[1]:.1f} s less"
            )
        top = max((at for name, at in total.primitives if name in ("mul", "square")), default=-1)
        planned.attributes |= {
            **plan.attributes(),
            "relinearization_level": top,
            "conjugation_level": total.conjugation_level,
        }
        if budget is not None:
            planned.attributes[MEMORY] = budget
        report.say(f"{len(plan.keys)} rotation keys, relinearization to level {top}")
        return planned


def with_key_levels(program: Module, keys: KeyPlan) -> Module:
    """A program that names each of its keys at the level at which a key set has it.

    Args:
        program: a program with a plan.
        keys: has all keys of the plan, at its levels or higher ones.
    """
    own = key_plan(program)
    plan = KeyPlan(
        {amount: keys.rotations[amount] for amount in own.rotations},
        None if own.relinearization_level is None else keys.relinearization_level,
        None if own.conjugation_level is None else keys.conjugation_level,
        derivation=own.derivation,
    )
    return replace(program, attributes=program.attributes | plan.attributes())
