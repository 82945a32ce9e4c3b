"""IR text without result types, so that a test of a pass shows nothing but the rewrite."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module, print_op

SPLIT = """%h = poly.reshape %x {shape = [1, 3, 2, 3]}
    %t = poly.transpose %h {permutation = [0, 2, 1, 3]}"""
MERGE = """%v = poly.transpose %o {permutation = [0, 2, 1, 3]}
    %y = poly.reshape %v {shape = [1, 3, 6]}
    poly.output %y {name = "y"}"""
ATTENTION = f"""{SPLIT}
    %s = poly.matmul %t, %t {{transpose_b = true}}
    %f = poly.mask_fill %s {{causal = true, fill = -1.0}}
    %o = poly.matmul %f, %t {{transpose_b = false}}
    {MERGE}"""
"""Two heads of an input of shape [1, 3, 6]."""
_MISSING = re.compile(r"type is missing; it is (.*)")


def module_of(level: str, body: str, symbols: Mapping[str, np.ndarray] | None = None) -> Module:
    """The module of some ops, one a line; the types are those of the ops' rules."""
    symbols = symbols or {}
    head = [f"module @m : {level} {{"]
    for name, array in symbols.items():
        head.append(f"symbol @{name} : {array.dtype.name}[{'x'.join(map(str, array.shape))}]")
    lines = [line.strip() for line in body.strip().splitlines()]
    for number in range(len(lines)):
        try:
            parse("\n".join([*head, *lines[: number + 1], "}"]), symbols)
        except AtlasError as error:
            missing = _MISSING.search(error.what)
            if missing is None:
                raise
            lines[number] += f" : {missing[1]}"
    return parse("\n".join([*head, *lines, "}"]), symbols)


def poly(
    body: str,
    symbols: Mapping[str, np.ndarray] | None = None,
    shape: tuple[int, ...] = (1, 2, 3),
) -> Module:
    """A poly module whose first value is an encrypted input %x ``[B, n, F]``."""
    return module_of("poly", f"{entry('x', shape)}\n{body}", symbols)


def entry(name: str, shape: tuple[int, ...], side: str = "server") -> str:
    """An input op."""
    extents = ", ".join(map(str, shape))
    return (
        f'%{name} = poly.input {{name = "{name}", shape = [{extents}], side = "{side}", '
        'dtype = "f64"}'
    )


def short(module: Module, *, inputs: bool = False) -> str:
    """The ops without types, and as a rule without inputs."""
    ops = [op for op in module.ops if inputs or "input" not in op.name]
    return "\n".join(re.sub(r" : (tensor|ciphertext)<.*$", "", print_op(op)) for op in ops)


def dedent(text: str) -> str:
    """Expected ops, without the indentation of a test."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


__all__ = ["dedent", "entry", "module_of", "poly", "print_module", "short"]
