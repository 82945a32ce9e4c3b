"""Kinds of ops as people think of a Transformer, to say where the time of a program goes."""

from __future__ import annotations

from atlasc.ir.module import Op

_NAMES = {
    "ckks.linear_transform": "linear",
    "ckks.ct_matmul_qk": "attention scores",
    "ckks.row_scores": "attention scores",
    "ckks.ct_matmul_pv": "attention values",
    "ckks.row_context": "attention values",
}


def kind_of(op: Op) -> str:
    """``bootstrap``, the nonlinear function that an op is a part of (``softmax``, ``gelu``, …),
    ``linear``, ``attention scores``, ``attention values``, or ``other``.
    """
    if op.name == "ckks.bootstrap":
        return "bootstrap"
    part = op.attributes.get("part")
    return str(part) if part else _NAMES.get(op.name, "other")
