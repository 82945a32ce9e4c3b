"""Writes the IR reference from the op declarations: ``python -m atlasc.ir.text.reference FILE``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from atlasc.ir.module import IRLevel, ops_of
from atlasc.ir.opdef import COMMON, KINDS, OPS, OpDef, Site, no_levels, one_level
from atlasc.ir.ops.poly import chebyshev_levels
from atlasc.ir.text.parser import parse
from atlasc.ir.types import DTYPES, SIDES

EXAMPLE = """\
// A norm, and the linear layer that reads it, after expansion.
module @example : poly {
  symbol @dense.weight : float32[3x4]
  symbol @"0.gamma" : float64[4]  // a name that is no plain path
  %x = poly.input {name = "embedded", shape = [1, 8, 4], side = "server", dtype = "f64"}
    : tensor<1x8x4xf64, server>
  %q = poly.square %x {part = "rms_norm"} loc "layer.0.norm" : tensor<1x8x4xf64, server>
  %s = poly.row_sum %q {part = "rms_norm"} loc "layer.0.norm" : tensor<1x8x1xf64, server>
  %i = poly.chebyshev %s {coefficients = [0.71, -0.29, 0.06], domain = [2.0, 9.5],
    part = "rms_norm"} loc "layer.0.norm" : tensor<1x8x1xf64, server>
  %n = poly.mul %x, %i {part = "rms_norm"} loc "layer.0.norm" : tensor<1x8x4xf64, server>
  %g = poly.scale %n {factor = @"0.gamma"} loc "layer.0.norm" : tensor<1x8x4xf64, server>
  %y = poly.linear %g {weight = @dense.weight} loc "layer.0.dense" : tensor<1x8x3xf64, server>
  poly.output %y {name = "logits"}
}
"""

INTRODUCTION = """\
# IR reference

Written by `python -m atlasc.ir.text.reference docs/ir-reference.md` from the op declarations in
`ir/`; a test compares. Do not edit it by hand.

A module holds one graph in static single assignment form, at one of three levels:

- **nn**: tensor ops with their cleartext meaning. The nonlinear ones carry the polynomials that
  will replace them in the attribute `approximation`.
- **poly**: no nonlinear op is left.
- **ckks**: macro ops on packed ciphertexts, which a backend's engine executes.

Every op belongs to one level. Passes turn a module of one level into another of the same or the
next level, and the verifier runs after each.

## Text form

"""

GRAMMAR = """
| Part | Form |
| --- | --- |
| module | `module @name : level {attributes} { symbols ops }`, attributes may be left out |
| symbol | `symbol @name : dtype[2x3]`; the array lies in a safetensors file beside the text |
| op | `%result = level.op %operand, %operand {name = value} loc "module.path" : type` |
| attribute | `true`, `-3`, `2.5e-07`, `"text"`, `@symbol`, `[1, 2]`, `{name = value}` |
| text in quotes | `\\"`, `\\\\`, `\\n` and `\\r` are escaped |
| comment | `//` to the end of the line |

Weights never stand in the text. A symbol whose array is not at hand counts as zeros, so that a text
can be checked, transformed and costed without its weights. Symbols whose name is no plain path are
written in quotes: `@"0.weight"`. The type of a result is written out and must be the one that the
op's rule gives. Floats are printed in the shortest form that reads back exactly; NaN and infinity
are refused. Printing and parsing again gives an equal module. Errors name the line and the column.

`loc` is the path of the model's module that an op came from. The first integer in it is the index
of the Transformer block, by which reports group.

## Types

"""

LAYOUTS = """
A layout is `[slot fields | ciphertext fields | extents]`. A field `axis.low:bits` says that a run
of bits of the slot index (or of the ciphertext index) is the bits of the index along an axis, from
bit `low` on, which is left out where it is 0. The first field is the most significant. For example
`[d:2 g:1 b:0 t:2 | g.1:1 | b=1 t=3 g=4 d=3]` packs 3 tokens with 4 blocks of 3 features into two
ciphertexts of 32 slots: the slot of token t, feature d of block g is `d·8 + (g mod 2)·4 + t`, its
ciphertext is `g div 2`.

| Axis | Meaning |
| --- | --- |
| `b` | batch |
| `t` | token |
| `g` | block of features: an attention head |
| `d` | feature within a block |
| `s` | score diagonal: (key − query) mod the padded number of tokens; of one query the key |
| `*` | replicated: the value is the same for all indices |
| `?` | unused: index 0 holds the value, the rest holds anything |

Axes are padded to powers of two. Padding tokens and inputs copy index 0, so that no polynomial
leaves its range there; padding features are 0, so that they add nothing to a sum.
"""


def render() -> str:
    """The reference as Markdown."""
    parse(EXAMPLE)  # raises where the example no longer is what it shows
    parts = [INTRODUCTION, "```mlir\n", EXAMPLE, "```\n", GRAMMAR, _types(), LAYOUTS, _common()]
    parts += [_level(level) for level in get_args(IRLevel)]
    return "".join(parts)


def _types() -> str:
    rows = [
        ("`tensor<2x3xf64, server>`", "extents, batch first; dtype; the side that sees it"),
        ("`ciphertext<layout, level 4, scale 1>`", "a packed tensor; level `?` before placement"),
    ]
    sides = "The client computes in the clear, the server on ciphertexts; public is a plaintext"
    return (
        _table(("Type", "Meaning"), rows)
        + f"\nDtypes: {_code(DTYPES)}. Sides: {_code(SIDES)}.\n{sides} that the server may see.\n"
        "\n## Layouts\n"
    )


def _common() -> str:
    rows = [(f"`{a.name}`", a.kind, a.doc) for a in COMMON]
    kinds = ", ".join(f"*{kind}*" for kind in KINDS)
    return (
        "\n## Attributes\n\nAn attribute is of one of the kinds " + kinds + ".\n"
        "Those of every op:\n\n" + _table(("Attribute", "Kind", "Meaning"), rows)
    )


LEVEL_NOTES: dict[str, str] = {
    "nn": "Ops marked *nonlinear* have to become polynomials before they can be encrypted.",
    "poly": "Levels are what an op consumes when it is compiled.",
    "ckks": "Levels are what an op consumes; operands of one op stand at one level.",
}


def _level(level: str) -> str:
    rows = "\n".join(_op(OPS[name]) for name in ops_of(level))
    return f"\n## Ops of the {level} level\n\n{LEVEL_NOTES[level]}\n\n{rows}"


def _op(op: OpDef) -> str:
    operands = "".join(
        f"{', ' if n else ' '}%{name.removesuffix('?')}{'?' if name.endswith('?') else ''}"
        for n, name in enumerate(op.operands)
    )
    notes = [op.summary]
    if op.nonlinear:
        notes.append("*Nonlinear.*")
    elif op.levels is not no_levels:
        notes.append(f"*Levels: {_levels(op.levels)}.*")
    text = f"### `{op.name}{operands}`\n\n{' '.join(notes)}\n"
    if not op.attributes:
        return text
    rows = [
        (f"`{a.name}`{' (optional)' if a.optional else ''}", a.kind, a.doc) for a in op.attributes
    ]
    return f"{text}\n{_table(('Attribute', 'Kind', 'Meaning'), rows)}"


def _levels(rule: Callable[[Site], int]) -> str:
    """A depth rule in words: a fixed number, or the one that depends on a degree."""
    if rule is chebyshev_levels:
        return "⌈log₂(degree + 1)⌉"
    if rule is one_level:
        return "1"
    return str(rule(Site([], {}, {})))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n"
                   for line in lines)  # fmt: skip


def _code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
