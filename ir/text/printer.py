"""The text form of a module. ``parse(print_module(m))`` gives an equal module back."""

from __future__ import annotations

from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import RuleError, Symbol, check_value, quoted


def print_module(module: Module) -> str:
    """The module as text; arrays of symbols appear by name, dtype and shape only. An AtlasError
    tells that an attribute of the module has no text form (those of ops are checked before).
    """
    try:
        check_value("module", module.attributes)
    except RuleError as error:
        raise AtlasError(f"module @{module.name} cannot be printed", why=str(error)) from None
    lines = [f"module {Symbol(module.name)} : {module.level}{_attributes(module.attributes)} {{"]
    for name, array in module.arrays_used().items():
        extents = "x".join(map(str, array.shape))
        lines.append(f"  symbol {Symbol(name)} : {array.dtype.name}[{extents}]")
    lines += [f"  {print_op(op)}" for op in module.ops]
    return "\n".join([*lines, "}", ""])


def print_op(op: Op) -> str:
    """One op on one line."""
    head = f"%{op.result.name} = " if op.result is not None else ""
    operands = ", ".join(f"%{operand.name}" for operand in op.operands)
    place = f" loc {quoted(op.location)}" if op.location else ""
    result = f" : {op.result.type}" if op.result is not None else ""
    call = f"{op.name} {operands}" if operands else op.name
    return f"{head}{call}{_attributes(op.attributes)}{place}{result}"


def _attributes(attributes: dict[str, Any]) -> str:
    return f" {print_attribute(attributes)}" if attributes else ""


def print_attribute(value: Any) -> str:
    """An attribute value; floats in the shortest form that reads back exactly."""
    match value:
        case bool():
            return str(value).lower()
        case int() | Symbol():
            return str(value)
        case float():
            return repr(float(value))  # of a NumPy float too
        case str():
            return quoted(value)
        case list():
            return "[" + ", ".join(map(print_attribute, value)) + "]"
        case dict():
            pairs = (f"{name} = {print_attribute(entry)}" for name, entry in value.items())
            return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"an attribute cannot be a {type(value).__name__}")
