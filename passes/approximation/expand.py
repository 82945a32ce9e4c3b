"""``expand``: the server's part of an nn module becomes additions, products and Chebyshev sums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import REGISTRY, Symbol
from atlasc.ir.types import TensorType
from atlasc.passes.approximation.description import Activation, Norm, Softmax, carried_by
from atlasc.passes.approximation.fits.validity import Meaning
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter


@dataclass
class PolyArithmetic:
    """Emits poly ops; an algorithm written against ``Arithmetic`` so expands itself.

    Attributes:
        rewriter: the poly module under construction.
        op: the nn op that is being expanded; its place and name mark the new ops.
    """

    rewriter: Rewriter
    op: Op
    _symbols: dict[str, Symbol] = field(default_factory=dict)

    def _emit(self, name: str, operands: list[Value], attributes: dict[str, Any]) -> Value:
        part = self.op.name.removeprefix("nn.")
        return self.rewriter.module.add(
            f"poly.{name}", operands, {**attributes, "part": part}, self.op.location
        )

    def add(self, a: Value, b: Value) -> Value:
        """``poly.add``."""
        return self._emit("add", [a, b], {})

    def sub(self, a: Value, b: Value) -> Value:
        """``poly.sub``."""
        return self._emit("sub", [a, b], {})

    def add_const(self, a: Value, c: Any) -> Value:
        """``poly.add_constant``."""
        return self._emit("add_constant", [a], {"value": self._constant(c)})

    def mul(self, a: Value, b: Value) -> Value:
        """``poly.mul``."""
        return self._emit("mul", [a, b], {})

    def square(self, a: Value) -> Value:
        """``poly.square``."""
        return self._emit("square", [a], {})

    def scale(self, a: Value, c: Any) -> Value:
        """``poly.scale``."""
        return self._emit("scale", [a], {"factor": self._constant(c)})

    def row_sum(self, a: Value) -> Value:
        """``poly.row_sum``."""
        return self._emit("row_sum", [a], {})

    def chebyshev(
        self,
        a: Value,
        coefficients: np.ndarray,
        domain: tuple[float, float],
        meaning: Meaning | None = None,
    ) -> Value:
        """``poly.chebyshev``; equal coefficients share a symbol."""
        values = np.asarray(coefficients, dtype=np.float64)
        attributes: dict[str, Any] = {
            "coefficients": self._shared("chebyshev", f".{values.shape[-1] - 1}", values),
            "domain": [float(end) for end in domain],
        }
        if meaning is not None:
            attributes["valid"] = list(meaning.valid(coefficients))
        return self._emit("chebyshev", [a], attributes)

    def masked(self, a: Value, value: float) -> Value:
        """``poly.mask_zero``, with the mask of the softmax that is expanded."""
        mask = [self.rewriter.values[operand] for operand in self.op.operands[1:]]
        attributes = {"causal": self.op.attributes.get("causal", False), "value": value}
        return self._emit("mask_zero", [a, *mask], attributes)

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

    name: ClassVar[str] = "expand"

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
    if name not in REGISTRY.table:
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
    if "approximation" not in op.attributes:
        raise AtlasError(
            f"{op.name} has no approximation",
            where=op.location,
            why="under CKKS only polynomials can be evaluated",
            remedy="apply a recipe or a search result before expanding",
        )
    arithmetic = PolyArithmetic(rewriter, op, shared)
    approximation = carried_by(op, rewriter.source.symbols)
    x, *mask = rewriter.operands(op)
    if isinstance(approximation, Softmax):
        attributes = {
            "causal": op.attributes.get("causal", False),
            "fill": float(approximation.mask_fill),
        }
        filled = arithmetic._emit("mask_fill", [x, *mask], attributes)
        return approximation.apply(arithmetic, filled)
    if isinstance(approximation, Norm):
        gamma = op.attributes["gamma"]
        if op.name == "nn.layer_norm":
            x = arithmetic._emit("center", [x], {})
        features = op.operands[0].tensor.shape[-1]
        y = approximation.apply(
            arithmetic, x, "nn.rms_norm", features, op.attributes["epsilon"], gamma
        )
        beta = op.attributes.get("beta")
        return y if beta is None else arithmetic.add_const(y, beta)
    assert isinstance(approximation, Activation)
    return approximation.apply(arithmetic, x, activation_function(op))


def activation_function(op: Op) -> str:
    """Name of the scalar function of an activation op."""
    tanh_form = op.attributes.get("tanh_form", False)
    return "gelu_tanh" if op.name == "nn.gelu" and tanh_form else op.name.removeprefix("nn.")
