"""Writes the IR reference from the op declarations: ``python -m atlasc.ir.text.reference FILE``.

The text around the declarations is in ``reference.md.jinja``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from atlasc.ir.module import ops_of
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

LEVEL_NOTES = {
    "nn": "Ops marked *nonlinear* have to become polynomials before they can be encrypted.",
    "poly": "Levels are what an op consumes when it is compiled.",
    "ckks": "Levels are what an op consumes; operands of one op stand at one level.",
}


def render() -> str:
    """The reference as Markdown."""
    parse(EXAMPLE)  # raises where the example no longer is what it shows
    source = Path(__file__).with_name("reference.md.jinja").read_text(encoding="utf-8")
    environment = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    return environment.from_string(source).render(
        example=EXAMPLE,
        dtypes=DTYPES,
        sides=SIDES,
        kinds=KINDS,
        common=COMMON,
        levels={
            level: (note, [OPS[name] for name in ops_of(level)])
            for level, note in LEVEL_NOTES.items()
        },
        operands=_operands,
        notes=_notes,
    )


def _operands(op: OpDef) -> str:
    return ", ".join(f"%{name}" for name in op.operands)


def _notes(op: OpDef) -> str:
    """Whether an op is nonlinear, and which levels it consumes."""
    if op.nonlinear:
        return " *Nonlinear.*"
    if op.levels is no_levels:
        return ""
    words = {chebyshev_levels: "⌈log₂(degree + 1)⌉", one_level: "1"}
    levels = words[op.levels] if op.levels in words else op.levels(Site([], {}, {}))
    return f" *Levels: {levels}.*"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
