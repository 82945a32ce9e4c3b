"""Reads the text form of a module (see ``grammar.lark``)."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from atlasc.ir.bounds import MAX_PATH, MAX_STORED, is_shape, is_symbol
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.ir.module import LEVELS, IRLevel, Module, Value, op_name
from atlasc.ir.opdef import OPS, RuleError, Symbol, check_value
from atlasc.ir.text.approximations import read_approximation

MAX_DIGITS = 20
"""Of an integer of 64 bits, its sign included."""
NUMBERS = "biuf"
"""Kinds of NumPy types that a symbol may have."""


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    values = _Values()
    return Lark(grammar, parser="lalr", propagate_positions=True, transformer=values)


def parse(
    text: str, symbols: Mapping[str, np.ndarray] | None = None, source: str = "<text>"
) -> Module:
    """A module from its text; an AtlasError tells line and column of a syntax or type error.

    Args:
        symbols: the arrays; a declared symbol that is absent becomes zeros that take no memory, so
            that a module can be checked and transformed without its weights.
        source: file name for error messages.
    """
    try:
        tree = _lark().parse(text)
        return _module(tree, symbols or {})
    except UnexpectedInput as error:
        raise _syntax_error(error, text, source) from None
    except _Fault as fault:
        where = f"{source}:{fault.place}"
        raise AtlasError(fault.text, where=where, why=fault.why, remedy=fault.remedy) from None


def _syntax_error(error: UnexpectedInput, text: str, source: str) -> AtlasError:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        found = "the text ends here"
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    else:
        line, column = error.line, error.column
        at = error.pos_in_stream or 0
        token = str(error.token) if isinstance(error, UnexpectedToken) else text[at]
        found = f"unexpected {token!r}"
    names = error.allowed if isinstance(error, UnexpectedCharacters) else None
    expected: Any = names or getattr(error, "accepts", None) or getattr(error, "expected", ())
    lines = text.splitlines()
    excerpt = f"in {lines[line - 1].strip()!r} " if 0 < line <= len(lines) else ""
    return AtlasError(
        f"syntax error: {found}",
        where=f"{source}:{line}:{column}",
        why=f"{excerpt}one of {', '.join(sorted(map(_spelled, expected)))} is expected",
        remedy="docs/ir-reference.md shows the text form",
    )


def _spelled(terminal: str) -> str:
    """A terminal of the grammar as a reader of the text knows it."""
    if terminal in ("$END", "<END-OF-FILE>"):
        return "the end"
    pattern = _lark().get_terminal(terminal).pattern
    return repr(pattern.value) if pattern.type == "str" else terminal.lower()


class _Fault(Exception):
    """A fault at a place of the text."""

    def __init__(self, at: Any, text: str, why: str = "", remedy: str = "") -> None:
        self.place, self.text, self.why, self.remedy = f"{at.line}:{at.column}", text, why, remedy


@contextmanager
def _at(token: Token) -> Iterator[None]:
    try:
        yield
    except RuleError as error:
        raise _Fault(token, str(error)) from None
    except AtlasError as error:
        raise _Fault(token, error.what, error.why, error.remedy) from None


@v_args(inline=True)
class _Values(Transformer):
    """Attributes as Python values, made while the text is read: a tree of them would take a hundred
    times the text's memory.
    """

    real = float

    def true(self) -> bool:
        return True

    def false(self) -> bool:
        return False

    def integer(self, token: Token) -> int:
        if len(token) > MAX_DIGITS:
            raise _Fault(token, f"an integer of {len(token)} digits")
        return int(token)

    def string(self, token: Token) -> str:
        return _unquote(token)

    location = string

    def type(self, token: Token) -> Token:
        return token

    def symbol_reference(self, token: Token) -> Symbol:
        return Symbol(_symbol(token))

    def items(self, *values: Any) -> list[Any]:
        return [value for value in values if value is not None]

    operands = items

    def pair(self, *children: Any) -> tuple[Any, ...]:
        return children

    def entries(self, *pairs: tuple[Token, Any] | None) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for name, value in filter(None, pairs):
            if str(name) in attributes:
                raise _Fault(name, f"attribute {str(name)!r} is given twice")
            attributes[str(name)] = value
        return attributes


def _module(tree: Any, arrays: Mapping[str, np.ndarray]) -> Module:
    name, level, attributes, *nodes = tree.children
    if level not in LEVELS:
        raise _Fault(level, f"unknown IR level {str(level)!r}, expected one of {LEVELS}")
    with _at(name):
        module = Module(_symbol(name), cast(IRLevel, str(level)), attributes=attributes or {})
    with _at(level):
        check_value("module", module.attributes)
    values: dict[str, Value] = {}
    symbols, ops = (
        [node.children for node in nodes if (node.data == "symbol") is wanted]
        for wanted in (True, False)
    )
    for children in symbols:
        _declare(module, arrays, *children)
    at_hand = {name: array for name, array in module.symbols.items() if name in arrays}
    for children in ops:
        _add(module, at_hand, values, *children)
    module.symbols = module.arrays_used()  # those of approximations are in these
    return module


def _declare(
    module: Module, arrays: Mapping[str, np.ndarray], at: Token, kind: Token, extents: Token | None
) -> None:
    name, shape = _symbol(at), _shape(extents)
    if not is_symbol(name):
        raise _Fault(at, f"a symbol cannot be called {name[:MAX_PATH]!r}")
    if name in module.symbols:
        raise _Fault(at, f"symbol {at} is declared twice")
    try:
        dtype = np.dtype(str(kind))
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in NUMBERS:
        raise _Fault(kind, f"unknown dtype {str(kind)!r}")
    array = arrays.get(name)
    if array is None:
        array = np.broadcast_to(np.zeros((), dtype), shape)  # takes no memory
    elif array.shape != shape or array.dtype != dtype:
        declared, stored = f"{dtype}{list(shape)}", f"{array.dtype}{list(array.shape)}"
        raise _Fault(at, f"symbol {at} is declared as {declared}, but the stored array is {stored}")
    module.symbols[name] = array


def _shape(extents: Token | None) -> tuple[int, ...]:
    texts = str(extents).split("x") if extents else []
    if all(len(text) <= MAX_DIGITS for text in texts):
        shape = tuple(map(int, texts))
        if is_shape(shape, MAX_STORED, least=0):
            return shape
    raise _Fault(extents, f"no array has the extents {reprlib.repr(str(extents))}")


def _add(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    values: dict[str, Value],
    name: Token | None,
    at: Token,
    operands: Sequence[Token],
    attributes: dict[str, Any] | None,
    location: str | None,
    written: Token | None,
) -> None:
    """Add an op. The result that the text gives must be the one that the op's rule gives."""
    for token in operands:
        if str(token) not in values:
            raise _Fault(token, f"{token} is used before it is defined")
    if name is not None and str(name) in values:
        raise _Fault(name, f"{name} is defined twice")
    sources = [values[str(token)] for token in operands]
    with _at(at):
        attributes = _typed(str(at), attributes or {}, arrays)
        module.add(
            op_name(str(at)), sources, attributes, location or "", str(name)[1:] if name else None
        )
    value = module.ops[-1].result
    if (name is None) != (value is None):
        has = "has no result" if value is None else "has a result: write %name = before it"
        raise _Fault(at, f"{at} {has}")
    if value is None:
        if written is not None:
            raise _Fault(written, f"{at} has no result and so no type")
        return
    if written is None:
        raise _Fault(at, f"the type is missing; it is {value.type}")
    if written.split() != str(value.type).split():  # an empty field of a layout has two spaces
        raise _Fault(written, f"{at} gives {value.type}, the text says {written}")
    values[str(name)] = value


def _typed(op: str, attributes: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The attributes of an op with layouts and approximations as objects. The text has a layout as
    a string and an approximation as a dictionary.
    """
    kinds = {one.name: one.kind for one in OPS[op].attributes} if op in OPS else {}
    typed = dict(attributes)
    for name, value in attributes.items():
        if kinds.get(name) == "layout" and isinstance(value, str):
            try:
                typed[name] = Layout.parse(value)
            except ValueError as error:
                raise RuleError(f"{name}: {error}") from None
        if kinds.get(name) == "approximation" and isinstance(value, dict):
            check_value(name, value)
            typed[name] = read_approximation(op, value, arrays)
    return typed


_ESCAPES = {"n": "\n", "r": "\r"}


def _unquote(literal: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), str(literal)[1:-1])


def _symbol(token: Token) -> str:
    name = str(token)[1:]
    return _unquote(name) if name.startswith('"') else name
