"""``expand``: the server's part of an nn module becomes additions, products and Chebyshev sums."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import OPS, Symbol
from atlasc.ir.types import TensorType
from atlasc.passes.approximation.algorithms import carried_by
from atlasc.passes.approximation.arithmetic import Arithmetic
from atlasc.passes.approximation.description import applied
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter

MASKING = {"filled": ("mask_fill", "fill"), "masked": ("mask_zero", "value")}
"""The op of a step, and its attribute for the value."""


@dataclass
class PolyArithmetic(Arithmetic):
    """Emits a poly op for every step of an algorithm.

    Attributes:
        rewriter: the poly module under construction.
        op: the nn op that is being expanded; its place and name mark the new ops.
    """

    rewriter: Rewriter
    op: Op
    _symbols: dict[str, Symbol] = field(default_factory=dict)

    def emit(self, name: str, operands: Sequence[Value], attributes: dict[str, Any]) -> Value:
        """A poly op in place of the nn op."""
        attributes = {**attributes, "part": self.op.name.removeprefix("nn.")}
        return self.rewriter.module.add(f"poly.{name}", operands, attributes, self.op.location)

    def step(self, name: str, *operands: Value, constant: Any = None) -> Value:
        """The op with the constants of the step as its attributes; equal arrays share a symbol."""
        match name:
            case "add_const":
                return self.emit("add_constant", operands, {"value": self._constant(constant)})
            case "scale":
                return self.emit("scale", operands, {"factor": self._constant(constant)})
            case "chebyshev":
                return self.emit("chebyshev", operands, self._sum(constant))
            case "filled" | "masked":
                new_name, entry = MASKING[name]
                mask = [self.rewriter.values[operand] for operand in self.op.operands[1:]]
                attributes = {"causal": self.op.attributes.get("causal", False), entry: constant}
                return self.emit(new_name, [*operands, *mask], attributes)
        return self.emit(name, operands, {})

    def centred(self, a: Value, features: int) -> Value:
        """See `Arithmetic`."""
        return self.emit("center", [a], {})

    def _sum(self, total: ChebyshevSum) -> dict[str, Any]:
        values = np.asarray(total.coefficients, dtype=np.float64)
        attributes: dict[str, Any] = {
            "coefficients": self._shared("chebyshev", f".{total.degree}", values),
            "domain": [float(end) for end in total.domain],
        }
        return attributes if total.meaning is None else {**attributes, "valid": list(total.valid)}

    def _constant(self, c: Any) -> float | Symbol:
        if isinstance(c, Symbol):
            return c
        return self._shared("channels", "", c) if isinstance(c, np.ndarray) else float(c)

    def _shared(self, kind: str, suffix: str, array: np.ndarray) -> Symbol:
        """One symbol for equal arrays, however many ops use them."""
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        if digest not in self._symbols:
            name = f"{kind}.{self.op.name.removeprefix('nn.')}{suffix}"
            self._symbols[digest] = self.rewriter.module.constant(name, array)
        return self._symbols[digest]


@dataclass(frozen=True)
class Expand(Pass):
    """Replace every nonlinear op by the polynomials of its ``approximation`` attribute.

    The client's ops stay behind: an ``nn.encrypt`` becomes an input of the poly module.
    A LayerNorm becomes ``center`` and the norm of a mean square, which is the same function; the
    centring is linear, so that folding can move it into the layers before (``fold-features``).
    """

    name = "expand"
    takes = "nn"
    gives = "poly"

    def run(self, module: Module, report: Report) -> Module:
        """Nn module to poly module."""
        rewriter = Rewriter(module, "poly")
        shared: dict[str, Symbol] = {}
        for op in module.ops:
            if op.name == "nn.encrypt":
                _input(rewriter, op, op.value.name, op.value.tensor)
            elif op.name == "nn.input" and op.attributes["side"] == "public":
                _input(rewriter, op, op.attributes["name"], op.value.tensor)
            elif op.result is not None and op.result.tensor.side == "client":
                continue
            elif op.definition.nonlinear:
                rewriter.values[op.value] = _expanded(rewriter, op, shared)
            else:
                _copy(rewriter, op)
        rewriter.module.symbols = rewriter.module.arrays_used()
        return rewriter.module


def _input(rewriter: Rewriter, op: Op, name: str, type_: TensorType) -> None:
    attributes = {
        "name": name, "shape": list(type_.shape), "side": type_.side, "dtype": type_.dtype
    }  # fmt: skip
    rewriter.values[op.value] = rewriter.module.add(
        "poly.input", [], attributes, op.location, op.value.name
    )


def _copy(rewriter: Rewriter, op: Op) -> None:
    name = op.name.replace("nn.", "poly.", 1)
    if name not in OPS:
        raise AtlasError(
            f"{op.name} cannot run on encrypted data",
            where=op.location,
            remedy="move it to the client's side, before nn.encrypt",
        )
    wanted = op.result.name if op.result is not None else None
    new = rewriter.module.add(name, rewriter.operands(op), op.attributes, op.location, wanted)
    if op.result is not None:
        rewriter.values[op.result] = new


def _expanded(rewriter: Rewriter, op: Op, shared: dict[str, Symbol]) -> Value:
    approximation, x = carried_by(op, rewriter.source.symbols), rewriter.values[op.operands[0]]
    constants = [op.attributes[name] for name in ("gamma", "beta") if name in op.attributes]
    algorithm = partial(applied, op, approximation)
    return PolyArithmetic(rewriter, op, shared).run(algorithm, x, *constants)
