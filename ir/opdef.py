"""Op declarations: all facts about an op, in one place.

The builder, verifier, printer, interpreter and the generated reference read these declarations.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from atlasc.ir import bounds
from atlasc.ir.approximation import ApproximationAttribute
from atlasc.ir.arrays.lazy import as_dtype
from atlasc.ir.layout import Layout
from atlasc.ir.types import Type

_PLAIN_SYMBOL = re.compile(r"[A-Za-z_][\w.\-/]*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def quoted(text: str) -> str:
    """A string literal of the text form."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


@dataclass(frozen=True)
class Symbol:
    """Reference to an array of the module's symbol table: ``@name``, or ``@"odd name"``."""

    name: str

    def __str__(self) -> str:
        plain = _PLAIN_SYMBOL.fullmatch(self.name)
        return f"@{self.name if plain else quoted(self.name)}"


class RuleError(Exception):
    """An op breaks its declaration; the caller adds the op and its place."""


def require(holds: object, otherwise: str) -> None:
    """Raise RuleError with a message where a rule does not hold."""
    if not holds:
        raise RuleError(otherwise)


@dataclass(frozen=True)
class AttributeDef:
    """One attribute of an op: name, kind (see ``KINDS``), meaning, and whether it may be absent."""

    name: str
    kind: str
    doc: str
    optional: bool = False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Kind:
    """A kind of attributes: its Python type as an annotation, and which values are of it."""

    annotation: str
    includes: Callable[[Any], bool]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_one, value))


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def number(value: float | Symbol) -> float:
    """The value of an attribute that may be a symbol in other ops, but not here."""
    assert not isinstance(value, Symbol), f"{value} is no number"
    return value


KINDS: dict[str, Kind] = {
    "bool": Kind("bool", _is(bool)),
    "int": Kind("int", _is_int),
    "float": Kind("float", _is_number),
    "string": Kind("str", _is(str)),
    "name": Kind("str", lambda value: isinstance(value, str) and bounds.is_name(value)),
    "layout": Kind("Layout", _is(Layout)),
    "approximation": Kind("ApproximationAttribute", _is(ApproximationAttribute)),
    "symbol": Kind("Symbol", _is(Symbol)),
    "scalar or symbol": Kind("float | Symbol", lambda v: _is_number(v) or isinstance(v, Symbol)),
    "ints": Kind("list[int]", _are(_is_int)),
    "floats": Kind("list[float]", _are(_is_number)),
    "floats or symbol": Kind(
        "list[float] | Symbol", lambda v: isinstance(v, Symbol) or _are(_is_number)(v)
    ),
    "strings": Kind("list[str]", _are(_is(str))),
}
"""By the name that declarations use."""


def check_value(name: str, value: Any, nesting: int = 0) -> None:
    """Raise RuleError where an attribute's value, at any depth, has no text form, or is beyond the
    bounds.
    """
    if nesting > bounds.MAX_NESTING:
        raise RuleError(f"attribute {name!r} is nested too deeply")
    if isinstance(value, float):
        if not math.isfinite(value):
            what = f"attribute {name!r} holds {value}"
            raise RuleError(f"{what}; only finite numbers have a text form")
    elif isinstance(value, int):
        if not -bounds.MAX_INTEGER - 1 <= value <= bounds.MAX_INTEGER:
            raise RuleError(f"attribute {name!r} holds an integer of more than 64 bits")
    elif isinstance(value, list):
        for item in value:
            check_value(name, item, nesting + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not _IDENTIFIER.fullmatch(key):
                raise RuleError(f"attribute {name!r} has the entry {key!r}, which is no identifier")
            check_value(name, item, nesting + 1)
    elif isinstance(value, str):
        if not value.isprintable():
            raise RuleError(f"attribute {name!r} holds a text with control characters")
    elif isinstance(value, (Symbol, Layout)):
        return
    elif isinstance(value, ApproximationAttribute):
        for entry, item in value.entries().items():
            if not isinstance(item, np.ndarray):
                check_value(f"{name}.{entry}", item, nesting + 1)
    else:
        raise RuleError(f"attribute {name!r} cannot hold a {type(value).__name__}")


def symbols_in(value: Any) -> Iterator[Symbol]:
    """The symbols in an attribute's value, at any depth."""
    if isinstance(value, Symbol):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, (Symbol, list, dict)):
                yield from symbols_in(item)


