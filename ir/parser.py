"""Reads the text form of a module (see ``grammar.lark``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import IRLevel, Module, Value
from atlasc.ir.opdef import Symbol

LEVELS = ("nn", "poly", "ckks")


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True)


def parse(
    text: str, symbols: Mapping[str, np.ndarray] | None = None, source: str = "<text>"
) -> Module:
    """A module from its text.

    Args:
        text: the module.
        symbols: the arrays; a declared symbol that is absent becomes zeros that take no memory, so
            that a module can be checked and transformed without its weights.
        source: file name for error messages.

    Raises:
        AtlasError: syntax or type error, with line and column.
    """
    try:
        tree = _lark().parse(text)
        return _Reader(source, symbols or {}).module(tree)
    except UnexpectedInput as error:
        raise _syntax_error(error, text, source) from None
    except RecursionError:
        raise AtlasError("attributes are nested too deeply", where=source) from None


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
    if terminal == "$END":
        return "the end"
    pattern = _lark().get_terminal(terminal).pattern
    return repr(pattern.value) if pattern.type == "str" else terminal.lower()


class _Reader:
    def __init__(self, source: str, symbols: Mapping[str, np.ndarray]) -> None:
        self.source, self.arrays = source, symbols

    def fault(self, at: Any, text: str) -> AtlasError:
        meta = at.meta if isinstance(at, Tree) else at
        return AtlasError(text, where=f"{self.source}:{meta.line}:{meta.column}")

    def module(self, tree: Tree) -> Module:
        name, level = cast(Token, tree.children[0]), cast(Token, tree.children[1])
        if level not in LEVELS:
            raise self.fault(level, f"unknown IR level {str(level)!r}, expected one of {LEVELS}")
        module = Module(_symbol(name), cast(IRLevel, str(level)))
        values: dict[str, Value] = {}
        for child in tree.children[2:]:
            node = cast(Tree, child)
            if node is None:
                continue
            if node.data == "dict":
                module.attributes = self.attribute(node)
            elif node.data == "symbol":
                self.symbol(node, module)
            else:
                self.op(node, module, values)
        return module

    def symbol(self, node: Any, module: Module) -> None:
        name_token, dtype_token, extents = node.children
        name = _symbol(name_token)
        if name in module.symbols:
            raise self.fault(name_token, f"symbol {name_token} is declared twice")
        shape = tuple(map(int, str(extents).split("x"))) if extents else ()
        try:
            dtype = np.dtype(str(dtype_token))
        except TypeError:
            raise self.fault(dtype_token, f"unknown dtype {str(dtype_token)!r}") from None
        array = self.arrays.get(name)
        if array is None:
            array = self.zeros(extents, dtype, shape)
        elif array.shape != shape or array.dtype != dtype:
            raise self.fault(
                name_token,
                f"symbol {name_token} is declared as {dtype}{list(shape)}, but the stored array is "
                f"{array.dtype}{list(array.shape)}",
            )
        module.symbols[name] = array

    def zeros(self, at: Token, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Zeros that take no memory."""
        try:
            return np.broadcast_to(np.zeros((), dtype), shape)
        except (ValueError, OverflowError) as error:
            raise self.fault(at, f"no array has the extents {at}: {error}") from None

    def op(self, node: Any, module: Module, values: dict[str, Value]) -> None:
        result, op_name, operand_tree, *rest = node.children
        operands = []
        for token in operand_tree.children:
            if token is None:
                continue
            if str(token) not in values:
                raise self.fault(token, f"{token} is used before it is defined")
            operands.append(values[str(token)])
        attributes: dict[str, Any] = {}
        location, written = "", None
        for part in rest:
            if part is None:
                continue
            if part.data == "dict":
                attributes = self.attribute(part)
            elif part.data == "location":
                location = _unquote(part.children[0])
            else:
                written = part.children[0]
        name = None if result is None else str(result)[1:]
        if name is not None and str(result) in values:
            raise self.fault(result, f"{result} is defined twice")
        try:
            op = module.append(str(op_name), operands, attributes, location, name)
        except AtlasError as error:
            place = f"{self.source}:{op_name.line}:{op_name.column}"
            raise AtlasError(error.what, where=place, remedy=error.remedy) from None
        self.check_result(op_name, result, op.result, written)
        if op.result is not None:
            values[str(result)] = op.result

    def check_result(
        self, at: Token, name: Token | None, value: Value | None, written: Token | None
    ) -> None:
        """The result that the text gives must be the one that the op's rule gives."""
        if (name is None) != (value is None):
            has = "has no result" if value is None else "has a result: write %name = before it"
            raise self.fault(at, f"{at} {has}")
        if value is None:
            if written is not None:
                raise self.fault(written, f"{at} has no result and so no type")
        elif written is None:
            raise self.fault(at, f"the type is missing; it is {value.type}")
        elif str(written) != str(value.type):
            raise self.fault(written, f"{at} gives {value.type}, the text says {written}")

    def attribute(self, node: Any) -> Any:
        children = [child for child in node.children if child is not None]
        match node.data:
            case "true":
                return True
            case "false":
                return False
            case "integer":
                return int(children[0])
            case "real":
                return float(children[0])
            case "string":
                return _unquote(children[0])
            case "symbol_reference":
                return Symbol(_symbol(children[0]))
            case "list":
                return [self.attribute(child) for child in children]
        pairs = [(str(pair.children[0]), pair.children[1]) for pair in children]
        attributes: dict[str, Any] = {}
        for pair, (name, value) in zip(children, pairs, strict=True):
            if name in attributes:
                raise self.fault(pair, f"attribute {name!r} is given twice")
            attributes[name] = self.attribute(value)
        return attributes


_ESCAPES = {"n": "\n", "r": "\r"}


def _unquote(literal: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), str(literal)[1:-1])


def _symbol(token: Token) -> str:
    name = str(token)[1:]
    return _unquote(name) if name.startswith('"') else name
