"""Patterns: several aten ops that are one nn op.

``PATTERNS`` lists forms with functions. The function of a form is called for each node that has the
form, with the matches of its names. It returns the function that emits the nn op, or None if a
further condition does not hold.

Forms are expressions of aten ops, written as text. ``x * sigmoid(1.702 * x)`` is the form of a node
``aten.mul`` of a node x and an ``aten.sigmoid`` of an ``aten.mul`` of the same x and a number. Sums
and products match in both orders. A name matches anything, but the same thing at each occurrence. A
call may give arguments by keyword; arguments that it leaves out must have the default of the aten
op.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

from atlasc.ir.module import Value
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.exported.graph import (
    RESHAPES,
    Node,
    arguments,
    defaults,
    is_node,
    packet,
    shape,
)
from atlasc.passes.frontend.importer import Emit, Importer
from atlasc.passes.frontend.rules.choices import choice_by_sign
from atlasc.passes.frontend.rules.cuts import some
from atlasc.passes.frontend.rules.masks import MASKED_SCORES, drops_keys, emit_softmax
from atlasc.passes.frontend.rules.norms import NORMS
from atlasc.passes.frontend.rules.pooling import masked_tokens, weighted_tokens
from atlasc.passes.frontend.rules.queries import pooled_by_softmax, scores
from atlasc.passes.frontend.rules.rotary import rotary
from atlasc.passes.frontend.rules.scores import masked_in_steps

Bindings = dict[str, Any]
_OPERATORS = {"Mult": "mul", "Add": "add", "Sub": "sub", "Div": "div", "Pow": "pow", "USub": "neg"}


def find(importer: Importer, node: Node) -> tuple[Emit, list[Node]] | None:
    """The function that emits the first pattern ending at a node, and the nodes that it
    replaces.
    """
    importer.node = node
    for rule in RULES:
        if (found := rule(importer, node)) is not None:
            return found
    for form, pattern in PATTERNS:
        for names in matches(form, node):
            if (emit := pattern(importer, **names)) is not None:
                return emit, [value for value in names.values() if is_node(value)]
    return None


def matches(form: str, node: Any) -> Iterator[Bindings]:
    """Each way in which the expression that ends at a node matches a form: name -> match."""
    return _matches(_parsed(form), node, {})


@cache
def _parsed(form: str) -> ast.expr:
    return ast.parse(form, mode="eval").body


def _matches(form: ast.expr, value: Any, bound: Bindings) -> Iterator[Bindings]:
    """Each way in which a value matches a form, given the matches of some names."""
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
            yield from _call(_OPERATORS[type(op).__name__], [left, right], {}, value, bound)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float(wanted))):
            if _equal(value, -wanted):
                yield bound
        case ast.UnaryOp(op=op, operand=operand):
            yield from _call(_OPERATORS[type(op).__name__], [operand], {}, value, bound)
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
    """Each way in which all values match their forms."""
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


def _last_axis(node: Node, axis: object) -> bool:
    return axis in (-1, len(shape(node)) - 1)


def softmax(
    importer: Importer,
    scores: Any,
    axis: int,
    dtype: object,
    mask: Any = None,
    dropped: Any = None,
    low: Any = None,
) -> Emit | None:
    """Softmax over the last axis, with the mask that is put into its scores just before."""
    either, inverted = (mask, False) if dropped is None else (dropped, True)
    private = importer.kinds.get(scores) == "data" and importer.kinds.get(either) != "data"
    masks = either is None or (private and drops_keys(importer, either, low))
    if not masks or not _last_axis(importer.node, axis):
        return None
    return partial(emit_softmax, importer, scores, either, inverted)


def repeat_heads(
    importer: Importer, x: Node, axis: int, wide: object, merged: object
) -> Emit | None:
    """unsqueeze, expand and reshape that copy each key/value head: nn.repeat."""
    before, expanded = shape(x), shape(importer.node.args[0])
    axis = axis % len(expanded) - 1
    repeats = expanded[axis + 1]
    if (
        axis < 0
        or expanded != (*before[: axis + 1], repeats, *before[axis + 1 :])
        or shape(importer.node) != (*before[:axis], before[axis] * repeats, *before[axis + 1 :])
    ):
        return None
    return partial(importer.add, "nn.repeat", x, axis=axis, repeats=repeats)


def copies_in_groups(
    importer: Importer, x: Node, wide: object, merged: object, last: object = None
) -> Emit | None:
    """expand and reshape that copy the only head of each group (Falcon 40B): copies of features."""
    before, expanded = shape(x), shape(importer.node.args[0])
    axes = [axis for axis, extent in enumerate(expanded) if before[axis : axis + 1] != (extent,)]
    if len(before) != len(expanded) or len(axes) != 1 or axes[0] < 3:
        return None
    (axis,) = axes

    def emit() -> Value:
        copies = some(importer, x, axis, [0] * expanded[axis])
        return importer.add("nn.reshape", copies, shape=list(shape(importer.node)))

    return emit


def product_with_transpose(
    importer: Importer, a: Node, b: Node, first: int = -2, second: int = -1
) -> Emit | None:
    """matmul with a swap of the last two axes before it: nn.matmul{transpose_b}."""
    rank = len(shape(b))
    private = importer.kinds[b] == "data" and importer.kinds[a] in ("data", "constant")
    if not private or {first % rank, second % rank} != {rank - 2, rank - 1}:
        return None
    return partial(scores, importer, a, b)


RULES = (masked_tokens, weighted_tokens, pooled_by_softmax, masked_in_steps, rotary, choice_by_sign)
"""Groups of ops that are recognised by what they compute, however they are written."""
PATTERNS: list[tuple[str, Callable[..., Emit | None]]] = [
    *(
        (f"{name}({scores}, axis, dtype)", softmax)
        for name, scores in product(("softmax", "_softmax"), (*MASKED_SCORES, "scores"))
    ),
    *NORMS,
    *((f"{name}(expand(unsqueeze(x, axis), wide), merged)", repeat_heads) for name in RESHAPES),
    *((f"{name}(expand(x, wide), merged)", copies_in_groups) for name in RESHAPES),
    ("flatten(expand(x, wide), merged, last)", copies_in_groups),
    *(
        (f"{name}(a, {turned})", product_with_transpose)
        for name, turned in product(("matmul", "bmm"), ("transpose(b, first, second)", "mT(b)"))
    ),
    *(
        (form, lambda importer, x, name=name: partial(importer.add, f"nn.{name}", x))
        for name, function in ACTIVATIONS.items()
        for form in function.forms
    ),
]
