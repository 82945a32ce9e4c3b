"""Kinds of ops, as reports and timings group them."""

from __future__ import annotations

from atlasc.ir.module import Op

OUTSIDE = ("ckks.input", "ckks.public_input", "ckks.output")
"""Ops at the border of a program, which belong to no block and take no time."""
_NAMES = {
    **dict.fromkeys(("ckks.linear_transform", "ckks.rotary"), "linear"),
    "ckks.ct_matmul_qk": "attention scores",
    "ckks.row_scores": "attention scores",
    "ckks.ct_matmul_pv": "attention values",
    "ckks.row_context": "attention values",
}


def kind_of(op: Op) -> str:
    """The kind of an op: ``bootstrap``, the nonlinear function that the op belongs to (``softmax``,
    ``gelu``, …), ``linear``, ``attention scores``, ``attention values``, or ``other``.
    """
    if op.name == "ckks.bootstrap":
        return "bootstrap"
    part = op.attributes.get("part")
    return str(part) if part else _NAMES.get(op.name, "other")
