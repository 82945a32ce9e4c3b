"""Forms: expressions of aten ops, written as text, that are searched for in a graph.

``x * sigmoid(1.702 * x)`` is the form of a node ``aten.mul`` of a node x and an ``aten.sigmoid`` of
an ``aten.mul`` of the same x and a number. Sums and products match in both orders. A name matches
anything, and the same thing wherever it occurs again. A call may give arguments by keyword; those
that it leaves out must have the default of the aten op.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from atlasc.passes.frontend.graph import arguments, defaults, is_node, packet

Bindings = dict[str, Any]
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Mult: "mul",
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.USub: "neg",
}


def matches(form: str, node: Any) -> Iterator[Bindings]:
    """Each way in which the expression that ends at a node has a form: what its names stand for."""
    return _matches(_parsed(form), node, {})


@cache
def _parsed(form: str) -> ast.expr:
    return ast.parse(form, mode="eval").body


def _matches(form: ast.expr, value: Any, bound: Bindings) -> Iterator[Bindings]:
    """Every way in which a value has a form, given what some names stand for."""
    match form:
        case ast.Name(id=name):
            if name not in bound or bound[name] is value or _equal(value, bound[name]):
                yield {**bound, name: value}
        case ast.Constant(value=wanted):
            if _equal(value, wanted):
                yield bound
        case ast.List(elts=items):
            if isinstance(value, Sequence) and len(value) == len(items):
                yield from _all(list(zip(items, value, strict=True)), bound)
        case ast.BinOp(left=left, op=op, right=right):
            yield from _call(_OPERATORS[type(op)], [left, right], {}, value, bound)
        case ast.UnaryOp(op=op, operand=operand):
            yield from _call(_OPERATORS[type(op)], [operand], {}, value, bound)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            by_name = {str(keyword.arg): keyword.value for keyword in keywords}
            yield from _call(name, args, by_name, value, bound)
        case _:
            raise ValueError(f"{ast.unparse(form)} cannot be part of a form")


def _call(
    name: str,
    operands: Sequence[ast.expr],
    keywords: Mapping[str, ast.expr],
    value: Any,
    bound: Bindings,
) -> Iterator[Bindings]:
    if packet(value) != name or len(given := arguments(value)) < len(operands):
        return
    wanted = {**dict(zip(given, operands)), **keywords}
    if any(given[key] != default for key, default in defaults(value).items() if key not in wanted):
        return
    pairs = [(form, given[key]) for key, form in wanted.items()]
    yield from _all(pairs, bound)
    if name in ("mul", "add"):
        (first, a), (second, b) = pairs
        yield from _all([(first, b), (second, a)], bound)


def _all(pairs: Sequence[tuple[ast.expr, Any]], bound: Bindings) -> Iterator[Bindings]:
    """Every way in which each value has its form."""
    if not pairs:
        yield bound
        return
    (form, value), *others = pairs
    for found in _matches(form, value, bound):
        yield from _all(others, found)


def _equal(value: Any, wanted: Any) -> bool:
    if is_node(value) or is_node(wanted):
        return False
    numbers = type(value) in (int, float) and type(wanted) in (int, float)
    return math.isclose(value, wanted, rel_tol=1e-6) if numbers else bool(value == wanted)
