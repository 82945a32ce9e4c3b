"""Small random Transformers as nn modules, with approximations whose ranges fit their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.ops.masks import keep_mask, log_hidden
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    NormApproximation,
    SoftmaxApproximation,
)


@dataclass(frozen=True)
class Shape:
    """What to build.

    Attributes:
        batch, tokens, heads, width, hidden: extents; the features are heads · width.
        layers: Transformer blocks.
        pre_norm: norms before (ViT, LLaMA) or after (BERT) the residual additions.
        rms: RMSNorm and rotary embeddings, and a gated SiLU MLP, as in LLaMA.
        causal, mask: a causal mask, a padding mask given as a public input.
        classes: 0 for the hidden states as output, else a classifier on one token.
        token: the token that it reads, modulo their number.
        mean: the mean over the tokens, of those that the mask keeps, is an output too.
        bias: the axes (h: heads, q: queries, k: keys) along which a constant that is added to the
            scores varies; empty for none. With "slopes" and a mask it is by the place of a key.
        key_norm: an RMS norm of queries and of keys: of each head, of all features, or none if
            empty.
        final_norm: where norms come before: whether one follows the last block.
    """

    batch: int = 1
    tokens: int = 5
    heads: int = 2
    width: int = 4
    hidden: int = 12
    layers: int = 1
    pre_norm: bool = True
    rms: bool = False
    causal: bool = False
    mask: bool = False
    classes: int = 3
    token: int = 0
    mean: bool = False
    bias: str = ""
    key_norm: Literal["", "heads", "features"] = ""
    final_norm: bool = True

    @property
    def features(self) -> int:
        """Features of the hidden state."""
        return self.heads * self.width


SHAPES = {
    "encoder": Shape(layers=2, batch=3, mask=True, pre_norm=False, classes=0),
    "vision": Shape(layers=2, batch=3, classes=3),
    "pooled": Shape(layers=2, batch=3, mask=True, mean=True),
    "biased": Shape(layers=2, batch=3, mask=True, heads=3, bias="hqk"),
    "decoder": Shape(layers=2, batch=3, rms=True, causal=True, mask=True, classes=0),
}


class Builder:
    """Builds the nn module of a shape with weights from a seed."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape, self.rng = shape, np.random.default_rng(seed)
        self.module = Module("small", "nn")

    def build(self) -> Module:
        shape, module = self.shape, self.module
        extents = [shape.batch, shape.tokens, shape.features]
        x = module.add(
            "nn.input", [], {"name": "x", "shape": extents, "side": "client", "dtype": "f64"}
        )
        self.mask: list[Value] = []
        if shape.mask:
            attributes = {
                "name": "mask",
                "shape": [shape.batch, shape.tokens],
                "side": "public",
                "dtype": "f64",
            }
            self.mask = [module.add("nn.input", [], attributes)]
        x = module.add("nn.encrypt", [x], name="embedded")
        for layer in range(shape.layers):
            x = self._block(x, f"layer.{layer}")
        if shape.pre_norm and shape.final_norm:
            x = self._norm(x, "final")
        if shape.mean:
            mean = module.add("nn.mean", [x, *self.mask], {"axis": 1}, "pooler")
            module.add("nn.output", [mean], {"name": "mean"})
        if shape.classes:
            index = shape.token % shape.tokens
            x = module.add("nn.select", [x], {"axis": 1, "index": index}, "head")
            x = self._linear(x, shape.classes, "head")
        module.add("nn.output", [x], {"name": "y"})
        return module

    def _block(self, x: Value, place: str) -> Value:
        if self.shape.pre_norm:
            x = self._add(x, self._attention(self._norm(x, f"{place}.norm1"), place), place)
            return self._add(x, self._mlp(self._norm(x, f"{place}.norm2"), place), place)
        x = self._norm(self._add(x, self._attention(x, place), place), f"{place}.norm1")
        return self._norm(self._add(x, self._mlp(x, place), place), f"{place}.norm2")

    def _add(self, a: Value, b: Value, place: str) -> Value:
        return self.module.add("nn.add", [a, b], {}, place)

    def _linear(self, x: Value, outputs: int, place: str) -> Value:
        inputs = x.tensor.shape[-1]
        weight = self.rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
        bias = 0.1 * self.rng.normal(size=outputs)
        attributes = {
            "weight": self.module.constant(f"{place}.weight", weight),
            "bias": self.module.constant(f"{place}.bias", bias),
        }
        return self.module.add("nn.linear", [x], attributes, place)

    def _norm(self, x: Value, place: str) -> Value:
        attributes = {
            "gamma": self.module.constant(
                f"{place}.gamma", self.rng.uniform(0.5, 1.5, size=self.shape.features)
            ),
            "epsilon": 1e-5,
        }
        if self.shape.rms:
            return self.module.add("nn.rms_norm", [x], attributes, place)
        beta = 0.1 * self.rng.normal(size=self.shape.features)
        attributes["beta"] = self.module.constant(f"{place}.beta", beta)
        return self.module.add("nn.layer_norm", [x], attributes, place)

    def _rms_norm(self, x: Value, place: str) -> Value:
        gamma = self.rng.uniform(0.5, 1.5, size=x.tensor.shape[-1])
        attributes = {"gamma": self.module.constant(f"{place}.gamma", gamma), "epsilon": 1e-5}
        return self.module.add("nn.rms_norm", [x], attributes, place)

    def _heads(self, x: Value, place: str, rotary: bool) -> Value:
        shape, add = self.shape, self.module.add
        y = self._linear(x, shape.features, place)
        normed = "" if place.endswith("value") else shape.key_norm
        if normed == "features":
            y = self._rms_norm(y, f"{place}.norm")
        extents = [shape.batch, shape.tokens, shape.heads, shape.width]
        y = add("nn.reshape", [y], {"shape": extents}, place)
        if normed == "heads":
            y = self._rms_norm(y, f"{place}.norm")
        y = add("nn.transpose", [y], {"permutation": [0, 2, 1, 3]}, place)
        if rotary:
            angles = np.outer(np.arange(shape.tokens), 1.0 / (1 + np.arange(shape.width // 2)))
            both = np.concatenate([angles, angles], axis=1)
            tables = {
                "cos": self.module.constant(f"{place}.cos", np.cos(both)),
                "sin": self.module.constant(f"{place}.sin", np.sin(both)),
            }
            y = add("nn.rotary", [y], tables, place)
        return y

    def _attention(self, x: Value, place: str) -> Value:
        shape, add, place = self.shape, self.module.add, f"{place}.attention"
        q, k, v = (
            self._heads(x, f"{place}.{name}", shape.rms and name != "value")
            for name in ("query", "key", "value")
        )
        scores = add("nn.matmul", [q, k], {"transpose_b": True}, place)
        scores = add("nn.scale", [scores], {"factor": 1 / np.sqrt(shape.width)}, place)
        if shape.bias == "slopes" and self.mask:
            slopes = self.module.constant(f"{place}.slopes", self.rng.normal(size=shape.heads))
            scores = add("nn.add_positions", [scores, *self.mask], {"slopes": slopes}, place)
        elif shape.bias:
            extents = {"h": shape.heads, "q": shape.tokens, "k": shape.tokens}
            drawn = [extents[axis] if axis in shape.bias else 1 for axis in extents]
            value = self.module.constant(f"{place}.bias", self.rng.normal(size=drawn))
            scores = add("nn.add_constant", [scores], {"value": value}, place)
        p = add("nn.softmax", [scores, *self.mask], {"causal": shape.causal}, place)
        y = add("nn.matmul", [p, v], {"transpose_b": False}, place)
        y = add("nn.transpose", [y], {"permutation": [0, 2, 1, 3]}, place)
        extents = [shape.batch, shape.tokens, shape.features]
        y = add("nn.reshape", [y], {"shape": extents}, place)
        return self._linear(y, shape.features, f"{place}.output")

    def _mlp(self, x: Value, place: str) -> Value:
        shape, add, place = self.shape, self.module.add, f"{place}.mlp"
        up = self._linear(x, shape.hidden, f"{place}.up")
        if shape.rms:
            gate = add("nn.silu", [self._linear(x, shape.hidden, f"{place}.gate")], {}, place)
            up = add("nn.mul", [gate, up], {}, place)
        else:
            up = add("nn.gelu", [up], {}, place)
        return self._linear(up, shape.features, f"{place}.down")


class Grouped(Builder):
    """Two query heads share each key head and value head."""

    def _heads(self, x: Value, place: str, rotary: bool) -> Value:
        if place.endswith("query"):
            return super()._heads(x, place, rotary)
        shape, add = self.shape, self.module.add
        y = self._linear(x, shape.features // 2, place)
        extents = [shape.batch, shape.tokens, shape.heads // 2, shape.width]
        y = add("nn.reshape", [y], {"shape": extents}, place)
        y = add("nn.transpose", [y], {"permutation": [0, 2, 1, 3]}, place)
        return add("nn.repeat", [y], {"axis": 1, "repeats": 2}, place)


def inputs_for(shape: Shape, seed: int) -> dict[str, np.ndarray]:
    """Random inputs; with a mask, sentences of different lengths."""
    rng = np.random.default_rng(seed)
    inputs = {"x": rng.normal(size=(shape.batch, shape.tokens, shape.features))}
    if shape.mask:
        lengths = rng.integers(1, shape.tokens + 1, size=shape.batch)
        inputs["mask"] = (np.arange(shape.tokens) < lengths[:, None]).astype(float)
    return inputs


def arguments(module: Module, arrays: dict[str, np.ndarray]) -> dict[Op, np.ndarray]:
    """What each nonlinear op is a function of, by hand, without masked scores."""
    values: dict[Value, np.ndarray] = {}

    def observe(op: Op, result: np.ndarray) -> None:
        values[op.value] = result

    interpret(module, arrays, observe=observe)
    found = {}
    for op in module.ops:
        if not op.definition.nonlinear:
            continue
        x = values[op.operands[0]]
        if op.name == "nn.softmax":
            mask = values[op.operands[1]] if len(op.operands) > 1 else None
            keep = keep_mask(op.site(module.symbols), x, mask)
            x = x if keep is None else x[np.broadcast_to(keep, x.shape)]
        elif op.name == "nn.layer_norm":
            x = x.var(axis=-1) + op.attributes["epsilon"]
        elif op.name == "nn.rms_norm":
            x = np.square(x).mean(axis=-1) + op.attributes["epsilon"]
        found[op] = x
    return found


def _softmax(scores: np.ndarray, keep: np.ndarray) -> dict[str, object]:
    """Iterative softmax whose ranges fit the scores."""
    iterations = [5, 4]
    scores = scores + 2 ** (len(iterations) - 1) * log_hidden(scores, keep)
    shift = float(scores.max()) + 0.5
    y = np.where(keep, np.exp((scores - shift) / 2 ** len(iterations)), 0.0)
    ranges = []
    for _ in iterations:
        total = np.square(y).sum(axis=-1, keepdims=True)
        ranges.append((0.5 * float(total.min()), 1.5 * float(total.max())))
        y = np.square(y / np.sqrt(total))
    return SoftmaxApproximation(tuple(iterations), shift, sum_ranges=tuple(ranges))


def approximate(module: Module, inputs: dict[str, np.ndarray], degree: int = 15) -> None:
    """Attach approximations with generous ranges measured on the inputs (in place)."""
    ranges: dict[Op, tuple[float, float]] = {}

    seen: dict[Value, np.ndarray] = {}

    def observe(op: Op, result: np.ndarray) -> None:
        if op.result is not None:
            seen[op.result] = result

    interpret(module, inputs, observe=observe)
    for op in module.ops:
        if not op.definition.nonlinear:
            continue
        x = seen[op.operands[0]]
        if op.name == "nn.softmax":
            mask = seen[op.operands[1]] if len(op.operands) > 1 else None
            keep = keep_mask(op.site(module.symbols), x, mask)
            keep = np.ones(x.shape, bool) if keep is None else keep
            op.attributes["approximation"] = _softmax(x, keep)
            continue
        if op.name == "nn.layer_norm":
            x = x.var(axis=-1) + op.attributes["epsilon"]
        elif op.name == "nn.rms_norm":
            x = np.square(x).mean(axis=-1) + op.attributes["epsilon"]
        low, high = float(x.min()), float(x.max())
        if op.name.endswith("norm"):
            low, high = 0.5 * low, 1.5 * high
        else:
            low, high = low - 0.5, high + 0.5
        ranges[op] = (low, high)
        kind = NormApproximation if op.name.endswith("norm") else ActivationApproximation
        op.attributes["approximation"] = kind(degree, (low, high))
