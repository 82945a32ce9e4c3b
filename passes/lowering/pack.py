"""``pack``: turns a poly module into macro ops on packed ciphertexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from atlasc.ir.bounds import MAX_INTEGER
from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS, observed
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op, Value, op_name
from atlasc.ir.opdef import Symbol, number
from atlasc.ir.ops.names import Attributes, OpName
from atlasc.ir.ops.rows import Cache
from atlasc.ir.rewriting import without_dead_ops
from atlasc.passes.framework.pass_base import Goal, Parameters, Pass, Report
from atlasc.passes.lowering.packing.forms import Form
from atlasc.passes.lowering.packing.packer import Packer, full, is_alone
from atlasc.program.kernels.linear import choose_plan
from atlasc.program.kernels.scores import row_score_layout, score_layout
from atlasc.program.kernels.skewed import choose_row_plan
from atlasc.program.transform_work import MOST_SUMS


@dataclass(frozen=True)
class Pack(Pass):
    """Give every value a layout and every op its packed form.

    Run it after folding: a remaining domain map, scalar factor or centring becomes a plaintext
    product, which takes a level.

    Attributes:
        slots: slots of a ciphertext.
        features_low: whether features lie in the low slot bits, and not in the top ones. Diagonals
            of weights then repeat, which makes linear layers cheap; sums over features take a
            level. The step of a decoder has one packing.
        most_sums: sums, one for each giant step of each result, that the device holds at once in a
            linear transform. Baby steps are made anew for the next ones
            (:mod:`atlasc.program.transform_work`).
        fewer_keys: whether linear transforms take fewer rotation keys, and a few more rotations
            (:mod:`atlasc.program.kernels.fewer_keys`).
    """

    name = "pack"
    takes = "poly"
    gives = "ckks"
    keeps = (MAGNITUDES, NOISE_GAINS)
    slots: int = 32768
    features_low: bool = False
    most_sums: int = field(default=MOST_SUMS, metadata={"within": (1, MAX_INTEGER)})
    fewer_keys: bool = False

    @classmethod
    def for_goal(cls, goal: Goal) -> Pack:
        """The pass for a goal's parameter set."""
        return cls.of(goal.parameters)

    @classmethod
    def of(cls, parameters: Parameters, features_low: bool = False) -> Pack:
        """The pass with the slots and the keys of a parameter set, and the sums of its device."""
        return cls(parameters.slots, features_low, parameters.most_sums, parameters.fewer_keys)

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to ckks module.

        Raises:
            AtlasError: an op has no packed form, or there are too few slots.
        """
        if self.slots < 1 or self.slots & (self.slots - 1):
            raise AtlasError(f"the number of slots must be a power of two, not {self.slots}")
        packer = Packer(module, self.slots, report, self.features_low)
        packing = packer.packing
        report.say(f"packing: {packing}")
        for op in module.ops:
            result = RULES[op.name](packer, op)
            if op.result is None or result is None:
                continue
            packer.define(op.result, result)
            if "magnitude" in op.attributes and result.encrypted:
                greatest = max(op.attributes["magnitude"], abs(packer.padding(result) or 0.0))
                told = {"magnitude": greatest, "holds": op.result.name}
                result.op.attributes |= cast(Attributes, {**observed(op), **told})
        packer.module.attributes |= {"slots": self.slots, "batch_capacity": 1 << packing.b}
        if self.most_sums != MOST_SUMS:
            packer.module.attributes["most_sums"] = self.most_sums
        if self.fewer_keys:
            packer.module.attributes["fewer_keys"] = True
        return without_dead_ops(packer.module)


Rule = Callable[[Packer, Op], Value | None]


def _as(name: OpName, **taken: str) -> Rule:
    """A rule that emits one op on the packed operands, with some attributes under other names."""

    def rule(packer: Packer, op: Op) -> Value:
        operands = [packer.operand(op, index) for index in range(len(op.operands))]
        given: Mapping[str, Any] = op.attributes
        attributes = {ours: given[theirs] for ours, theirs in taken.items()}
        return packer.emit(op, name, *operands, **attributes)

    return rule


def _input(packer: Packer, op: Op) -> Value:
    shape, facts = op.attributes["shape"], op.chosen("name")
    add = partial(packer.module.add, location=op.location, name=op.value.name)
    if op.attributes["side"] == "public":
        return add("ckks.public_input", [], {**facts, "shape": shape})
    if packer.forms[op.value] is Form.HEADS:
        shape, layout = _unsplit(op.value), packer.cache(op.value)
    else:
        layout = packer.packing.encrypted(shape)
    facts |= {"layout": layout, "shape": shape, **op.chosen("factor", "centred", "state", "prefix")}
    return add("ckks.input", [], facts)


def _unsplit(value: Value) -> list[int]:
    """The shape [batch, tokens, features] of heads [batch, heads, tokens, width]."""
    batch, heads, tokens, width = value.tensor.shape
    return [batch, tokens, heads * width]


def _output(packer: Packer, op: Op) -> None:
    value, result = op.operands[0], packer.operand(op)
    heads = packer.forms[value] is Form.HEADS
    shape = _unsplit(value) if heads else list(value.tensor.shape)
    attributes = {**op.attributes, "shape": shape}
    packer.module.add("ckks.output", [packer.as_read(result)], attributes, op.location)


def _linear(packer: Packer, op: Op) -> Value:
    source = packer.layout(op)
    outputs, inputs = packer.module.symbols[op.attributes["weight"].name].shape
    target = packer.packing.like(source, outputs)
    choose = choose_row_plan if source.one_token else choose_plan
    plan = choose(source, target, inputs, outputs)._asdict()
    arrays = op.chosen("weight", "bias")
    return packer.emit(
        op, "ckks.linear_transform", packer.operand(op), **arrays, **plan, layout=target
    )


def _rotary(packer: Packer, op: Op) -> Value:
    """Fold a rotary embedding into the linear layer that makes its operand. Behind another op it is
    an op of its own. So it is with features in the low bits: it depends on the token, and the
    layer's diagonals would no longer repeat; and so it is at a position that is known only when the
    program runs.
    """
    producer, tables = packer.operand(op).op, op.chosen("cos", "sin")
    if len(op.operands) > 1:
        operands = [packer.operand(op), packer.rewriter.values[op.operands[1]]]
        return packer.emit(op, "ckks.rotary", *operands, **tables)
    linear = producer.name == "ckks.linear_transform" and "cos" not in producer.attributes
    if packer.packing.features_low or not linear:
        return packer.emit(op, "ckks.rotary", packer.operand(op), **tables)
    return packer.again(producer, *producer.operands, **tables)


def _at_tokens(packer: Packer, op: Op) -> Value:
    row, mask = packer.operand(op), packer.rewriter.values[op.operands[1]]
    return packer.emit(op, "ckks.at_tokens", row, mask, layout=packer.cache(op.value))


def _binary(packer: Packer, op: Op) -> Value:
    operands = [packer.operand(op, 0), packer.operand(op, 1)]
    if len({is_alone(operand) for operand in operands}) > 1:
        operands = [packer.one_row(operand) for operand in operands]
    return packer.emit(op, op_name(op.name.replace("poly.", "ckks.", 1)), *operands)


def _add_constant(packer: Packer, op: Op) -> Value:
    value = packer.spread(op, op.attributes["value"])
    return packer.emit(op, "ckks.add_plain", packer.operand(op), value=value)


def _scale(packer: Packer, op: Op) -> Value:
    """A product with a constant; that of heads is put in the order of the features."""
    factor, form = op.attributes["factor"], packer.forms[op.operands[0]]
    if isinstance(factor, Symbol) and form in (Form.SPLIT, Form.HEADS):
        array = np.broadcast_to(packer.module.symbols[factor.name], op.value.tensor.shape)
        rows = array.swapaxes(1, 2) if form is Form.HEADS else array
        rows = rows.reshape(*rows.shape[:2], -1)
        while rows.ndim > 1 and (rows == rows[0]).all():
            rows = rows[0]
        factor = packer.module.constant(f"{factor.name}.heads", rows)
    return packer.emit(op, "ckks.mul_plain", packer.operand(op), value=factor)


def _chebyshev(packer: Packer, op: Op) -> Value:
    if op.attributes["domain"] != [-1.0, 1.0]:
        raise AtlasError(
            f"a Chebyshev sum on {op.attributes['domain']} cannot be packed",
            where=op.location,
            remedy="run normalise-affine first",
        )
    x = packer.one_row(packer.operand(op))
    return packer.emit(op, "ckks.chebyshev", x, coefficients=op.attributes["coefficients"])


def _row_sum(packer: Packer, op: Op) -> Value:
    form = packer.forms[op.operands[0]]
    if form is Form.SCORES:
        return _sum(packer, op, packer.operand(op), ["s"])
    if form in (Form.SPLIT, Form.HEADS):
        return _sum(packer, op, packer.with_copied_heads(op, packer.operand(op)), ["d"])
    return _sum(packer, op, _clean(packer, op), ["d", "g"])


def _sum(packer: Packer, op: Op, x: Value, axes: list[str]) -> Value:
    """A sum over axes, in all of their slots."""
    return packer.copied(op, packer.emit(op, "ckks.rotate_sum", x, axes=axes))


def _clean(packer: Packer, op: Op) -> Value:
    """The operand with 0 in the padding of the features; after a polynomial this takes a
    product.
    """
    x = packer.operand(op)
    features = op.operands[0].tensor.shape[-1]
    if full(packer.layout(op), features) or packer.padding(x) == 0.0:
        return x
    packer.report.say(f"{op.name} at {op.location} masks the padding of {features} features")
    return packer.emit(op, "ckks.mul_plain", x, value=packer.spread(op, 1.0))


def _center(packer: Packer, op: Op) -> Value:
    """x − Σx/n; the mean is spread over the real features only, so that their padding stays
    zero.
    """
    x, layout = _clean(packer, op), packer.layout(op)
    share = 1.0 / op.operands[0].tensor.shape[-1]
    total = _sum(packer, op, x, ["d", "g"])
    value = packer.spread(op, share)
    return packer.emit(
        op, "ckks.sub", x, packer.emit(op, "ckks.mul_plain", total, value=value, layout=layout)
    )


def _mean(packer: Packer, op: Op) -> Value:
    factor, masks = number(op.attributes.get("factor", 1.0)), _masks(packer, op)
    given = (
        {"value": factor, **op.chosen("last")}
        if masks
        else {"value": factor / packer.layout(op).extent("t"), "zero_padding": True}
    )
    weighted = packer.emit(op, "ckks.mul_plain", packer.operand(op), *masks, **given)
    return packer.emit(op, "ckks.rotate_sum", weighted, axes=["t"])


def _select(packer: Packer, op: Op) -> Value:
    if packer.forms[op.operands[0]] is Form.VECTOR:
        return packer.operand(op)
    chosen = packer.emit(
        op, "ckks.select", packer.operand(op), layout_axis="t", index=op.attributes["index"]
    )
    return packer.copied(op, chosen)


def _same_slots(packer: Packer, op: Op) -> Value:
    """Split features into heads or merge them; nothing moves in this packing."""
    shape, width = op.value.tensor.shape, packer.packing.width
    if packer.forms[op.value] is Form.SPLIT and shape[-1] != width:
        raise AtlasError(
            f"heads of {shape[-1]} features cannot be split off beside heads of {width}",
            where=op.location,
            why="the slots of a ciphertext hold blocks of features, each as wide as a head",
            remedy="give all heads one width; a sum or a mean of other blocks is a linear layer",
        )
    return packer.operand(op)


def _matmul(packer: Packer, op: Op) -> Value | None:
    if op.attributes["transpose_b"]:
        later = packer.masked_later(op)  # a mask that follows at once merges with the product
        return None if later is None else _scores(packer, op, later[0], fill=later[1])
    operands = packer.operand(op, 0), packer.operand(op, 1)
    if packer.layout(op, 0).field("t") is None:
        return packer.emit(op, "ckks.row_context", *operands)
    return packer.emit(op, "ckks.ct_matmul_pv", *operands, layout=packer.layout(op, 1))


def _mask_fill(packer: Packer, op: Op) -> Value:
    """The mask of a product; behind a function of the product, masked scores hold one number."""
    matmul, added = op.operands[0].op, op.chosen("log_keys", "bias", "slopes")
    if matmul.name == "poly.matmul" and matmul.attributes["transpose_b"]:
        return _scores(packer, matmul, op, fill=op.attributes["fill"], **added)
    value = packer.operand(op)
    held = packer.padding(value)
    if held is None:
        raise AtlasError(
            "a masked softmax must follow the product of queries and keys, or a function of it",
            where=op.location,
            why=f"it follows {matmul.name}",
            remedy="run assign-scales, which removes scalar factors in between",
        )
    fill = op.attributes["fill"] - held
    masks = _masks(packer, op)
    return packer.emit(op, "ckks.mask_fill", value, *masks, **_visible(op), fill=fill, **added)


def _scores(packer: Packer, matmul: Op, mask: Op, **flags: Any) -> Value:
    """The product of queries and keys, with the mask of an op that follows."""
    queries, keys = packer.operand(matmul, 0), packer.operand(matmul, 1)
    hidden, alone = packer.layout(matmul, 1), packer.layout(matmul, 0).field("t") is None
    heads, blocks = matmul.value.tensor.shape[1], hidden.field("g")
    copied = blocks is not None and heads % (1 << blocks.bits) > 0
    if copied:
        keys = packer.with_copied_heads(matmul, keys)
    if alone:
        copies = {"copy_padding": True} if copied else {}
        queries = packer.query(queries, hidden, copies, matmul.location)
    elif copied:
        queries = packer.with_copied_heads(matmul, queries)
    return packer.emit(
        matmul,
        "ckks.row_scores" if alone else "ckks.ct_matmul_qk",
        *(queries, keys, *_masks(packer, mask)),
        **_visible(mask),
        **flags,
        layout=_score_layout(hidden, heads, alone),
    )


def _score_layout(keys: Layout, heads: int, alone: bool) -> Layout:
    """Layout of the scores of one query, or of all."""
    if keys.one_token:
        return Cache.of(keys).scores()
    return (row_score_layout if alone else score_layout)(keys, heads)


def _mask_zero(packer: Packer, op: Op) -> Value:
    operands = packer.operand(op), *_masks(packer, op)
    return packer.emit(
        op, "ckks.mask_zero", *operands, **_visible(op), value=op.attributes["value"]
    )


def _masks(packer: Packer, op: Op) -> list[Value]:
    return [packer.rewriter.values[mask] for mask in op.operands[1:]]


def _visible(op: Op) -> dict[str, Any]:
    """The attributes that say which keys a query may see, beside a mask."""
    causal = op.attributes.get("causal", False)
    places = op.chosen("query") if causal or "window" in op.attributes else {}
    return {"causal": causal, **op.chosen("window"), **places}


RULES: dict[str, Rule] = {
    "poly.input": _input,
    "poly.output": _output,
    "poly.linear": _linear,
    "poly.rotary": _rotary,
    "poly.at_tokens": _at_tokens,
    **dict.fromkeys(("poly.add", "poly.sub", "poly.mul"), _binary),
    "poly.square": _as("ckks.square"),
    "poly.double": _as("ckks.double", times="times"),
    "poly.add_constant": _add_constant,
    "poly.scale": _scale,
    "poly.chebyshev": _chebyshev,
    "poly.row_sum": _row_sum,
    "poly.center": _center,
    "poly.mean": _mean,
    "poly.select": _select,
    **dict.fromkeys(("poly.reshape", "poly.transpose"), _same_slots),
    "poly.matmul": _matmul,
    "poly.mask_fill": _mask_fill,
    "poly.mask_zero": _mask_zero,
}
