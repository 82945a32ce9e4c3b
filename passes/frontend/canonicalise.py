"""The pass ``canonicalise``: one form for nn modules, however the model was written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from atlasc.ir.arrays.lazy import elementwise, is_uniform, lazy
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.frontend.merge_linear import merge_linear_layers

Users = dict[Value, list[Op]]
Change = Callable[[np.ndarray], np.ndarray]
# Ops f with f(c·x) = c·f(x) in their first operand, for a number c.
_NORMS = ("nn.rms_norm", "nn.layer_norm")
_BY_HEAD = ("nn.rotary", *_NORMS)
_CHAIN = ((_BY_HEAD, "nn.transpose"), (_BY_HEAD, "nn.reshape"), (_NORMS, "nn.linear"))
"""Ops above a repeat of heads, from below: any number of some, and then one."""
MERGED = ("nn.reshape", "nn.transpose", "nn.scale", "nn.add_constant", "nn.matmul", "nn.mean")
HOMOGENEOUS = ("nn.reshape", "nn.transpose", "nn.repeat", "nn.rotary", "nn.select", "nn.mean")


@dataclass(frozen=True)
class Canonicalise(Pass):
    """Remove ops without effect, merge neighbours, and move work into weights.

    Heads that are copied for grouped-query attention become repeated rows of the key and value
    weights. A factor such as 1/√d becomes part of the weight of the linear layer before it. Linear
    layers that are added to each other or applied to each other become one layer.
    """

    name = "canonicalise"
    takes = "nn"

    def run(self, module: Module, report: Report) -> Module:
        """See the class."""
        module = without_dead_ops(module)
        module = without_dead_ops(_merge_neighbours(module))
        module = merge_linear_layers(module, report)
        module = without_dead_ops(_repeat_weights(module, report))
        return without_dead_ops(_scale_weights(module, report))


def _merge_neighbours(module: Module) -> Module:
    """Remove reshapes, transposes and scales without effect; merge two neighbours of a kind."""
    rewriter, users = Rewriter(module), module.users()
    for op in module.ops:
        merged = _merged(rewriter, op, users)
        if merged is None:
            rewriter.copy(op)
        else:
            rewriter.values[op.value] = merged
    return rewriter.module


def _merged(rewriter: Rewriter, op: Op, users: Users) -> Value | None:
    """The value that replaces an op; None if the op stays."""
    if op.name not in MERGED:
        return None
    source, given = rewriter.operands(op)[0], op.attributes
    before, inner = source.op, source.op.attributes
    if op.name == "nn.reshape":
        while source.op.name == "nn.reshape":
            source = source.op.operands[0]
        same = source.tensor.shape == tuple(given["shape"])
        return source if same else rewriter.copy(op, [source])
    if op.name == "nn.transpose":
        order = list(given["permutation"])
        if before.name == "nn.transpose":
            order, source = [inner["permutation"][axis] for axis in order], before.operands[0]
        changed = {**given, "permutation": order}
        return source if order == sorted(order) else rewriter.copy(op, [source], changed)
    if op.name == "nn.mean":
        return _mean(rewriter, op, source)
    if op.name == "nn.scale":
        factor = given["factor"]
        if isinstance(factor, Symbol):
            return None
        if before.name == "nn.scale" and not isinstance(inner["factor"], Symbol):
            factor, source = factor * inner["factor"], before.operands[0]
        return source if factor == 1 else rewriter.copy(op, [source], {**given, "factor": factor})
    if op.name == "nn.add_constant":
        if before.name != "nn.add_constant" or len(users[op.operands[0]]) != 1:
            return None
        parts = inner["value"], given["value"]
        symbols = rewriter.module.symbols
        one, two = (symbols[p.name] if isinstance(p, Symbol) else np.asarray(p) for p in parts)
        named = [part.name for part in parts if isinstance(part, Symbol)]
        value = (
            rewriter.module.constant(f"{named[0]}.sum", one + two) if named else float(one + two)
        )
        return rewriter.copy(op, [before.operands[0]], {**given, "value": value})
    other = rewriter.operands(op)[1]
    if before.name == "nn.softmax" and len(before.operands) == 1 and _is_lone(source):
        return other
    *batch, rows, columns = range(len(other.tensor.shape))
    swap = {"permutation": [*batch, columns, rows]}
    if other.op.name != "nn.transpose" or other.op.attributes != swap:
        return None
    changed = {**given, "transpose_b": not given["transpose_b"]}
    return rewriter.copy(op, [source, other.op.operands[0]], changed)


def _mean(rewriter: Rewriter, op: Op, source: Value) -> Value | None:
    """The mean of one token is that token; a mean of features is a linear layer."""
    extents, axis = source.tensor.shape, op.attributes["axis"]
    if len(op.operands) > 1:
        return None
    if axis == 2 == len(extents) - 1 and source.tensor.side == "server":
        share = np.full((1, extents[2]), 1 / extents[2], np.float32)
        layer = {"weight": rewriter.module.constant("mean", share)}
        source = rewriter.add(op, "nn.linear", [source], layer)
    elif extents[axis] != 1:
        return None
    return rewriter.add(op, "nn.reshape", [source], {"shape": list(op.value.tensor.shape)})


def _is_lone(weights: Value) -> bool:
    """Whether there is one query and one key, whose weight is 1."""
    return weights.tensor.shape[-2:] == (1, 1)


def _repeat_weights(module: Module, report: Report) -> Module:
    """linear, reshape, transpose, (rotary,) repeat: repeat the rows of the weight instead.

    A norm may lie between: the mean square of repeated features is that of the features.
    """
    users = module.users()
    dropped, weights = set[Op](), dict[Op, tuple[str, Change]]()
    shapes: dict[Op, dict[str, Any]] = {}
    for op in (op for op in module.ops if op.name == "nn.repeat"):
        chain = _heads_chain(op, users)
        if chain is None:
            report.say(
                f"{op.location}: repeat stays, because no linear layer makes its heads for it alone"
            )
            continue
        reshape, *arrays = chain
        batch, length, heads, size = reshape.attributes["shape"]
        repeats = op.attributes["repeats"]
        shapes[reshape] = {"shape": [batch, length, heads * repeats, size]}
        change = "repeated", partial(_repeated, heads=heads, repeats=repeats)
        weights |= dict.fromkeys(arrays, change)
        linear = arrays[-1]
        dropped.add(op)
        report.say(f"{op.location}: heads repeated in the weight of {linear.location}")
    return _rewritten(module, dropped, weights, shapes)


def _repeated(array: np.ndarray, heads: int, repeats: int) -> np.ndarray:
    if is_uniform(array):
        return np.broadcast_to(array.reshape(-1)[0], (len(array) * repeats, *array.shape[1:]))

    def made() -> np.ndarray:
        by_head = array.reshape(heads, -1, *array.shape[1:])
        return np.repeat(by_head, repeats, axis=0).reshape(-1, *array.shape[1:])

    return lazy((len(array) * repeats, *array.shape[1:]), array.dtype, made)


def _heads_chain(op: Op, users: Users) -> list[Op] | None:
    """The reshape to heads above a repeat of axis 1, and the ops with arrays above it: norms, if
    there are some, and the linear layer; None if others read a value in between.
    """
    value, found = op.operands[0], list[Op]()
    if op.attributes["axis"] != 1 or len(value.tensor.shape) != 4:
        return None
    for between, end in _CHAIN:
        while len(users[value]) == 1 and value.op.name in (*between, end):
            found.append(value.op)
            value = value.op.operands[0]
            if found[-1].name == end:
                break
        else:
            return None
    transpose = next(above for above in found if above.name == "nn.transpose")
    reshape = next(above for above in found if above.name == "nn.reshape")
    extents, features = reshape.attributes["shape"], reshape.operands[0].tensor.shape[-1]
    heads_split = len(extents) == 4 and extents[2] * extents[3] == features
    heads_first = transpose.attributes["permutation"] == [0, 2, 1, 3]
    return found[found.index(reshape) :] if heads_first and heads_split else None


def _scale_weights(module: Module, report: Report) -> Module:
    """Move a scale by a number into the linear layer that its operand comes from."""
    users = module.users()
    factors, dropped = dict[Op, float](), set[Op]()
    for op in module.ops:
        if op.name != "nn.scale" or isinstance(op.attributes["factor"], Symbol):
            continue
        linear = _scaled_linear(op.operands[0], users)
        if linear is None:
            report.say(f"{op.location}: scale stays, because no linear layer feeds it alone")
            continue
        factors[linear] = factors.get(linear, 1.0) * op.attributes["factor"]
        dropped.add(op)
        report.say(f"{op.location}: scale folded into the weight of {linear.location}")

    def scaled(array: np.ndarray, factor: float) -> np.ndarray:
        return elementwise(lambda part: (part * np.float64(factor)).astype(array.dtype), array)

    weights = {op: ("scaled", partial(scaled, factor=factor)) for op, factor in factors.items()}
    return _rewritten(module, dropped, weights, {})


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


def _rewritten(
    module: Module,
    dropped: Collection[Op],
    weights: Mapping[Op, tuple[str, Change]],
    attributes: Mapping[Op, Mapping[str, Any]],
) -> Module:
    """A copy without some ops, each replaced by its operand. Arrays of linear layers and norms are
    changed, with a suffix in the names of their symbols; other ops get other attributes.
    """
    rewriter = Rewriter(module)
    for op in module.ops:
        if op in dropped:
            rewriter.values[op.value] = rewriter.operands(op)[0]
            continue
        changed = {**op.attributes, **attributes.get(op, {})}
        suffix, change = weights.get(op, ("", None))
        for name in ("weight", "bias", "gamma", "beta"):
            if change is None or name not in changed:
                continue
            array = change(module.symbols[changed[name].name])
            changed[name] = rewriter.module.constant(f"{changed[name].name}.{suffix}", array)
        rewriter.copy(op, None, changed)
    return rewriter.module