@dataclass(frozen=True)
class Site:
    """The part of an op that rules see: operand types, attributes and the arrays of its symbols."""

    types: Sequence[Any]
    attributes: Mapping[str, Any]
    symbols: Mapping[str, np.ndarray]

    def shape(self, operand: int = 0) -> tuple[int, ...]:
        """Shape of a tensor operand."""
        return self.types[operand].shape

    def constant_shape(self, name: str) -> tuple[int, ...]:
        """Shape of the constant in an attribute (a symbol, a number or a list of numbers)."""
        value = self.attributes[name]
        if isinstance(value, Symbol):
            return tuple(self.symbols[value.name].shape)
        return np.shape(value)

    def like(self, name: str, x: np.ndarray) -> np.ndarray:
        """The constant in an attribute in the type of an operand."""
        return self.constant(name, x.dtype)

    def constant(self, name: str, dtype: Any = np.float64) -> np.ndarray:
        """The constant in an attribute as an array."""
        return np.asarray(self.stored(name, dtype))

    def stored(self, name: str, dtype: Any = np.float64) -> np.ndarray:
        """The constant in an attribute; a large one may be made only when it is read."""
        value = self.attributes[name]
        return as_dtype(self.symbols[value.name] if isinstance(value, Symbol) else value, dtype)


COMMON = (
    AttributeDef("part", "string", "the nonlinear function that the op was expanded from"),
    AttributeDef("magnitude", "float", "greatest magnitude of the result that calibration saw; of "
                 "an output, of the answer"),
    AttributeDef("holds", "string", "of a packed value: the poly value whose elements its slots "
                 "hold"),
    AttributeDef("bound", "float", "magnitude that the result may not exceed, because it is "
                 "bootstrapped"),
    AttributeDef("mean", "float", "greatest mean of one input's result that calibration saw"),
    AttributeDef("noise_gain", "float", "change of the outputs by an error of the result, in units "
                 "of their size; of an output, what a change of 1 is in units of the answer"),
    AttributeDef("noise", "float", "of an output: error that encryption adds to an answer, a root "
                 "mean square"),
)  # fmt: skip
"""Optional attributes of every op (docs/precision.md)."""


@dataclass(frozen=True)
class OpDef:
    """Declaration of an op.

    Attributes:
        name: qualified name, ``level.op``.
        summary: one line for the reference.
        operands: names; a trailing ``?`` marks an optional one.
        attributes: the attributes it takes, beside those in ``COMMON``.
        infer: result type from a Site, or None for an op without result. Raises RuleError.
        evaluate: cleartext meaning; called with the Site and the operand arrays.
        levels: levels consumed when compiled: a number, or a function of a Site.
        family: of the approximations that replace a nonlinear op (softmax, norm, activation).
    """

    name: str
    summary: str
    operands: tuple[str, ...]
    attributes: tuple[AttributeDef, ...]
    infer: Callable[[Site], Type | None]
    evaluate: Callable[..., np.ndarray] | None = None
    levels: int | Callable[[Site], int] = 0
    family: str = ""

    @property
    def nonlinear(self) -> bool:
        """Whether the op has to become polynomials."""
        return bool(self.family)

    @property
    def level(self) -> str:
        """The IR level (``nn``, ``poly`` or ``ckks``) that the op belongs to."""
        return self.name.split(".")[0]

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Name of each attribute, those in ``COMMON`` too -> its kind."""
        return {attribute.name: attribute.kind for attribute in (*self.attributes, *COMMON)}

    def consumed(self, site: Site) -> int:
        """Levels that the op consumes."""
        return self.levels if isinstance(self.levels, int) else self.levels(site)

    def check(self, operands: int, attributes: Mapping[str, Any]) -> None:
        """Raise RuleError on a wrong number of operands, or a missing, unknown or ill-typed
        attribute.
        """
        high = len(self.operands)
        low = sum(not name.endswith("?") for name in self.operands)
        takes = str(low) if low == high else f"{low} to {high}"
        require(low <= operands <= high, f"takes {takes} operands, not {operands}")
        kinds = self.kinds
        for name, value in attributes.items():
            if name not in kinds:
                own = sorted(attribute.name for attribute in self.attributes)
                raise RuleError(f"unknown attribute {name!r}; it takes {own or 'none'}")
            check_value(name, value)
            if not KINDS[kinds[name]].includes(value):
                shown = reprlib.repr(value)
                raise RuleError(f"attribute {name!r} must be of kind {kinds[name]}, not {shown}")
            if kinds[name] == "approximation":
                what = f"{value.algorithm!r} is for the family {value.family}, not {self.family}"
                require(value.family == self.family, what)
        for one in self.attributes:
            given = one.optional or one.name in attributes
            require(given, f"attribute {one.name!r} ({one.kind}) is missing")


OPS: dict[str, OpDef] = {}
"""All op declarations by qualified name."""


def declare(
    names: str,
    summary: str,
    operands: str,
    infer: Callable[[Site], Type | None],
    *attributes: AttributeDef,
    **facts: Any,
) -> None:
    """Declare one op, or the same op at several IR levels (``"nn.add poly.add"``).

    Names and operands are separated by spaces; ``facts`` are the other fields of ``OpDef``.
    """
    for name in names.split():
        if name in OPS:
            raise ValueError(f"op {name} is declared twice")
        OPS[name] = OpDef(name, summary, tuple(operands.split()), attributes, infer, **facts)
