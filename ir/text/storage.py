"""Modules as text, and on disk: ``NAME.air`` with the text, ``NAME.safetensors`` with the arrays.

``parse(print_module(m))`` gives an equal module back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.arrays.tensor_files import read_safetensors, write_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, read_text
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import RuleError, Symbol, check_value, quoted
from atlasc.ir.text.approximations import Stored, approximation_arrays
from atlasc.ir.text.parser import parse
from atlasc.ir.verifier import verify

MAX_TEXT = 32 * MIB
"""Largest IR text in bytes; a model of 48 layers has 10 MiB."""


def print_module(module: Module) -> str:
    """The module as text; arrays of symbols appear by name, dtype and shape only. An AtlasError
    tells that an attribute of the module has no text form (those of ops are checked before).
    """
    try:
        check_value("module", module.attributes)
    except RuleError as error:
        raise AtlasError(f"module @{module.name} cannot be printed", why=str(error)) from None
    lines = [f"module {Symbol(module.name)} : {module.level}{_attributes(module.attributes)} {{"]
    of_approximations = approximation_arrays(module.ops, module.symbols)
    for name, array in _with_arrays_of(module, of_approximations).items():
        extents = "x".join(map(str, array.shape))
        lines.append(f"  symbol {Symbol(name)} : {array.dtype.name}[{extents}]")
    lines += [f"  {print_op(op, of_approximations.get(op, {}))}" for op in module.ops]
    return "\n".join([*lines, "}", ""])


def stored_arrays(module: Module) -> dict[str, np.ndarray]:
    """All arrays that the text of a module refers to, by symbol."""
    return _with_arrays_of(module, approximation_arrays(module.ops, module.symbols))


def _with_arrays_of(
    module: Module, of_approximations: Mapping[Op, Stored]
) -> dict[str, np.ndarray]:
    further = (stored for entries in of_approximations.values() for stored in entries.values())
    return module.arrays_used() | {symbol.name: array for symbol, array in further}


def print_op(op: Op, stored: Stored | None = None) -> str:
    """One op on one line.

    Args:
        stored: the arrays of its approximation; None: under symbols of the op's own.
    """
    attributes: dict[str, Any] = dict(op.attributes)
    if "approximation" in op.attributes:
        stored = approximation_arrays([op]).get(op, {}) if stored is None else stored
        symbols = {entry: symbol for entry, (symbol, _) in stored.items()}
        attributes["approximation"] = op.attributes["approximation"].entries() | symbols
    head = f"%{op.result.name} = " if op.result is not None else ""
    operands = ", ".join(f"%{operand.name}" for operand in op.operands)
    place = f" loc {quoted(op.location)}" if op.location else ""
    result = f" : {op.result.type}" if op.result is not None else ""
    call = f"{op.name} {operands}" if operands else op.name
    return f"{head}{call}{_attributes(attributes)}{place}{result}"


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
        case Layout():
            return quoted(str(value))
        case list():
            return "[" + ", ".join(map(print_attribute, value)) + "]"
        case dict():
            pairs = (f"{name} = {print_attribute(entry)}" for name, entry in value.items())
            return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"an attribute cannot be a {type(value).__name__}")


def save_module(module: Module, path: Path) -> None:
    """Write the text to ``path`` and the arrays that it uses beside it."""
    save_modules({path: module}, path.with_suffix(".safetensors"))


def save_modules(modules: Mapping[Path, Module], arrays: Path) -> None:
    """Write several texts, and the arrays of all of them into one file; see :func:`save_texts`."""
    write_safetensors(arrays, save_texts(modules))


def save_texts(modules: Mapping[Path, Module]) -> dict[str, np.ndarray]:
    """Write several texts, and return the arrays of all of them by name.

    Modules may share symbols, if these name the same arrays.
    """
    kept: dict[str, np.ndarray] = {}
    for path, module in modules.items():
        path.write_text(print_module(module), encoding="utf-8")
        for name, array in stored_arrays(module).items():
            known = kept.setdefault(name, array)
            if known is not array and not np.array_equal(known, array):
                raise ValueError(f"two modules have different arrays @{name}")
    return kept


def load_module(path: Path, arrays: Path | None = None) -> Module:
    """Read what ``save_module`` wrote.

    Args:
        path: the text.
        arrays: the file with its arrays, which must have all of them. None: the one beside the
            text; what is missing there, or all, is then taken for zeros.

    Raises:
        AtlasError: no such file, not text, a syntax or type error, a module that does not verify,
            a damaged arrays file, or one that lacks an array.
    """
    beside = arrays or path.with_suffix(".safetensors")
    text = read_text(path, MAX_TEXT)
    symbols = read_safetensors(beside) if arrays or beside.exists() else {}
    module = parse(text, symbols, str(path))
    if arrays and (missing := module.symbols.keys() - symbols.keys()):
        raise AtlasError(f"{arrays} lacks the array @{min(missing)}", where=str(path))
    verify(module)
    return module
