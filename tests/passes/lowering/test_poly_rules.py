"""Which op of the poly level lacks which rule, and why."""

from __future__ import annotations

from atlasc.ir.module import ops_of
from atlasc.passes.lowering.poly_rules import POLY_RULES, TABLES

LACKING: dict[str, set[str]] = {
    "poly.input": {"derivative", "row"},  # nothing comes before it
    "poly.output": {"derivative", "row"},  # where derivatives start; it has no result
    "poly.affine": {"scale", "form", "pack"},  # normalise-affine splits it
    "poly.repeat": {"row", "form", "pack"},  # canonicalise repeats weights instead
    "poly.select": {"row"},  # it is what select-early moves
    "poly.mean": {"row"},  # it reads all tokens
}


def test_ops_have_all_rules_or_a_reason() -> None:
    lacking = {op: set(TABLES) - set(rules) for op, rules in POLY_RULES.items()}
    assert {op: kinds for op, kinds in lacking.items() if kinds} == LACKING


def test_rules_are_of_ops_that_exist() -> None:
    for kind, table in TABLES.items():
        assert set(table) <= set(ops_of("poly")), kind
