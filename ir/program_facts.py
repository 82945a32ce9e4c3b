"""Checks the attributes of a ckks module that engines rely on.

Packing sets `slots`, the placement of bootstraps sets the levels, key planning sets the keys, and
lowering for a target sets `target` and `parameters`. Other attributes have no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import networkx
from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from atlasc.ir.bounds import MAX_INTEGER, MAX_LEVEL, MAX_SLOT_BITS


def _power_of_two(value: int) -> int:
    if value.bit_count() != 1:
        raise ValueError("it is no power of two")
    return value


def _distinct(rows: list[Any]) -> list[Any]:
    if len({row[0] if isinstance(row, tuple) else row for row in rows}) < len(rows):
        raise ValueError("two begin alike")
    return rows


_Amount = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
_Level = Annotated[int, Field(ge=0, le=MAX_LEVEL)]
_KeyLevel = Annotated[int, Field(ge=-1, le=MAX_LEVEL)]
_Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")]
_Entry = bool | int | _Name | Annotated[str, Field(max_length=0)]
_KeyRow = Annotated[tuple[_Amount, _Level], Strict(False)]
_ComposedRow = Annotated[tuple[_Amount, _Amount, _Amount], Strict(False)]
_Slots = Annotated[int, Field(ge=1, le=1 << MAX_SLOT_BITS), AfterValidator(_power_of_two)]
_FACTS: dict[str, tuple[str, Any]] = {
    "slots": ("a power of two that a ciphertext may have", _Slots),
    "batch_capacity": ("a positive integer", _Amount),
    "levels": ("a level", _Level),
    "bootstrap": ("true or false", bool),
    "bootstrap_batch": ("a positive integer", _Amount),
    "key_memory": ("a number of bytes", Annotated[int, Field(ge=0, le=MAX_INTEGER)]),
    "relinearization_level": ("the level of a key, or -1", _KeyLevel),
    "conjugation_level": ("the level of a key, or -1", _KeyLevel),
    "rotations": ("a list of [amount, level]", Annotated[list[_KeyRow], AfterValidator(_distinct)]),
    "bootstrap_rotations": (
        "a list of amounts",
        Annotated[list[_Amount], AfterValidator(_distinct)],
    ),
    "target": ("the name of a target", _Name),
    "parameters": (
        "a set of integers, names and truths",
        Annotated[dict[str, _Entry], Field(max_length=32)],
    ),
    "composed_rotations": (
        "a list of [amount, first, last]",
        Annotated[list[_ComposedRow], AfterValidator(_distinct)],
    ),
}
_CHECKS = {
    name: TypeAdapter(kind, config=ConfigDict(strict=True)) for name, (_, kind) in _FACTS.items()
}


def fault_of(facts: Mapping[str, Any]) -> str:
    """What is wrong with the attributes of a ckks module; empty where nothing is."""
    for name, check in _CHECKS.items():
        try:
            if name in facts:
                check.validate_python(facts[name])
        except ValidationError:
            return f"{name} is not {_FACTS[name][0]}"
    rotations, sums = facts.get("rotations", ()), facts.get("composed_rotations", ())
    single = facts.get("bootstrap_rotations", ())
    listed = {"rotations", "bootstrap_rotations", "composed_rotations"} & facts.keys()
    if listed and "slots" not in facts:
        return "it lists keys, but not the slots of its ciphertexts"
    amounts = [row[0] for row in rotations] + [*single] + [part for row in sums for part in row]
    if amounts and max(amounts) >= facts["slots"]:
        return f"a rotation by {max(amounts)} of {facts['slots']} slots"
    # A composed rotation must end: no rotation may be a part of itself.
    with suppress(networkx.NetworkXNoCycle):
        around = networkx.find_cycle(networkx.DiGraph([row[:2] for row in sums]))
        return f"the rotation by {around[0][0]} is composed of itself"
    return ""
