"""Kernels: how a macro op of the ckks level becomes an engine's primitives.

A kernel takes a :class:`~atlasc.passes.execution.kernels.context.Context`, the op, and of each
operand its ciphertexts, or the array of a public one. It returns the ciphertexts of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atlasc.passes.execution.kernels import attention, elementwise, linear, rows

Kernel = Callable[..., list[Any]]

KERNELS: dict[str, Kernel] = {
    "ckks.linear_transform": linear.linear_transform,
    "ckks.add": elementwise.binary,
    "ckks.sub": elementwise.binary,
    "ckks.mul": elementwise.binary,
    "ckks.square": elementwise.square,
    "ckks.double": elementwise.double,
    "ckks.add_plain": elementwise.add_plain,
    "ckks.mul_plain": elementwise.mul_plain,
    "ckks.chebyshev": elementwise.chebyshev,
    "ckks.rotate_sum": elementwise.rotate_sum,
    "ckks.select": elementwise.select,
    "ckks.ct_matmul_qk": attention.ct_matmul_qk,
    "ckks.mask_zero": attention.fill_masked,
    "ckks.ct_matmul_pv": attention.ct_matmul_pv,
    "ckks.replicate": rows.replicate,
    "ckks.row_scores": rows.row_scores,
    "ckks.row_context": rows.row_context,
    "ckks.gather": elementwise.gather,
    "ckks.spread": elementwise.spread,
    "ckks.drop": elementwise.drop,
    "ckks.bootstrap": elementwise.bootstrap,
}
