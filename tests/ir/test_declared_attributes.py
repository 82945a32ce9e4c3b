"""What is computed for an op reads attributes that the op declares, and those of no other op.

The type of ``op.attributes`` has the attributes of all ops, so a type checker takes them all.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from atlasc.ir.opdef import COMMON, OPS
from atlasc.program.execute import KERNELS


def read_of(function: Callable[..., Any]) -> set[str]:
    """Attributes that a function reads of its op: ``op.attributes["x"]`` and ``.get("x")``."""
    while isinstance(function, partial):
        function = function.func
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a lambda inside of a declaration
        return set()
    return {name for node in ast.walk(tree) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Subscript(
            ast.Attribute(ast.Name("op" | "site"), "attributes"), ast.Constant(str())
        ):
            yield node.slice.value
        case ast.Call(
            ast.Attribute(ast.Attribute(ast.Name("op" | "site"), "attributes"), "get" | "pop"),
            [ast.Constant(str()), *_],
        ):
            yield node.args[0].value


USES = [
    (name, function)
    for name, found in OPS.items()
    for function in (found.infer, found.evaluate, found.levels, KERNELS.get(name))
    if callable(function)
]


def test_what_is_read_is_found() -> None:
    def kernel(op: Any) -> Any:
        return op.attributes["weight"], op.attributes.get("bias"), op.operands

    assert read_of(kernel) == read_of(partial(kernel)) == {"weight", "bias"}
    assert len({one for _, function in USES for one in read_of(function)}) > 20


@pytest.mark.parametrize("name", sorted({name for name, _ in USES}))
def test_an_op_reads_its_own_attributes(name: str) -> None:
    own = {one.name for one in OPS[name].attributes} | {one.name for one in COMMON}
    for other, function in USES:
        if other == name:
            assert read_of(function) <= own, f"{function.__qualname__} reads them of {name}"
