"""The verifier: every op obeys its declaration and SSA holds."""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value, infer_type
from atlasc.ir.opdef import RuleError, require
from atlasc.ir.program_facts import fault_of
from atlasc.ir.types import CiphertextType


def verify(module: Module) -> None:
    """Check a module.

    Raises:
        AtlasError: the first fault, with the op and the module path that it came from.
    """
    if module.level == "ckks" and (fault := fault_of(module.attributes)):
        raise AtlasError(f"the attributes of @{module.name} make no sense", why=fault)
    defined: dict[str, Value] = {}
    ends: set[tuple[str, str]] = set()
    for op in module.ops:
        try:
            _verify(op, module, defined, ends)
        except RuleError as error:
            raise AtlasError(f"{op.name}: {error}", where=op.location) from None
    if not module.outputs:
        raise AtlasError(f"module @{module.name} has no {module.level}.output op")


def _verify(op: Op, module: Module, defined: dict[str, Value], ends: set[tuple[str, str]]) -> None:
    at_level = op.definition.level == module.level
    require(at_level, f"an op of another level in a {module.level} module")
    for operand in op.operands:
        known = defined.get(operand.name) is operand
        require(known, f"%{operand.name} is used before it is defined")
    expected = infer_type(op, module.symbols)
    actual = None if op.result is None else op.result.type
    if actual != expected:
        raise RuleError(f"its result has type {actual}, its rule gives {expected}")
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
        require(slots == wanted, f"its result has {slots} slots, the program {wanted}")
    require(op.result.name not in defined, f"value %{op.result.name} is defined twice")
    defined[op.result.name] = op.result
