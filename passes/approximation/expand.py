"""``expand``: the server's part of an nn module becomes additions, products and Chebyshev sums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from atlasc.calibration.ranges import EXP_RANGE
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value, op_name
from atlasc.ir.opdef import OPS, Symbol
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.polynomials.algorithms.chebyshev import SUM_RANGES
from atlasc.polynomials.arithmetic import Arithmetic
from atlasc.polynomials.description import applied, carried_by
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.polynomials.fitted import PAPER_EXP_RANGE

OPS_OF_STEPS = {
    "add_const": ("add_constant", ("value",)),
    "scale": ("scale", ("factor",)),
    "filled": ("mask_fill", ("fill", "log_keys")),
    "masked": ("mask_zero", ("value",)),
}
"""The op of a step with a constant, or a tuple of them, and the attributes that hold these."""


@dataclass
class PolyArithmetic(Arithmetic):
    """Emits a poly op for every step of an algorithm.

    Attributes:
        rewriter: the poly module under construction.
        op: the nn op that is being expanded; its place and name mark the new ops.
        symbols: of arrays by their digests: equal arrays share one, however many ops use them.
    """

    rewriter: Rewriter
    op: Op
    symbols: dict[str, Symbol]

    def step(self, name: str, *operands: Value, constant: Any = None) -> Value:
        """The op, with the constant of the step as its attribute."""
        attributes: dict[str, Any] = {}
        if name in ("filled", "masked"):
            operands += tuple(self.rewriter.values[mask] for mask in self.op.operands[1:])
            attributes["causal"] = self.op.attributes.get("causal", False)
            attributes |= self.op.chosen("window")
        if name == "chebyshev":
            values = np.asarray(constant.coefficients, dtype=np.float64)
            attributes["coefficients"] = self._shared(
                "chebyshev", f".{values.shape[-1] - 1}", values
            )
            attributes["domain"] = [float(end) for end in constant.domain]
            if constant.meaning is not None:
                function, interval = constant.meaning
                channels = isinstance(interval, np.ndarray)
                attributes |= {
                    "valid": list(constant.valid),
                    "function": function,
                    "interval": self._shared("intervals", "", interval)
                    if channels
                    else [float(end) for end in interval],
                    "gain": 1.0,
                }
                if basis := _basis(self.op, constant):
                    attributes["basis"] = basis
        elif name in OPS_OF_STEPS:
            name, entries = OPS_OF_STEPS[name]
            constants = constant if isinstance(constant, tuple) else (constant,)
            for entry, one in zip(entries, constants, strict=True):
                if isinstance(one, np.ndarray):
                    one = self._shared("channels", "", one)
                attributes[entry] = one if isinstance(one, Symbol) else float(one)
        attributes["part"] = self.op.name.removeprefix("nn.")
        return self.rewriter.module.add(
            op_name(f"poly.{name}"), operands, attributes, self.op.location
        )

    def centred(self, a: Value, features: int) -> Value:
        """See `Arithmetic`."""
        return self.step("center", a)

    def _shared(self, kind: str, suffix: str, array: np.ndarray) -> Symbol:
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        if digest not in self.symbols:
            name = f"{kind}.{self.op.name.removeprefix('nn.')}{suffix}"
            self.symbols[digest] = self.rewriter.module.constant(name, array)
        return self.symbols[digest]


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
            if op.name == "nn.encrypt" or op.attributes.get("side") == "public":
                _input(rewriter, op)
            elif op.result is not None and op.result.tensor.side == "client":
                continue
            elif op.definition.nonlinear:
                algorithm = partial(applied, op, carried_by(op))
                constants = [op.attributes[n] for n in ("gamma", "beta") if n in op.attributes]
                x = rewriter.values[op.operands[0]]
                y = PolyArithmetic(rewriter, op, shared).run(algorithm, x, *constants)
                rewriter.values[op.value] = y
            else:
                _copy(rewriter, op)
        rewriter.module.symbols = rewriter.module.arrays_used()
        return rewriter.module


def _basis(op: Op, total: ChebyshevSum) -> str | None:
    """What the domain of a Chebyshev sum rests on: what the op's range does, but for constants of
    the paper, and sums that lie in their domain for every input.
    """
    interval = None if total.meaning is None else total.meaning[1]
    if isinstance(interval, tuple):
        low, high = interval
        if total.of_probabilities and low * op.operands[0].tensor.shape[-1] <= 1 <= high:
            return "certified"
        if op.definition.family == "softmax" and interval in (
            EXP_RANGE,
            PAPER_EXP_RANGE,
            *SUM_RANGES,
        ):
            return "published"
    basis: str | None = op.attributes.get("basis")
    return basis


def _input(rewriter: Rewriter, op: Op) -> None:
    tensor, name = op.value.tensor, op.attributes.get("name", op.value.name)
    attributes = {
        "name": name, "shape": list(tensor.shape), "side": tensor.side, "dtype": tensor.dtype
    }  # fmt: skip
    rewriter.values[op.value] = rewriter.module.add(
        "poly.input", [], attributes, op.location, op.value.name
    )


def _copy(rewriter: Rewriter, op: Op) -> None:
    name = op_name(op.name.replace("nn.", "poly.", 1))
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
