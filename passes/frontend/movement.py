"""Undoes movements of axes, so that modules are written in the order batch, tokens, features.

A model may put tokens first, merge batch and heads into one axis, or cut queries, keys and values
out of one linear layer. The effect of such ops is not derived from their names: an array of element
numbers goes through them, and shows which element of an earlier value, the *base*, each element is.
Ops on single elements or on features then work on the base, and a choice of features becomes a
choice of rows of the weight before it.
"""

from __future__ import annotations

import math

import numpy as np

from atlasc.ir.arrays.lazy import is_uniform
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.ops.names import OpName
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.chosen import layer_of
from atlasc.passes.frontend.moved import Moved, is_plain, itself, moved_to, numbers

MOVES = ("nn.reshape", "nn.transpose", "nn.select")
HEADS_FIRST = [0, 2, 1, 3]
ELEMENTS = {"nn.encrypt", *(f"nn.{name}" for name in ACTIVATIONS)}
FEATURES = ("nn.linear", "nn.layer_norm", "nn.rms_norm")


def in_usual_order(module: Module) -> Module:
    """An nn module whose values are [batch, tokens, features] or [batch, heads, tokens, width].

    A module in this form already is returned unchanged.

    Raises:
        AtlasError: the inputs of a batch are mixed, or their axis does not stay the first axis.
    """
    if not _left(module):
        return _batch_first(module)
    first = _tried(module)
    if isinstance(first, Module) and not _left(first):
        return first
    second = _tried(module, tokens_last=True)
    found = [one for one in (first, second) if isinstance(one, Module)]
    if isinstance(first, AtlasError) and not found:
        raise first
    return min(found, key=_left)


def _tried(module: Module, tokens_last: bool = False) -> Module | AtlasError:
    """The module in the usual order, or why not."""
    try:
        return _batch_first(_Mover(module, tokens_last).run())
    except AtlasError as refused:
        return refused


def _left(module: Module) -> int:
    """How many ops move data in a way that is not the splitting or merging of heads."""
    return sum(map(_is_unusual, module.ops))


def _is_unusual(op: Op) -> bool:
    if op.result is not None and op.value.tensor.side == "client":
        return False  # the client may compute anything
    if op.name == "nn.transpose":
        return op.attributes["permutation"] not in (HEADS_FIRST, [0, 1, 3, 2])
    if op.name == "nn.reshape":
        return len(op.value.tensor.shape) > 4 or _mixes(op)
    if op.name == "nn.linear":
        return len(op.value.tensor.shape) > 3
    if op.name in ("nn.matmul", "nn.mean", "nn.select"):
        return (
            op.attributes.get("axis", 1) != 1
            or len(op.operands[0].tensor.shape) < 3
            or (op.name == "nn.matmul" and len(op.value.tensor.shape) == 3)
        )
    return op.name in (*ELEMENTS, "nn.add_constant") and _is_attended(op.value)


def _is_attended(value: Value) -> bool:
    """Whether it is [batch, heads, tokens, width], made of attention's result alone."""
    while len(value.tensor.shape) == 4 and value.op.operands:
        if value.op.name == "nn.matmul":
            return value.op.operands[0].op.name == "nn.softmax"
        value = value.op.operands[0]
    return False


def _mixes(op: Op) -> bool:
    """Whether an op moves the batch, the first axis, to another place."""
    first = op.operands[0].tensor.shape[0] if op.operands else 0
    if op.name == "nn.reshape":
        return op.value.tensor.shape[0] != first
    if op.name == "nn.transpose":
        return bool(op.attributes["permutation"][0] != 0)
    if op.name in ("nn.repeat", "nn.select", "nn.mean"):
        return bool(op.attributes["axis"] == 0)
    return False


def _batch_first(module: Module) -> Module:
    """The module, if the batch stays its first axis."""
    for op in module.ops:
        if op.name == "nn.encrypt" and len(op.value.tensor.shape) not in (2, 3):
            raise AtlasError(
                "what is encrypted is neither [batch, tokens, features] nor [batch, features]",
                where=op.location,
                why=f"it is {list(op.value.tensor.shape)}",
                remedy="let forward take x so, and give such data: x.reshape(len(x), tokens, -1)",
            )
    for op in filter(_mixes, module.ops):
        raise AtlasError(
            f"{op.name} mixes the inputs of a batch, or moves their axis",
            where=op.location,
            why=f"from {list(op.operands[0].tensor.shape)} to {list(op.value.tensor.shape)}, where "
            "the first axis counts inputs",
            remedy="keep the batch as the first axis: x.flatten(1), x.mean(1), q @ k.mT of [batch, "
            "heads, tokens, width], nn.MultiheadAttention(..., batch_first=True)",
        )
    return module


