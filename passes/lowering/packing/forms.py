"""The tensors that a packed program can hold, and the ops that it has for them.

The packing knows the axes of a value only by their meaning in a Transformer. Two tensors of equal
shape may mean different things (if there are as many heads as tokens), and an op that is right for
one would silently mix slots of the other. So every value of a poly module first gets a *form*, and
an op is refused for a form without a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.framework.rewritings import RESHAPE, TRANSPOSITION, written


class Form(Enum):
    """The meaning of the axes of a tensor."""

    HIDDEN = "[batch, tokens, features]"
    VECTOR = "[batch, features]"
    SPLIT = "[batch, tokens, heads, width]"
    HEADS = "[batch, heads, tokens, width]"
    SCORES = "[batch, heads, queries, keys]"
    SUMS = "[batch, tokens, 1] or [batch, 1]"
    SCORE_SUMS = "[batch, heads, queries, 1]"
    SPLIT_SUMS = "[batch, tokens, heads, 1]"
    HEAD_SUMS = "[batch, heads, tokens, 1]"
    PUBLIC = "a public input"


Forms = dict[Value, Form]
FEATURES = (Form.HIDDEN, Form.VECTOR)
"""Forms whose last axis is the features."""
_SUMMED = {
    Form.HIDDEN: Form.SUMS,
    Form.VECTOR: Form.SUMS,
    Form.SCORES: Form.SCORE_SUMS,
    Form.SPLIT: Form.SPLIT_SUMS,
    Form.HEADS: Form.HEAD_SUMS,
}


def forms_of(module: Module) -> Forms:
    """The form of every value of a poly module.

    Raises:
        AtlasError: an op has no packed form for its operands.
    """
    forms: Forms = {}
    for op in module.ops:
        operands = [forms[operand] for operand in op.operands]
        rule = RULES.get(op.name)
        form = rule(op, operands) if rule is not None else None
        if form is None:
            raise _refused(op, operands)
        if op.result is not None:
            forms[op.result] = form
    return forms


def _shape(value: Value) -> tuple[int, ...]:
    return value.tensor.shape


def _input(op: Op, forms: list[Form]) -> Form | None:
    if op.attributes["side"] == "public":
        return Form.PUBLIC
    if op.attributes.get("state"):
        return {4: Form.HEADS}.get(len(op.attributes["shape"]))
    return {2: Form.VECTOR, 3: Form.HIDDEN}.get(len(op.attributes["shape"]))


def _only(*allowed: Form) -> Callable[[Op, list[Form]], Form | None]:
    return lambda op, forms: forms[0] if forms[0] in allowed else None


def _output(op: Op, forms: list[Form]) -> Form | None:
    """Heads leave the program only as its state, which no client unpacks."""
    state = forms[0] is Form.HEADS and not {"factor", "shift", "function"} & set(op.attributes)
    return forms[0] if state or forms[0] in FEATURES else None


def _any(op: Op, forms: list[Form]) -> Form | None:
    return None if forms[0] is Form.PUBLIC else forms[0]


def _binary(op: Op, forms: list[Form]) -> Form | None:
    one, other = forms
    if one is other or other is _SUMMED.get(one):
        return None if one is Form.PUBLIC else one
    return other if one is _SUMMED.get(other) else None


def _constant(op: Op, forms: list[Form]) -> Form | None:
    """A constant is possible only along the features, where packing and tensor agree in order."""
    value = op.attributes["factor" if op.name == "poly.scale" else "value"]
    return _any(op, forms) if not isinstance(value, Symbol) or forms[0] in FEATURES else None


def _scale(op: Op, forms: list[Form]) -> Form | None:
    """A factor for each feature of a head, the same for all heads, is possible too."""
    return forms[0] if forms[0] in (Form.SPLIT, Form.HEADS) else _constant(op, forms)


def _shifted(op: Op, forms: list[Form]) -> Form | None:
    """A shift is impossible in heads: their padding must stay 0, because products sum over it."""
    if forms[0] in (Form.SPLIT, Form.HEADS):
        return None
    return _constant(op, forms) if op.name == "poly.add_constant" else _any(op, forms)


def _over_tokens(op: Op, forms: list[Form]) -> Form | None:
    if op.name == "poly.select" and forms[0] is Form.VECTOR and len(_shape(op.operands[0])) == 3:
        return Form.VECTOR if op.attributes["axis"] == 1 else None  # the only token
    return Form.VECTOR if forms[0] is Form.HIDDEN and op.attributes["axis"] == 1 else None


def _reshape(op: Op, forms: list[Form]) -> Form | None:
    shape, source = _shape(op.value), _shape(op.operands[0])
    rows = (source[0], 1) if forms[0] is Form.VECTOR else source[:2]
    if forms[0] is Form.VECTOR and shape in ((source[0], 1, source[-1]), (source[0], source[-1])):
        return Form.VECTOR
    if forms[0] is Form.HIDDEN and source[1] == 1 and shape == (source[0], source[-1]):
        return Form.VECTOR
    if forms[0] in FEATURES and len(shape) == 4 and shape[:2] == rows:
        return Form.SPLIT
    if forms[0] is Form.SPLIT and shape[-1] == np.prod(source[2:]):
        if shape[:-1] == rows:
            return Form.HIDDEN
        if shape[:-1] == source[:1]:
            return Form.VECTOR
    return None


def _transpose(op: Op, forms: list[Form]) -> Form | None:
    swapped = {Form.SPLIT: Form.HEADS, Form.HEADS: Form.SPLIT}
    return swapped.get(forms[0]) if op.attributes["permutation"] == [0, 2, 1, 3] else None


def _matmul(op: Op, forms: list[Form]) -> Form | None:
    one, other = map(_shape, op.operands)
    if op.attributes["transpose_b"]:
        same = one == (*other[:2], one[2], other[3]) and one[2] in (1, other[2])
        return Form.SCORES if forms == [Form.HEADS] * 2 and same else None
    same = (*one[:2], one[3]) == other[:3]
    return Form.HEADS if forms == [Form.SCORES, Form.HEADS] and same else None


_SINGLE_HEADS = "of single attention heads"
_MEANING = {
    **dict.fromkeys(("poly.row_sum", "poly.center", "poly.square"), "a norm"),
    "poly.linear": "a linear layer",
    "poly.chebyshev": "an activation",
    "poly.scale": "a product with a constant",
    "poly.add_constant": "a sum with a constant",
    "poly.add": "a sum",
    "poly.sub": "a difference",
    "poly.mul": "a product",
    "poly.matmul": "a matrix product outside of attention",
    "poly.mean": "a mean along another axis than the tokens",
    "poly.select": "a choice from another axis than the tokens",
    "poly.repeat": "a copy of heads that no linear layer makes (grouped queries behind a norm)",
    "poly.reshape": RESHAPE,
    "poly.transpose": TRANSPOSITION,
    "poly.rotary": "a rotary embedding outside of the queries and keys of attention",
    "poly.mask_fill": "a mask outside of attention",
    "poly.mask_zero": "a mask outside of attention",
    "poly.output": "an output that has other axes than batch, tokens and features",
    "poly.affine": "an affine map",
}
"""Name of an op in the words of a model."""
_OF_HEADS = ("poly.row_sum", "poly.center", "poly.square", "poly.linear", "poly.chebyshev",
             "poly.add_constant", "poly.scale", "poly.add", "poly.sub", "poly.mul")  # fmt: skip
"""Ops that a model may apply to single attention heads."""
_WHY = {
    **dict.fromkeys(
        ("poly.add", "poly.sub", "poly.mul"),
        "both must lie in the same slots: one token is not copied to all others",
    ),
    **dict.fromkeys(
        ("poly.scale", "poly.add_constant"),
        "a constant tensor may only vary along batch, tokens and features",
    ),
    **dict.fromkeys(
        ("poly.reshape", "poly.transpose"),
        "only the splitting and merging of attention heads is free",
    ),
    "poly.output": "merge heads first, h.transpose(1, 2).flatten(2); scores cannot be returned",
    "poly.mean": "a mean is only packed over the tokens (axis 1)",
    "poly.select": "only a token (axis 1) can be selected; cut a head before it is split off",
    "poly.rotary": "a rotary embedding applies to the queries or keys of attention",
    "poly.matmul": "it multiplies queries with keys, or weights with values, of the same heads",
}
_PASSES = ("poly.affine", "poly.input")
"""Ops that an earlier pass removes."""


def _refused(op: Op, forms: list[Form]) -> AtlasError:
    """Why an op cannot be packed, in the words of a model."""
    what, why = _MEANING.get(op.name, op.name), _WHY.get(op.name)
    if op.name == "poly.matmul" and forms == [Form.HEADS] * 2:
        queries, keys = (_shape(one)[2] for one in op.operands)
        if queries != keys:
            what = "attention to another number of tokens"
            why = f"{queries} queries attend to {keys} keys; one query, or as many as keys, can"
    elif forms[:1] and forms[0] in (Form.SPLIT, Form.HEADS) and op.name in _OF_HEADS:
        what = f"{what} {_SINGLE_HEADS}"
    elif forms[:1] == [Form.SCORES] and op.name == "poly.add_constant":
        what = "a bias of attention scores (relative positions)"
    elif forms[:1] == [Form.SCORES] and op.name in ("poly.reshape", "poly.transpose"):
        what = "what reads attention scores beside a softmax"
    shapes = ", ".join(f"%{v.name} {f.value}" for v, f in zip(op.operands, forms))
    inside = f"{op.name} has no packed form" + (f" on {shapes}" if shapes else "")
    return AtlasError(
        f"{what} cannot be compiled yet",
        where=op.location,
        why="; ".join(part for part in (why, inside) if part),
        remedy="run expand, normalise-affine, fold-features and assign-scales before pack"
        if op.name in _PASSES
        else written("" if Form.SCORES in forms else what),
    )


RULES: dict[str, Callable[[Op, list[Form]], Form | None]] = {
    "poly.input": _input,
    "poly.output": _output,
    **dict.fromkeys(("poly.linear", "poly.center"), _only(*FEATURES)),
    **dict.fromkeys(("poly.add", "poly.sub", "poly.mul"), _binary),
    **dict.fromkeys(("poly.square", "poly.double"), _any),
    **dict.fromkeys(("poly.add_constant", "poly.chebyshev"), _shifted),
    "poly.scale": _scale,
    "poly.row_sum": lambda op, forms: _SUMMED.get(forms[0]),
    **dict.fromkeys(("poly.mean", "poly.select"), _over_tokens),
    "poly.reshape": _reshape,
    "poly.transpose": _transpose,
    **dict.fromkeys(("poly.rotary", "poly.at_tokens"), _only(Form.HEADS)),
    "poly.matmul": _matmul,
    **dict.fromkeys(("poly.mask_fill", "poly.mask_zero"), _only(Form.SCORES)),
}
