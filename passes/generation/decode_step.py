"""``decode-step``: the program of one token, beside keys and values that the server keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS, observed
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import without_dead_ops
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.generation.token_program import TokenProgram, without_bound
from atlasc.passes.lowering.token_rows import CONSTANTS, MASKS, axes_of, kind_of, row_shape


@dataclass(frozen=True)
class DecodeStep(Pass):
    """Turn a causal decoder of a window of tokens into the step of one of its tokens.

    Each op that works on each token alone works on one row. Keys and values become state: inputs
    ``keys.0``, ``values.0``, ... [batch, heads, tokens, width] that are zero at later tokens, and
    outputs of the same names with the row of this token added. The public input ``position`` marks
    the token. The public mask of the decoder marks the tokens up to it, or those that its attention
    looks back on (:func:`attention_window`): the query sees their keys. The client embeds a whole
    window and encrypts the row at the position.

    The polynomials are those of the window, whose ranges were calibrated on all tokens: the step
    computes the same numbers. So a magnitude stays an upper bound.

    Attributes:
        first: the least position of a token. A constant may differ from token to token before it,
            as the factors of tokens that stand out do: the window of the prompt computes these
            tokens.
    """

    name = "decode-step"
    takes = ("nn", "poly")
    keeps = (MAGNITUDES, NOISE_GAINS)
    first: int = 0

    def run(self, module: Module, report: Report) -> Module:
        """Nn or poly module of a window to a module of the same level.

        Raises:
            AtlasError: the module is no causal decoder with a public mask, or an op mixes tokens in
                another way than attention does.
        """
        step = _Step(module, self.first)
        result = without_dead_ops(step.run())
        caches = len(step.caches)
        report.say(f"one token of {step.tokens}; {caches} tensors of keys and values are kept")
        return result


def attention_window(module: Module) -> int | None:
    """How many tokens the attention of a decoder's window of tokens looks back, its own one
    included; None if it sees all. The public mask of each step keeps these.

    Raises:
        AtlasError: its layers look back differently far.
    """
    seen = {
        op.attributes.get("window"): op
        for op in module.ops
        if kind_of(op) in ("softmax", *MASKS) and op.attributes.get("causal")
    }
    if len(seen) > 1:
        raise _differently_far(next(op for back, op in seen.items() if back))
    return next(iter(seen), None)


def _differently_far(op: Op) -> AtlasError:
    return AtlasError(
        "the attention cannot be computed for one token",
        where=op.location,
        why="its layers look back differently far, and all layers of a step have one public mask",
        remedy="generation is for decoders whose layers all have the same sliding window, or none",
    )


def kept_values(module: Module, first: int = 0) -> dict[str, Value]:
    """Name of keys or values of the step -> the value of the window whose rows they are.

    Args:
        module, first: the window and the attribute of :class:`DecodeStep`.

    Raises:
        AtlasError: as the pass.
    """
    step = _Step(module, first)
    step.run()
    return step.kept


class _Step(TokenProgram):
    """Rewrites a module.

    Attributes:
        tokens: tokens of the window.
        axes: value of the window -> its axis of the tokens, where one row of it is computed.
        caches: keys or values of the window -> keys or values up to this token.
        kept: names of the state -> keys or values of the window.
    """

    def __init__(self, module: Module, first: int) -> None:
        super().__init__(module, first)
        self.tokens = 0
        self.axes: dict[Value, int] = {}
        self.caches: dict[Value, Value] = {}
        self.kept: dict[str, Value] = {}
        self._windows = set[int | None]()
        self._outputs: list[tuple[Op, str, Value]] = []
        self._counts = {"keys": 0, "values": 0}

    def run(self) -> Module:
        module = self.rewriter.source
        for op in module.ops:
            if self._begins(op):
                self._first_row(op)
            elif op.result is not None and op.value.tensor.side != "server":
                self.rewriter.copy(op)
            elif op.result is None:
                self._output(op)
            else:
                self._row(op)
        for like, name, value in self._outputs:
            self.add(like, "output", [value], {"name": name})
        if not self.caches:
            raise AtlasError(
                f"@{module.name} has no attention to keep keys and values of",
                remedy="generation is for decoders",
            )
        return self.finished()

    def _begins(self, op: Op) -> bool:
        """Whether an op makes what the client encrypts."""
        given = kind_of(op) == "input" and op.attributes["side"] == "server"
        return given or op.name == "nn.encrypt"

    def _first_row(self, op: Op) -> None:
        shape = op.value.tensor.shape
        if len(shape) != 3 or self.tokens not in (0, shape[1]):
            raise AtlasError(
                f"the encrypted input {op.value.name} has shape {shape}",
                where=op.location,
                why="a step takes one token of [batch, tokens, features]",
            )
        self.tokens = shape[1]
        if not 0 <= self.first < self.tokens:
            raise AtlasError(
                f"the step cannot begin at token {self.first}",
                where=op.location,
                why=f"the tokens of the window are 0 to {self.tokens - 1}",
            )
        if op.name == "nn.encrypt":
            window = self.rewriter.values[op.operands[0]]
            position = self.position(op, shape[0], self.tokens)
            row = self.add(op, "mean", [window, position], {"axis": 1}, "row")
            self.rewriter.copy(op, [row])
        else:
            self.rewriter.copy(op, [], {**op.attributes, "shape": [shape[0], shape[2]]})
        self.axes[op.value] = 1

    def _output(self, op: Op) -> None:
        rank, attributes = len(op.operands[0].tensor.shape), dict(op.attributes)
        for name in op.chosen("factor", "shift"):
            attributes[name] = self.constant(op, attributes[name], rank, 1)
        self.rewriter.copy(op, None, attributes)

    def _row(self, op: Op) -> None:
        axis, axes = self._axes(op)
        kind, attributes = kind_of(op), without_bound(op.attributes)
        operands = [
            self._kept(op, operand) if at is None else self.rewriter.values[operand]
            for operand, at in zip(op.operands, axes, strict=True)
        ]
        if kind == "reshape":
            attributes["shape"] = list(row_shape(op.value.tensor.shape, axis))
        elif kind == "rotary":
            operands.append(self.position(op, op.value.tensor.shape[0], self.tokens))
        elif kind in ("softmax", *MASKS):
            attributes = self._visible(op, attributes)
        for name in op.chosen(*CONSTANTS.get(kind, ())) if kind != "rotary" else ():
            rank = len(op.value.tensor.shape)
            attributes[name] = self.constant(op, attributes[name], rank, axis)
        self.axes[op.value] = axis
        self.rewriter.values[op.value] = self.rewriter.module.add(
            op.name, operands, attributes, op.location, op.value.name
        )

    def _axes(self, op: Op) -> tuple[int, list[int | None]]:
        """Axis of the tokens of a result, and of the operands of which one row is read."""
        for axis in (1, 2):
            axes = axes_of(op, axis) if axis < len(op.value.tensor.shape) else None
            if axes is None:
                continue
            rows = zip(op.operands, axes, strict=True)
            if all(at is None or self.axes.get(operand) == at for operand, at in rows):
                return axis, axes
        raise AtlasError(
            f"{op.name} cannot be computed for one token",
            where=op.location,
            why="it reads several tokens, and no keys and values of attention",
            remedy="generation is for causal decoders whose output is one of each token",
        )

    def _visible(self, op: Op, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes of masked attention, whose mask says which keys the query sees."""
        if len(op.operands) < 2 or not attributes.get("causal"):
            raise AtlasError(
                "the attention cannot be computed for one token",
                where=op.location,
                why="it is not causal, or was traced without a public mask",
                remedy="generation is for causal decoders",
            )
        self._windows.add(attributes.get("window"))
        if len(self._windows) > 1:
            raise _differently_far(op)
        return {name: one for name, one in attributes.items() if name != "window"} | {
            "causal": False
        }

    def refused(self, op: Op, constant: Symbol, shape: tuple[int, ...], alike: int) -> AtlasError:
        return AtlasError(
            f"{op.name} has a constant that differs from token to token",
            where=op.location,
            why=f"{constant} has shape {shape}; the position is known only when it runs",
            remedy="compile with --without scale-tokens if this is a factor before a norm; or make "
            f"the step of tokens that have the same constant (decode-step{{first={alike}}}); "
            "else use a model whose server part has rotary embeddings or none",
        )

    def _kept(self, op: Op, value: Value) -> Value:
        """All of a value: a public mask; keys or values up to this token."""
        if value.tensor.side != "server":
            return self.rewriter.values[value]
        if value not in self.caches:
            kind = "keys" if op.attributes["transpose_b"] else "values"
            name = f"{kind}.{self._counts[kind]}"
            self._counts[kind] += 1
            shape, seen = value.tensor.shape, without_bound(observed(value.op))
            state = {"name": name, "shape": list(shape), "side": "server", "dtype": "f64",
                     "state": True}  # fmt: skip
            before = self.add(value.op, "input", [], state | seen, name)
            position = self.position(op, shape[0], self.tokens)
            operands = [self.rewriter.values[value], position]
            row = self.add(value.op, "at_tokens", operands, seen, f"{name}.row")
            self.caches[value] = self.add(value.op, "add", [before, row], seen, f"{name}.now")
            self.kept[name] = value
            self._outputs.append((value.op, name, self.caches[value]))
        return self.caches[value]