class _Mover:
    """Rewrites one module. ``tokens_last``: what is encrypted may be [batch, features, tokens]."""

    def __init__(self, module: Module, tokens_last: bool = False) -> None:
        self.module, self.rewriter, self.tokens_last = module, Rewriter(module), tokens_last
        self.batch = min((op.attributes["shape"][0] for op in module.inputs), default=1)
        self.moved: dict[Value, Moved] = {}
        self._encrypted: dict[Value, Value] = {}

    def run(self) -> Module:
        last = {value: op for op in self.module.ops for value in op.operands}
        for op in self.module.ops:
            found = self._rule(op)
            if op.result is not None and found is not None:
                self.moved[op.value] = found
            for value in {*op.operands}:
                if last[value] is op:  # its numbers may be megabytes
                    del self.moved[value]
        return without_dead_ops(self.rewriter.module)

    def _rule(self, op: Op) -> Moved | None:
        if op.name in MOVES:
            return self._move(op, self.moved[op.operands[0]])
        by_feature = self._by_feature(op)
        if op.name in ELEMENTS or by_feature is False:
            return self._on_elements(op)
        if op.name in FEATURES or by_feature:
            return self._cut(op) or self._on_features(op)
        if op.name in ("nn.add", "nn.mul", "nn.sub"):
            return self._on_both(op)
        if op.name == "nn.matmul":
            return self._matmul(op)
        if op.name == "nn.mean":
            return self._mean(op)
        return self._plain(op)

    def _by_feature(self, op: Op) -> bool | None:
        """Whether a constant differs by feature and by nothing else; False for a number."""
        if op.name not in ("nn.scale", "nn.add_constant"):
            return None
        number = op.attributes["factor" if op.name == "nn.scale" else "value"]
        if not isinstance(number, Symbol):
            return False
        extents = self.module.symbols[number.name].shape
        alone = extents[-1:] == op.value.tensor.shape[-1:] and set(extents[:-1]) <= {1}
        return True if alone else None

    def _add(self, op: Op, operands: list[Value], attributes: dict | None = None) -> Value:
        given = op.attributes if attributes is None else attributes
        return self.rewriter.module.add(op.name, operands, given, op.location)

    def _other(self, like: Value, name: OpName, operand: Value, **attributes: object) -> Value:
        return self.rewriter.module.add(name, [operand], attributes, like.op.location)

    def _plain(self, op: Op) -> Moved | None:
        value = self.rewriter.copy(op, [self.written(operand) for operand in op.operands])
        return None if op.result is None else itself(value)

    def _move(self, op: Op, of: Moved) -> Moved:
        given, index = op.attributes, of.index
        if op.name == "nn.reshape":
            index = index.reshape(given["shape"])
        elif op.name == "nn.transpose":
            index = index.transpose(given["permutation"])
        else:
            index = np.take(index, given["index"], axis=given["axis"])
        return Moved(of.base, index, None if of.moves is None else (*of.moves, op))

    def _cut(self, op: Op) -> Moved | None:
        """A choice of features of single heads moves them; one of tokens is no movement."""
        if op.name != "nn.linear" or len(op.value.tensor.shape) < 4 or "bias" in op.attributes:
            return None
        weight = self.module.symbols[op.attributes["weight"].name]
        chosen = None if is_uniform(weight) else weight.argmax(axis=1)
        if chosen is None or not np.array_equal(weight, np.eye(weight.shape[1])[chosen]):
            return None
        of = self.moved[op.operands[0]]
        moves = None if of.moves is None else (*of.moves, op)
        return Moved(of.base, of.index[..., chosen], moves)

    def _on_elements(self, op: Op) -> Moved:
        of = self.moved[op.operands[0]]
        if not of.whole:
            of = self._compact(of) or of
        if not of.whole:
            of = itself(self.written(op.operands[0]))
        if op.name == "nn.encrypt":
            turned = Moved(of.base, of.index.swapaxes(1, -1))
            if self._rows(of) is None and not (self.tokens_last and self._rows(turned)):
                # tokens are an axis of the value, not of the base
                of = itself(self.written(op.operands[0]))
            if of.base not in self._encrypted:
                self._encrypted[of.base] = self._add(op, [of.base])
            return Moved(self._encrypted[of.base], of.index, of.moves)
        return Moved(self._add(op, [of.base]), of.index, of.moves)

    def _on_features(self, op: Op) -> Moved | None:
        of = self._rows(self.moved[op.operands[0]])
        if of is None or not of.whole:
            return self._plain(op)
        value = self._add(op, [of.base])
        width, features = of.base.tensor.shape[-1], value.tensor.shape[-1]
        rows = of.index[..., :1] // width
        return moved_to(value, rows * features + np.arange(features))

    def _on_both(self, op: Op) -> Moved | None:
        one, other = (self.moved[operand] for operand in op.operands)
        if one.index.shape == other.index.shape:
            pairs = [(one, other), (self._rows(one), self._rows(other))]
            for a, b in pairs:
                if a is None or b is None or not (a.whole and b.whole):
                    continue
                if a.base.tensor.shape == b.base.tensor.shape and np.array_equal(a.index, b.index):
                    return moved_to(self._add(op, [a.base, b.base]), a.index)
        return self._plain(op)

    def _matmul(self, op: Op) -> Moved | None:
        """A product with batch and heads as two axes, and keys as [batch, heads, tokens, width]."""
        of, transposed = self.moved[op.operands[1]], op.attributes["transpose_b"]
        if len(op.value.tensor.shape) == 4:
            heads = self._heads(of)
            if heads is None and (turned := self._heads(Moved(of.base, of.index.swapaxes(-1, -2)))):
                heads, transposed = turned, not transposed
            if heads is None:
                return self._plain(op)
            operands = [self.written(op.operands[0]), heads]
            made = itself(self._add(op, operands, {**op.attributes, "transpose_b": transposed}))
            return made if transposed else self._tokens(made)  # heads merge before what follows
        if len(op.value.tensor.shape) != 3 or any(len(v.tensor.shape) != 3 for v in op.operands):
            return self._plain(op)
        apart = []
        for operand in op.operands:
            of = self.moved[operand]
            first, *rest = of.index.shape
            index = of.index.reshape(self.batch, first // self.batch, *rest)
            split = self._heads(Moved(of.base, index))
            apart.append(split or self._reshaped(operand, self.written(operand), index.shape))
        value = self._add(op, apart)
        return Moved(value, numbers(value).reshape(op.value.tensor.shape))

    def _reshaped(self, like: Value, value: Value, shape: tuple[int, ...]) -> Value:
        return self._other(like, "nn.reshape", value, shape=list(shape))

    def _mean(self, op: Op) -> Moved | None:
        """A mean along the tokens, whichever axis they are."""
        of, axis = self.moved[op.operands[0]], op.attributes["axis"]
        if of.index.ndim == 3 and axis < 2:
            rows = self._rows(Moved(of.base, np.moveaxis(of.index, axis, 1)))
            if rows is not None and rows.base.tensor.shape == rows.index.shape and is_plain(rows):
                masks = [self.written(mask) for mask in op.operands[1:]]
                value = self._add(op, [rows.base, *masks], {**op.attributes, "axis": 1})
                return itself(value)
        return self._plain(op)

    def written(self, value: Value) -> Value:
        """The value itself, written in the new module."""
        of = self.moved[value]
        if is_plain(of) and of.base.tensor.shape == value.tensor.shape:
            return of.base
        result = self._heads(of) if of.index.ndim == 4 else self._hidden(of)
        if result is None and is_plain(of):
            result = self._reshaped(value, of.base, value.tensor.shape)
        if result is None and of.moves is None:
            result = self._channels_first(value, of)
        if result is None and of.moves is None:
            raise AtlasError(
                f"{value.op.name} moves data in a way that cannot be packed",
                where=value.op.location,
                why=f"a value {list(value.tensor.shape)} mixes tokens and features of "
                f"{list(of.base.tensor.shape)}",
                remedy="keep batch, tokens and features apart; only attention heads are split and "
                "merged. nn.MultiheadAttention and nn.TransformerEncoder expect tokens first, "
                "unless they are made with batch_first=True",
            )
        if result is None:
            result = of.base
            for op in of.moves or ():
                result = self._add(op, [result])
        self.moved[value] = itself(result)
        return result

    def _channels_first(self, value: Value, of: Moved) -> Value | None:
        """A value [batch, features, ...] of the client, made of [batch, positions, features]."""
        base, turned = of.base, numbers(of.base).swapaxes(1, -1)
        first = base.tensor.side == "client" and len(base.tensor.shape) == 3 and of.whole
        if not first or not np.array_equal(of.index.ravel(), turned.ravel()):
            return None
        result = self._other(value, "nn.transpose", base, permutation=[0, 2, 1])
        return self._reshaped(value, result, value.tensor.shape)

    def _hidden(self, of: Moved) -> Value | None:
        """A value of the form [batch, tokens, features], or [batch, features] for one token."""
        rows = self._rows(of)
        if rows is None or of.index.ndim not in (2, 3):
            return None
        if is_plain(rows) and rows.base.tensor.shape == of.index.shape:
            return rows.base
        *extents, width = rows.base.tensor.shape
        tokens = math.prod(extents[1:])
        token = (
            rows.index[..., 0].ravel() // width - np.arange(extents[0]) * tokens
            if rows.index[..., 0].size == extents[0]
            else np.array([-1])
        )
        if (token != token[0]).any() or not 0 <= token[0] < tokens:
            return None
        one = rows.base
        if tokens == 1:
            return self._reshaped(one, one, of.index.shape)
        if len(rows.base.tensor.shape) == 3:
            one = self._other(one, "nn.select", one, axis=1, index=int(token[0]))
        if of.index.ndim == 3:
            one = self._reshaped(one, one, of.index.shape)
        return one

    def _heads(self, of: Moved) -> Value | None:
        """A value of the form [batch, heads, tokens, width]: features that are split into heads."""
        if is_plain(of) and of.base.tensor.shape == of.index.shape:
            return of.base
        batch, heads, tokens, width = of.index.shape
        together = of.index.transpose(HEADS_FIRST).reshape(batch, tokens, heads * width)
        rows = self._rows(Moved(of.base, together))
        if rows is None or not is_plain(rows):
            return None
        vector = tokens == 1 and rows.base.tensor.shape == (batch, heads * width)
        if not vector and rows.base.tensor.shape != together.shape:
            return None
        split = self._reshaped(rows.base, rows.base, (batch, tokens, heads, width))
        return self._other(rows.base, "nn.transpose", split, permutation=HEADS_FIRST)

    def _rows(self, of: Moved) -> Moved | None:
        """The same value as rows of [batch, tokens, features]; None if a row has several tokens."""
        of = self._tokens(of)
        base, index = of.base, of.index
        if len(base.tensor.shape) not in (2, 3) or index.ndim < 2:
            return None
        features = base.tensor.shape[-1]
        rows, chosen = index // features, index % features
        first = chosen.reshape(-1, chosen.shape[-1])[0]
        if (rows != rows[..., :1]).any() or (chosen != first).any():
            return None
        if not np.array_equal(first, np.arange(features)):
            base = self._chosen(base, first)
        return moved_to(base, rows * len(first) + np.arange(len(first)))

    def _compact(self, of: Moved) -> Moved | None:
        """The same value, in terms of only the features that it has."""
        of = self._tokens(of)
        if len(of.base.tensor.shape) not in (2, 3):
            return None
        features = of.base.tensor.shape[-1]
        rows, chosen = of.index // features, of.index % features
        kept = np.unique(chosen)
        base = self._chosen(of.base, kept)
        return moved_to(base, rows * len(kept) + np.searchsorted(kept, chosen))

    def _tokens(self, of: Moved) -> Moved:
        """The same value in terms of [batch, tokens, features], for a base [batch, heads, tokens,
        width]."""
        base, index = of.base, of.index
        if len(base.tensor.shape) != 4:
            return of
        batch, heads, tokens, width = base.tensor.shape
        b, h, t, w = np.unravel_index(index, base.tensor.shape)
        turned = self._other(base, "nn.transpose", base, permutation=HEADS_FIRST)
        merged = self._other(base, "nn.reshape", turned, shape=[batch, tokens, heads * width])
        return Moved(merged, ((b * tokens + t) * heads + h) * width + w)

    def _chosen(self, value: Value, features: np.ndarray) -> Value:
        """Some features, by a linear layer."""
        module = self.rewriter.module
        chosen = features.tolist()
        operand, arrays = layer_of(value, chosen, module.symbols, module.constant)
        return self.rewriter.module.add("nn.linear", [operand], arrays, value.op.location)
