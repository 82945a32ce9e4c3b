"""The pass ``canonicalise``: one form for nn modules, however the model wrote itself down."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter, without_dead_ops

Users = dict[Value, list[Op]]
# Ops f with f(c·x) = c·f(x) in their first operand, for a number c.
HOMOGENEOUS = ("nn.reshape", "nn.transpose", "nn.repeat", "nn.rotary", "nn.select", "nn.mean")


@dataclass(frozen=True)
class Canonicalise(Pass):
    """Remove ops that do nothing, merge neighbours, and move work into weights.

    Heads that are copied for grouped-query attention become repeated rows of the key and value
    weights; a factor such as 1/√d becomes part of the weight of the linear layer before it.
    """

    name = "canonicalise"
    takes = "nn"

    def run(self, module: Module, report: Report) -> Module:
        """See the class.

        Raises:
            AtlasError: the module is not at the nn level.
        """
        if module.level != "nn":
            raise AtlasError(
                f"canonicalise works on nn modules, @{module.name} is at the {module.level} level"
            )
        module = without_dead_ops(module)
        module = without_dead_ops(_merge_neighbours(module))
        module = without_dead_ops(_repeat_weights(module, report))
        return without_dead_ops(_scale_weights(module, report))


def canonicalise(module: Module) -> Module:
    """The module in canonical form; see ``Canonicalise``."""
    return Canonicalise().run(module, Report())


def _merge_neighbours(module: Module) -> Module:
    """Drop reshapes, transposes and scales that do nothing; merge two that follow each other."""
    rewriter, users = Rewriter(module), module.users()
    for op in module.ops:
        rule = NEIGHBOURS.get(op.name)
        replacement = rule(rewriter, op, users) if rule is not None else None
        if replacement is None:
            rewriter.copy(op)
        else:
            rewriter.values[op.value] = replacement
    return rewriter.module


def _reshape(rewriter: Rewriter, op: Op, users: Users) -> Value | None:
    source = rewriter.operands(op)[0]
    while source.op.name == "nn.reshape":
        source = source.op.operands[0]
    if source.tensor.shape == tuple(op.attributes["shape"]):
        return source
    return rewriter.copy(op, [source])


def _transpose(rewriter: Rewriter, op: Op, users: Users) -> Value | None:
    source, order = rewriter.operands(op)[0], list(op.attributes["permutation"])
    if source.op.name == "nn.transpose":
        inner = source.op.attributes["permutation"]
        order, source = [inner[axis] for axis in order], source.op.operands[0]
    if order == sorted(order):
        return source
    return rewriter.copy(op, [source], {**op.attributes, "permutation": order})


def _scale(rewriter: Rewriter, op: Op, users: Users) -> Value | None:
    source, factor = rewriter.operands(op)[0], op.attributes["factor"]
    if isinstance(factor, Symbol):
        return None
    inner = source.op.attributes.get("factor") if source.op.name == "nn.scale" else None
    if inner is not None and not isinstance(inner, Symbol):
        factor, source = factor * inner, source.op.operands[0]
    if factor == 1:
        return source
    return rewriter.copy(op, [source], {**op.attributes, "factor": factor})


def _add_constant(rewriter: Rewriter, op: Op, users: Users) -> Value | None:
    source, before = rewriter.operands(op)[0], op.operands[0]
    if source.op.name != "nn.add_constant" or len(users[before]) != 1:
        return None
    symbols = rewriter.module.symbols
    first, second = source.op.attributes["value"], op.attributes["value"]
    total = _array(symbols, first) + _array(symbols, second)
    base = first if isinstance(first, Symbol) else second
    named = isinstance(base, Symbol)
    value = rewriter.module.constant(f"{base.name}.sum", total) if named else float(total)
    return rewriter.copy(op, [source.op.operands[0]], {**op.attributes, "value": value})


def _matmul(rewriter: Rewriter, op: Op, users: Users) -> Value | None:
    a, b = rewriter.operands(op)
    if b.op.name != "nn.transpose":
        return None
    *batch, rows, columns = range(len(b.tensor.shape))
    if b.op.attributes["permutation"] != [*batch, columns, rows]:
        return None
    attributes = {**op.attributes, "transpose_b": not op.attributes["transpose_b"]}
    return rewriter.copy(op, [a, b.op.operands[0]], attributes)


NEIGHBOURS: dict[str, Callable[[Rewriter, Op, Users], Value | None]] = {
    "nn.reshape": _reshape,
    "nn.transpose": _transpose,
    "nn.scale": _scale,
    "nn.add_constant": _add_constant,
    "nn.matmul": _matmul,
}


def _repeat_weights(module: Module, report: Report) -> Module:
    """linear, reshape, transpose, (rotary,) repeat: repeat the rows of the weight instead."""
    users = module.users()
    linears: dict[Op, Op] = {}
    reshapes: dict[Op, Op] = {}
    for op in module.ops:
        if op.name != "nn.repeat":
            continue
        chain = _heads_chain(op, users)
        if chain is None:
            report.say(f"{op.location}: repeat stays, no linear layer makes its heads alone")
            continue
        reshape, linear = chain
        reshapes[reshape], linears[linear] = op, op
        report.say(f"{op.location}: heads repeated in the weight of {linear.location}")

    def changed(rewriter: Rewriter, op: Op) -> dict[str, Any] | None:
        if op in linears:
            copies = linears[op]
            repeats, heads = copies.attributes["repeats"], copies.operands[0].tensor.shape[1]

            def repeat(array: np.ndarray) -> np.ndarray:
                by_head = array.reshape(heads, -1, *array.shape[1:])
                return np.repeat(by_head, repeats, axis=0).reshape(-1, *array.shape[1:])

            return _changed_weight(rewriter.module, op, "repeated", repeat, repeats)
        if op in reshapes:
            batch, length, heads, size = op.attributes["shape"]
            shape = [batch, length, heads * reshapes[op].attributes["repeats"], size]
            return {**op.attributes, "shape": shape}
        return None

    return _rewritten(module, set(linears.values()), changed)


def _rewritten(
    module: Module,
    dropped: Collection[Op],
    changed: Callable[[Rewriter, Op], dict[str, Any] | None],
) -> Module:
    """A copy without some ops, whose operand takes their place, and with changed attributes."""
    rewriter = Rewriter(module)
    for op in module.ops:
        if op in dropped:
            rewriter.values[op.value] = rewriter.operands(op)[0]
        else:
            rewriter.copy(op, None, changed(rewriter, op))
    return rewriter.module


def _heads_chain(op: Op, users: Users) -> tuple[Op, Op] | None:
    """The reshape to heads and the linear layer above a repeat of axis 1, if used only by it."""
    value = op.operands[0]
    if op.attributes["axis"] != 1 or len(value.tensor.shape) != 4:
        return None
    expected = ["nn.transpose", "nn.reshape", "nn.linear"]
    chain: list[Op] = []
    while expected:
        if len(users[value]) != 1:
            return None
        above = value.op
        if above.name == expected[0]:
            expected.pop(0)
            chain.append(above)
        elif above.name != "nn.rotary" or chain:
            return None
        if above.operands:
            value = above.operands[0]
    transpose, reshape, linear = chain
    extents, features = reshape.attributes["shape"], reshape.operands[0].tensor.shape[-1]
    heads_split = len(extents) == 4 and extents[2] * extents[3] == features
    heads_first = transpose.attributes["permutation"] == [0, 2, 1, 3]
    return (reshape, linear) if heads_first and heads_split else None


def _scale_weights(module: Module, report: Report) -> Module:
    """Move a scale by a number into the linear layer that it can be traced back to."""
    users = module.users()
    factors: dict[Op, float] = {}
    dropped: set[Op] = set()
    for op in module.ops:
        if op.name != "nn.scale" or isinstance(op.attributes["factor"], Symbol):
            continue
        linear = _scaled_linear(op.operands[0], users)
        if linear is None:
            report.say(f"{op.location}: scale stays, no linear layer feeds it alone")
            continue
        factors[linear] = factors.get(linear, 1.0) * op.attributes["factor"]
        dropped.add(op)
        report.say(f"{op.location}: scale folded into the weight of {linear.location}")

    def changed(rewriter: Rewriter, op: Op) -> dict[str, Any] | None:
        if op not in factors:
            return None
        factor = np.float64(factors[op])
        return _changed_weight(
            rewriter.module, op, "scaled", lambda array: (array * factor).astype(array.dtype)
        )

    return _rewritten(module, dropped, changed)


def _scaled_linear(value: Value, users: Users) -> Op | None:
    """A linear layer such that scaling its result scales this value and nothing else."""
    if len(users[value]) != 1:
        return None
    op = value.op
    if op.name == "nn.linear":
        return op
    if op.name in HOMOGENEOUS or op.name == "nn.scale":
        return _scaled_linear(op.operands[0], users)
    if op.name in ("nn.matmul", "nn.mul"):
        found = (_scaled_linear(operand, users) for operand in op.operands)
        return next(filter(None, found), None)
    return None


def _changed_weight(
    module: Module,
    op: Op,
    suffix: str,
    change: Callable[[np.ndarray], np.ndarray],
    repeats: int = 1,
) -> dict[str, Any]:
    """Attributes of a linear op whose weight and bias were changed, as new symbols.

    A weight without values (all strides 0) gets ``repeats`` times its rows, without any memory.
    """
    attributes = dict(op.attributes)
    for name in ("weight", "bias"):
        if name not in attributes:
            continue
        symbol = attributes[name]
        array = module.symbols[symbol.name]
        if any(array.strides):
            changed = change(array)
        else:
            rows = array.shape[0] * repeats
            changed = np.broadcast_to(array.reshape(-1)[0], (rows, *array.shape[1:]))
        attributes[name] = module.constant(f"{symbol.name}.{suffix}", changed)
    return attributes


def _array(symbols: dict[str, np.ndarray], value: Symbol | float) -> np.ndarray:
    return symbols[value.name] if isinstance(value, Symbol) else np.asarray(value)
