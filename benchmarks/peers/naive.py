"""The naive program: every op of the polynomial module on its own, in row packing.

It is what a straightforward lowering gives, on the same engine protocol and with the same
polynomials as the compiler's program:

* linear layers by diagonals with baby and giant steps (Halevi and Shoup, CRYPTO 2018), one layer at
  a time; rotations one after another, none hoisted;
* attention by rotated rows, with rotate-and-sum over the width of a head;
* a mask after every sum;
* nothing folded: domain maps, 1/√d, γ, 1/n of a mean and masks are products of their own;
* a value is bootstrapped when the next op would run out of levels, and brought into the range of a
  bootstrap by one more product where its magnitude asks for it.

One input at a time; hidden states in, hidden states out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.lowering.packing.forms import Form, forms_of
from atlasc.polynomials.fits.chebyshev import levels_of_degree
from atlasc.program.counting_engine import CountingEngine
from atlasc.program.engine import Engine
from atlasc.program.paterson_stockmeyer import evaluate_plan, plan_chebyshev
from benchmarks.peers import matrices
from benchmarks.peers.library_calls import LibraryCalls
from benchmarks.peers.matrices import Blocks, Ct
from benchmarks.peers.rows import Rows

LEVELS = {
    "poly.linear": 1,
    "poly.scale": 1,
    "poly.mask_fill": 1,
    "poly.mask_zero": 1,
    "poly.square": 1,
    "poly.mul": 1,
    "poly.row_sum": 1,
    "poly.center": 2,
}
"""Levels of an op; those of a Chebyshev sum and of a product of matrices depend on it."""


def geometry(module: Module, slots: int) -> Rows:
    """The row packing of a poly module with one encrypted input ``[1, tokens, features]``."""
    shapes = [op.attributes["shape"] for op in module.inputs if op.attributes["side"] == "server"]
    if len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][0] != 1:
        raise AtlasError("the naive program takes one input [1, tokens, features]", why=f"{shapes}")
    forms = forms_of(module)
    heads = [v.tensor.shape[1] for v, form in forms.items() if form is Form.HEADS]
    return Rows(slots, shapes[0][1], shapes[0][2], max(heads, default=1))


@dataclass
class Naive(Generic[Ct]):
    """Runs the naive program of a module on an engine.

    Attributes:
        module: what ``expand`` made of an nn module, nothing folded. Ops that know their magnitude
            are scaled by it before a bootstrap, all others are taken to lie in [−1, 1].
        engine: evaluates the primitives.
        before: called before every op.
        lazy: products as our engines do them, not as one call of the library each; see
            ``LibraryCalls``.
    """

    module: Module
    engine: Engine[Ct]
    before: Callable[[Op], None] | None = None
    lazy: bool = False
    values: dict[Value, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.forms = forms_of(self.module)
        self.rows = geometry(self.module, self.engine.slots)
        self.dry = isinstance(self.engine, CountingEngine)
        self.blank = np.zeros(self.engine.slots)
        if not self.lazy:
            self.engine = LibraryCalls(self.engine)

    # --- in and out

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Blocks]:
        """Encrypted outputs by name; the engine encrypts the inputs."""
        last_use = {v: n for n, op in enumerate(self.module.ops) for v in op.operands}
        outputs = {}
        for position, op in enumerate(self.module.ops):
            if self.before is not None:
                self.before(op)
            if op.name == "poly.input":
                self.values[op.value] = self._input(op, inputs.get(op.attributes["name"]))
            elif op.result is None:
                outputs[op.attributes["name"]] = self.values[op.operands[0]]
            else:
                self._refresh(op)
                operands = [self.values[operand] for operand in op.operands]
                self.values[op.result] = KERNELS[op.name](self, op, *operands)
            for operand in op.operands:
                if last_use[operand] == position:
                    self.values.pop(operand, None)
        return outputs

    def decrypt(self, blocks: Blocks, columns: int) -> np.ndarray:
        """The matrix ``[tokens, columns]`` in ciphertexts."""
        slots = [[self.engine.decrypt(ct) for ct in block] for block in blocks]
        return self.rows.unpack(slots, columns)

    def _input(self, op: Op, array: np.ndarray | None) -> Any:
        if op.attributes["side"] == "public":
            return array
        shape = op.attributes["shape"]
        matrix = np.zeros(shape[1:]) if array is None else array.reshape(shape[1:])
        return [[self.engine.encrypt(slots) for slots in row] for row in self.rows.pack(matrix)]

    # --- levels

    def _refresh(self, op: Op) -> None:
        """Bootstrap the operands that the op would take below the levels that its result needs."""
        if self.engine.bootstrap_level is None:
            return
        needed = self._levels(op) + (_doublings(op) > 0)
        for operand in op.operands:
            if self.forms[operand] is Form.PUBLIC:
                continue
            blocks = self.values[operand]
            if min(self.engine.level(ct) for block in blocks for ct in block) < needed:
                times = _doublings(operand.op)
                self.values[operand] = [[self._bootstrap(c, times) for c in b] for b in blocks]

    def _levels(self, op: Op) -> int:
        if op.name == "poly.chebyshev":
            degree = len(self._array(op, "coefficients")) - 1
            return levels_of_degree(degree) + (op.attributes["domain"] != [-1.0, 1.0])
        if op.name == "poly.matmul":
            return (3 if op.attributes["transpose_b"] else 2) if self.rows.ciphertexts > 1 else 2
        return LEVELS.get(op.name, 0)

    def _bootstrap(self, ct: Ct, doublings: int) -> Ct:
        if doublings:
            ct = self.engine.mul_plain(ct, 0.5**doublings)
        ct = self.engine.bootstrap(ct)
        for _ in range(doublings):
            ct = self.engine.add(ct, ct)
        return ct

    # --- plaintexts

    def vector(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """A plaintext; a counting engine does not look at it."""
        return self.blank if self.dry else make().astype(np.float64)

    def _array(self, op: Op, name: str) -> np.ndarray:
        return op.site(self.module.symbols).constant(name)

    def each(
        self, op: Op, blocks: Blocks, apply: Callable[[Ct, int, int, np.ndarray], Ct]
    ) -> Blocks:
        """``apply(ct, block, c, occupied)`` on every ciphertext."""
        operand = op.operands[0]
        form, columns = self.forms[operand], operand.tensor.shape[-1]
        return [
            [apply(ct, b, c, self.rows.occupied(form, columns, b, c)) for c, ct in enumerate(block)]
            for b, block in enumerate(blocks)
        ]

    def constant(self, op: Op, name: str, block: int, c: int, occupied: np.ndarray) -> np.ndarray:
        """A constant in the slots that hold something: one number, or one for each feature."""
        value = op.attributes[name]
        if isinstance(value, Symbol):
            columns = op.operands[0].tensor.shape[-1]
            row = np.broadcast_to(self._array(op, name).reshape(-1), (columns,))
            return self.vector(lambda: self.rows.spread(row, block, c))
        return self.vector(lambda: np.where(occupied, float(value), 0.0))


def _doublings(op: Op) -> int:
    """k such that the result of an op over 2^k lies in [−1, 1]."""
    return max(0, math.ceil(math.log2(op.attributes.get("magnitude", 1.0) or 1.0)))


# --- kernels: (program, op, operands) -> blocks of ciphertexts


def _pairs(left: Blocks, right: Blocks) -> list[list[tuple[Ct, Ct]]]:
    """Ciphertexts of two operands; one that was summed over its columns serves for all blocks."""
    count = max(len(left), len(right))
    left, right = (b if len(b) == count else b * count for b in (left, right))
    return [list(zip(a, b, strict=True)) for a, b in zip(left, right, strict=True)]


def _binary(name: str) -> Callable[..., Blocks]:
    def kernel(program: Naive[Ct], op: Op, left: Blocks, right: Blocks) -> Blocks:
        apply = getattr(program.engine, name)
        return [[apply(a, b) for a, b in row] for row in _pairs(left, right)]

    return kernel


def _square(program: Naive[Ct], op: Op, x: Blocks) -> Blocks:
    return [[program.engine.square(ct) for ct in block] for block in x]


def _constant(name: str, attribute: str) -> Callable[..., Blocks]:
    def kernel(program: Naive[Ct], op: Op, x: Blocks) -> Blocks:
        def apply(ct: Ct, block: int, c: int, real: np.ndarray) -> Ct:
            plain = program.constant(op, attribute, block, c, real)
            return getattr(program.engine, name)(ct, plain)

        return program.each(op, x, apply)

    return kernel


def _chebyshev(program: Naive[Ct], op: Op, x: Blocks) -> Blocks:
    """Padding goes to the middle of the domain, where no polynomial explodes."""
    engine, (low, high) = program.engine, op.attributes["domain"]
    coefficients = program._array(op, "coefficients")
    plan = plan_chebyshev(coefficients if coefficients.any() else np.arange(len(coefficients)) + 1)

    def apply(ct: Ct, block: int, c: int, real: np.ndarray) -> Ct:
        if (low, high) != (-1.0, 1.0):
            ct = engine.mul_plain(ct, program.vector(lambda: real * (2 / (high - low))))
            shift = program.vector(lambda: real * (-(high + low) / (high - low)))
            ct = engine.add_plain(ct, shift)
        return evaluate_plan(engine, ct, plan)

    return program.each(op, x, apply)


def _row_sum(program: Naive[Ct], op: Op, x: Blocks) -> Blocks:
    rows, form = program.rows, program.forms[op.operands[0]]
    width = rows.width if form is Form.SCORES else rows.row
    columns = [list(column) for column in zip(*x, strict=True)]
    return [[matrices.row_sum(program, ct, form, width, c) for c, ct in enumerate(columns)]]


def _center(program: Naive[Ct], op: Op, x: Blocks) -> Blocks:
    columns = op.operands[0].tensor.shape[-1]
    (totals,) = _row_sum(program, op, x)
    mean = np.full(columns, 1 / columns)

    def apply(ct: Ct, block: int, c: int, real: np.ndarray) -> Ct:
        share = program.vector(lambda: program.rows.spread(mean, block, c))
        return program.engine.sub(ct, program.engine.mul_plain(totals[c], share))

    return program.each(op, x, apply)


def _masked(program: Naive[Ct], op: Op, x: Blocks, mask: np.ndarray | None = None) -> Blocks:
    """Scores of keys that may be seen, with what the op adds to them, and its fill, or 0, for all
    others.
    """
    attributes, rows = op.attributes, program.rows
    fill, log_keys = attributes.get("fill", 0.0), attributes.get("log_keys", 0.0)
    causal = attributes.get("causal", False)
    if {"bias", "slopes"} & set(attributes):
        raise NotImplementedError("constants that are added to scores")

    def apply(ct: Ct, block: int, c: int, real: np.ndarray) -> Ct:
        def keep() -> np.ndarray:
            return rows.seen(causal, mask, block, c)

        def added() -> np.ndarray:
            return np.where(keep(), log_keys * rows.log_hidden(causal, mask, c), fill * real)

        ct = program.engine.mul_plain(ct, program.vector(keep))
        if fill or log_keys:
            ct = program.engine.add_plain(ct, program.vector(added))
        return ct

    return program.each(op, x, apply)


def _linear(program: Naive[Ct], op: Op, x: Blocks) -> Blocks:
    bias = program._array(op, "bias") if "bias" in op.attributes else None
    return matrices.linear(program, program._array(op, "weight"), bias, x)


def _matmul(program: Naive[Ct], op: Op, left: Blocks, right: Blocks) -> Blocks:
    product = matrices.scores if op.attributes["transpose_b"] else matrices.weighted_sum
    return product(program, left, right)


KERNELS: dict[str, Callable[..., Blocks]] = {
    "poly.add": _binary("add"),
    "poly.sub": _binary("sub"),
    "poly.mul": _binary("mul"),
    "poly.square": _square,
    "poly.scale": _constant("mul_plain", "factor"),
    "poly.add_constant": _constant("add_plain", "value"),
    "poly.chebyshev": _chebyshev,
    "poly.row_sum": _row_sum,
    "poly.center": _center,
    "poly.mask_fill": _masked,
    "poly.mask_zero": _masked,
    "poly.linear": _linear,
    "poly.matmul": _matmul,
    "poly.reshape": lambda program, op, x: x,
    "poly.transpose": lambda program, op, x: x,
}
