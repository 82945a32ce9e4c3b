"""Which op of the poly level lacks which rule, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType

from atlasc.analyses import observed
from atlasc.ir.module import ops_of
from atlasc.passes.lowering import assign_scales, pack, token_rows
from atlasc.passes.lowering.packing import forms

MODULES: Mapping[str, ModuleType] = {
    "derivative": observed,  # by the operands, for noise gains
    "scale": assign_scales,  # how factors take part
    "row": token_rows,  # what a row of the result needs
    "form": forms,  # what the axes mean
    "pack": pack,  # the packed ops
}
"""Kind of rule -> the module whose ``RULES`` has them, by the op; without its level for rows."""
TABLES: Mapping[str, Collection[str]] = {
    kind: {f"poly.{name}" for name in module.RULES} if kind == "row" else module.RULES
    for kind, module in MODULES.items()
}
PLACES = ", ".join(f"{kind}: RULES of {module.__name__}" for kind, module in MODULES.items())

LACKING: dict[str, set[str]] = {
    "poly.input": {"derivative", "row"},  # nothing comes before it
    "poly.output": {"derivative", "row"},  # where derivatives start; it has no result
    "poly.affine": {"scale", "form", "pack"},  # normalise-affine splits it
    "poly.repeat": {"form", "pack"},  # canonicalise repeats weights instead
    "poly.add_positions": {"form", "pack"},  # normalise-affine joins it with mask_fill
    "poly.select": {"row"},  # it is what select-early moves
    "poly.mean": {"row"},  # it reads all tokens
    "poly.at_tokens": {"row"},  # decode-step makes it, for a value that is a row already
}


def test_ops_have_all_rules_or_a_reason() -> None:
    lacking = {
        op: {kind for kind, table in TABLES.items() if op not in table} for op in ops_of("poly")
    }
    assert {op: kinds for op, kinds in lacking.items() if kinds} == LACKING, (
        f"{PLACES}; or LACKING here. A new op has a line in tests/ir/test_interpreter.py and in "
        "tests/atlasc/analyses/test_adjoint.py, too"
    )


def test_rules_are_of_ops_that_exist() -> None:
    for kind, table in TABLES.items():
        known = {*ops_of("poly"), *(f"poly.{op.partition('.')[2]}" for op in ops_of("nn"))}
        assert set(table) <= (known if kind == "row" else set(ops_of("poly"))), kind
