"""The parameter set that a ckks module says it was lowered for."""

from __future__ import annotations

from dataclasses import replace

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.targets import find_target
from atlasc.targets.base import Target
from atlasc.targets.parameters import ParameterSet

TARGET, PARAMETERS = "target", "parameters"
"""Attributes of a module: name of the target, and the set as a manifest has it."""


def with_parameters(program: Module, target: Target, parameters: ParameterSet) -> Module:
    """The program with a note of what it was lowered for."""
    facts = {TARGET: target.name, PARAMETERS: parameters.to_dict()}
    return replace(program, attributes=program.attributes | facts)


def with_matching_parameters(program: Module, target: Target) -> Module:
    """A program that was placed by hand, with a note of the cheapest set that has its slots and
    levels; the program itself where the target has none.
    """
    facts = program.attributes
    levels, bootstrap = facts["levels"], facts.get("bootstrap", False)
    found = target.parameters.matching(facts["slots"], levels, bootstrap)
    return program if found is None else with_parameters(program, target, found)


def parameters_of(program: Module) -> ParameterSet | None:
    """The set that a program was lowered for; None where it does not tell.

    Raises:
        AtlasError: there is no such target or set, or it cannot have this program's ciphertexts.
    """
    facts = program.attributes
    if TARGET not in facts or PARAMETERS not in facts:
        return None
    found = find_target(facts[TARGET]).parameters.from_dict(facts[PARAMETERS])
    slots, levels = facts.get("slots"), facts.get("levels", 0)
    refreshed = found.bootstrap_level == levels or not facts.get("bootstrap", False)
    if slots != found.slots or levels > found.max_level or not refreshed:
        raise AtlasError(
            f"@{program.name} was not lowered for the parameters that it names",
            why=f"it has {slots} slots and {levels} levels, {found.to_dict()} has {found.slots} "
            f"and {found.max_level}",
            remedy="lower the model again",
        )
    return found
