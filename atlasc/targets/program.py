"""The digest of a ckks module, and the parameter set that it was lowered for."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.storage import print_module
from atlasc.program.key_plan import MEMORY
from atlasc.program.rotation_plan import PLAN_ATTRIBUTES
from atlasc.targets import find_target
from atlasc.targets.base import Target
from atlasc.targets.parameters import ParameterSet

TARGET, PARAMETERS = "target", "parameters"
"""Attributes of a module: name of its target, and its parameter set as in a manifest."""
EMBEDDING = "embedding"
"""Attribute of a module: the identity of the client's computation before encryption."""


def identity_of(program: Module) -> str:
    """SHA-256 of the program's text and arrays, without its plan of rotations.

    Keys of another plan are refused anyway, for the keys that they lack.
    """
    planned = (*PLAN_ATTRIBUTES, MEMORY)
    facts = {name: fact for name, fact in program.attributes.items() if name not in planned}
    state = hashlib.sha256(print_module(replace(program, attributes=facts)).encode())
    for name, array in sorted(program.arrays_used().items()):
        state.update(f"{name} {array.dtype} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def with_embedding(program: Module, embed: Module) -> Module:
    """The program with the identity of the client's part, so that a query of another embedding
    counts as a query of another program."""
    return replace(program, attributes=program.attributes | {EMBEDDING: identity_of(embed)})


def with_parameters(program: Module, target: Target, parameters: ParameterSet) -> Module:
    """The program with a note of the target and the parameters that it was lowered for."""
    facts = {TARGET: target.name, PARAMETERS: parameters.to_dict()}
    return replace(program, attributes=program.attributes | facts)


def with_matching_parameters(program: Module, target: Target) -> Module:
    """A program that was placed by hand, with a note of the cheapest set for its slots and levels.

    If the target has no such set, the program is returned unchanged.
    """
    facts = program.attributes
    levels, bootstrap = facts["levels"], facts.get("bootstrap", False)
    found = target.parameters.matching(facts["slots"], levels, bootstrap)
    return program if found is None else with_parameters(program, target, found)


def parameters_of(program: Module) -> ParameterSet | None:
    """The set that a program was lowered for; None if the program does not tell.

    Raises:
        AtlasError: the target or the set is unknown, or cannot have this program's ciphertexts.
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
            why=f"the program has {slots} slots and {levels} levels, but "
            f"{found.to_dict()} has {found.slots} and {found.max_level}",
            remedy="lower the model again",
        )
    return found


def parameters_on(own: str, parameters: dict[str, Any], target: str) -> ParameterSet:
    """The parameters of a program as a target runs them.

    Args:
        own: the target that the program was lowered for.
        parameters: its parameter set, as in a manifest.
        target: the target; empty for the program's own.

    Raises:
        AtlasError: the target is unknown, or has other parameters.
    """
    kind = find_target(target or own).parameters
    found: ParameterSet | None = None
    with suppress(AtlasError):
        found = kind.from_dict(parameters)
    if found is None or found.to_dict() != parameters:
        raise AtlasError(
            f"the target {target} cannot run a program that was lowered for {own}",
            why="the two have different parameters",
            remedy=f"inspect the model itself with --target {target}, or compile it for {target}",
        )
    return found
