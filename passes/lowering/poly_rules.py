"""What the passes know of each op of the poly level: one registry of all rules, by op.

A rule is one more meaning of an op, beside evaluation and levels, which the op declares itself
(`atlasc.ir.ops.poly`). A new op needs a rule in each of these tables, unless
`tests/passes/lowering/test_poly_rules.py` says why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atlasc.ir.module import ops_of
from atlasc.passes.analyses import adjoint
from atlasc.passes.lowering import assign_scales, pack, select_early
from atlasc.passes.lowering.packing import forms

TABLES: Mapping[str, Mapping[str, Any]] = {
    "derivative": adjoint.RULES,
    "scale": assign_scales.RULES,
    "row": select_early.RULES,
    "form": forms.RULES,
    "pack": pack.RULES,
}
"""By what a rule tells: derivatives by the operands (noise gains), factors (assign-scales), what a
row of the result needs (select-early), what the axes mean, and the packed ops (pack)."""

POLY_RULES: dict[str, dict[str, Any]] = {
    op: {kind: table[op] for kind, table in TABLES.items() if op in table} for op in ops_of("poly")
}
"""Rules of each poly op by their kind."""
