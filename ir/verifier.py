"""The verifier: every op obeys its declaration and SSA holds."""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value, infer_type
from atlasc.ir.opdef import RuleError
from atlasc.ir.program_facts import fault_of
from atlasc.ir.types import CiphertextType


def verify(module: Module) -> None:
    """Check a module.

    Raises:
        AtlasError: the first fault, with the op and the module path that it came from.
    """
    defined: set[Value] = set()
    names: set[str] = set()
    ends: set[tuple[str, str]] = set()
    if module.level == "ckks" and (fault := fault_of(module.attributes)):
        raise AtlasError(f"the attributes of @{module.name} make no sense", why=fault)
    for op in module.ops:
        _verify_op(op, module, defined)
        _verify_end(op, module, ends)
        if op.result is not None:
            if op.result.name in names:
                raise _fault(op, f"value %{op.result.name} is defined twice")
            names.add(op.result.name)
            defined.add(op.result)
    if not module.outputs:
        raise AtlasError(f"module @{module.name} has no {module.level}.output op")


def _verify_end(op: Op, module: Module, ends: set[tuple[str, str]]) -> None:
    """Names of inputs and outputs differ; all ciphertexts have the program's slots."""
    kind = op.name.removeprefix(f"{module.level}.")
    if kind in ("input", "public_input", "output"):
        end = kind.removeprefix("public_"), op.attributes["name"]
        if end in ends:
            raise _fault(op, f"the name {op.attributes['name']!r} is given twice")
        ends.add(end)
    if op.result is not None and isinstance(op.result.type, CiphertextType):
        slots, wanted = op.result.type.layout.slots, module.attributes.get("slots")
        if wanted is not None and slots != wanted:
            raise _fault(op, f"its result has {slots} slots, the program {wanted}")


def _verify_op(op: Op, module: Module, defined: set[Value]) -> None:
    if op.definition.level != module.level:
        raise _fault(op, f"an op of another level in a {module.level} module")
    for operand in op.operands:
        if operand not in defined:
            raise _fault(op, f"%{operand.name} is used before it is defined")
    try:
        expected = infer_type(op, module.symbols)
    except RuleError as error:
        raise _fault(op, str(error)) from None
    actual = None if op.result is None else op.result.type
    if actual != expected:
        raise _fault(op, f"its result has type {actual}, its rule gives {expected}")


def _fault(op: Op, text: str) -> AtlasError:
    return AtlasError(f"{op.name}: {text}", where=op.location)
