"""The verifier: every op obeys its declaration, SSA holds, and the facts of a ckks module agree.

Engines rely on the attributes of a ckks module. Packing sets `slots`, the placement of bootstraps
sets the levels, key planning sets the keys, and lowering for a target sets `target` and
`parameters`. Other attributes have no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from atlasc.ir.bounds import MAX_INTEGER, MAX_LEVEL, MAX_SLOT_BITS
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value, infer_type
from atlasc.ir.opdef import RuleError, require
from atlasc.ir.types import CiphertextType


def verify(module: Module) -> None:
    """Check a module; raises AtlasError for the first fault, with the op and its module path."""
    if module.level == "ckks" and (fault := fault_of(module.attributes)):
        raise AtlasError(f"the attributes of @{module.name} are invalid", why=fault)
    defined: dict[str, Value] = {}
    ends: set[tuple[str, str]] = set()
    for op in module.ops:
        try:
            _verify(op, module, defined, ends)
        except RuleError as error:
            raise AtlasError(f"{op.name}: {error}", where=op.location) from None
    if not module.outputs:
        raise AtlasError(f"module @{module.name} has no {module.level}.output op")
    results = {op.attributes["name"]: op.operands[0].type for op in module.outputs}
    for op in module.inputs:
        name = op.attributes["name"]
        if op.attributes.get("state") and results.get(name) != op.value.type:
            raise AtlasError(
                f"the state {name!r} has no output of its name and type",
                where=op.location,
                why=f"it is {op.value.type}, the output {results.get(name)}",
            )


def _verify(op: Op, module: Module, defined: dict[str, Value], ends: set[tuple[str, str]]) -> None:
    at_level = op.definition.level == module.level
    require(at_level, f"an op of another level in a {module.level} module")
    for operand in op.operands:
        known = defined.get(operand.name) is operand
        require(known, f"%{operand.name} is used before it is defined")
    expected = infer_type(op, module.symbols)
    actual = None if op.result is None else op.result.type
    if actual != expected:
        raise RuleError(f"its result has type {actual}, but its rule gives {expected}")
    kind = op.name.removeprefix(f"{module.level}.")
    if kind in ("input", "public_input", "output"):
        end = kind.removeprefix("public_"), op.attributes["name"]
        require(end not in ends, f"the name {op.attributes['name']!r} is given twice")
        ends.add(end)
    if op.result is None:
        return
    if isinstance(op.result.type, CiphertextType):
        slots = op.result.type.layout.slots
        wanted = module.attributes.get("slots", slots)
        require(slots == wanted, f"its result has {slots} slots, but the program has {wanted}")
    if op.name == "ckks.bootstrap":
        least, found = module.attributes.get("bootstrap_from", 0), op.operands[0].ciphertext.level
        enough = found is None or found >= least
        require(enough, f"its operand is at level {found}, but a bootstrap begins at level {least}")
    require(op.result.name not in defined, f"value %{op.result.name} is defined twice")
    defined[op.result.name] = op.result


def _power_of_two(value: int) -> int:
    if value.bit_count() != 1:
        raise ValueError("not a power of two")
    return value


def _distinct(rows: list[Any]) -> list[Any]:
    if len({row[0] if isinstance(row, tuple) else row for row in rows}) < len(rows):
        raise ValueError("two entries begin alike")
    return rows


def _rising(levels: list[int]) -> list[int]:
    if levels[0] >= levels[1]:
        raise ValueError("not rising")
    return levels


_Amount = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
_Level = Annotated[int, Field(ge=0, le=MAX_LEVEL)]
_KeyLevel = Annotated[int, Field(ge=-1, le=MAX_LEVEL)]
_Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$")]
_Entry = bool | int | _Name | Annotated[str, Field(max_length=0)]
_KeyRow = Annotated[tuple[_Amount, _Level], Strict(False)]
_ComposedRow = Annotated[tuple[_Amount, _Amount, _Amount], Strict(False)]
_DerivedRow = Annotated[tuple[_Amount, _Amount], Strict(False)]
_Slots = Annotated[int, Field(ge=1, le=1 << MAX_SLOT_BITS), AfterValidator(_power_of_two)]
_FACTS: dict[str, tuple[str, Any]] = {
    "slots": ("a power of two that a ciphertext may have", _Slots),
    "batch_capacity": ("a positive integer", _Amount),
    "levels": ("a level", _Level),
    "bootstrap": ("true or false", bool),
    "bootstrap_batch": ("a positive integer", _Amount),
    "bootstrap_from": ("a level", _Level),
    "lanes": ("a positive integer", _Amount),
    "most_sums": ("a positive integer", _Amount),
    "fewer_keys": ("true or false", bool),
    "key_memory": ("a number of bytes", Annotated[int, Field(ge=0, le=MAX_INTEGER)]),
    "relinearization_level": ("the level of a key, or -1", _KeyLevel),
    "conjugation_level": ("the level of a key, or -1", _KeyLevel),
    "rotations": ("a list of [amount, level]", Annotated[list[_KeyRow], AfterValidator(_distinct)]),
    "derived_rotations": (
        "a list of [amount, root]",
        Annotated[list[_DerivedRow], AfterValidator(_distinct)],
    ),
    "root_levels": (
        "the level of derived keys and a higher one",
        Annotated[list[_Level], Field(min_length=2, max_length=2), AfterValidator(_rising)],
    ),
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
    """What is wrong with the attributes of a ckks module; empty if nothing is."""
    for name, check in _CHECKS.items():
        try:
            if name in facts:
                check.validate_python(facts[name])
        except ValidationError:
            return f"{name} is not {_FACTS[name][0]}"
    rotations, sums = facts.get("rotations", ()), facts.get("composed_rotations", ())
    single = facts.get("bootstrap_rotations", ())
    listed = {
        "rotations", "bootstrap_rotations", "composed_rotations", "derived_rotations"
    } & facts.keys()  # fmt: skip
    if listed and "slots" not in facts:
        return "the module lists keys, but not the slots of its ciphertexts"
    amounts = [row[0] for row in rotations] + [*single]
    amounts += [part for row in (*sums, *facts.get("derived_rotations", ())) for part in row]
    if amounts and max(amounts) >= facts["slots"]:
        return f"a rotation by {max(amounts)} exceeds the {facts['slots']} slots"
    # A composed rotation must end: no rotation may be a part of itself.
    parts: TopologicalSorter[int] = TopologicalSorter()  # not to be subscripted before Python 3.11
    for amount, part, *_ in sums:
        parts.add(amount, part)
    try:
        parts.prepare()
    except CycleError as error:
        return f"the rotation by {error.args[1][0]} is composed of itself"
    return _fault_of_derivation(facts)


def _fault_of_derivation(facts: Mapping[str, Any]) -> str:
    """What is wrong with the keys that a server derives; empty if nothing is."""
    derived, root_levels = (facts.get(name) for name in ("derived_rotations", "root_levels"))
    if derived is None and root_levels is None:
        return ""
    if not derived or root_levels is None:
        return "derived_rotations and root_levels belong together"
    levels = dict(facts.get("rotations", ()))
    before: TopologicalSorter[int] = TopologicalSorter()
    for amount, root in derived:
        start = (amount - root) % facts["slots"]
        if amount not in levels or levels[amount] > root_levels[0]:
            return f"no key for the rotation by {amount} can be derived up to its level"
        if start and levels.get(start, -1) < levels[amount]:
            return f"the rotation by {amount} is derived from {start}, whose key does not reach it"
        before.add(amount, start)
    try:
        before.prepare()
    except CycleError as error:
        return f"the key for the rotation by {error.args[1][0]} is derived from itself"
    return ""
