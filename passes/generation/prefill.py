"""``prefill``: the program of a prompt, whose keys and values the steps after it read."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS, observed
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.generation.decode_step import kept_values
from atlasc.passes.generation.token_program import TokenProgram, without_bound
from atlasc.passes.lowering.token_rows import (
    CONSTANTS,
    MASKS,
    axes_of,
    constant_row,
    kind_of,
    row_shape,
)


@dataclass(frozen=True)
class Prefill(Pass):
    """Turn a causal decoder of a window of tokens into the program of a prompt.

    The output is that at one token, the last of the prompt, which the public input ``position``
    marks. Ops that only this token needs, such as those after the last attention, work on its row.
    Keys and values are outputs ``keys.0``, ``values.0``, ... [batch, heads, tokens, width] of the
    names that ``decode-step`` gives them. They are zero where the public mask of the decoder is, so
    that a step adds its row to them.

    Attributes:
        first: as of ``decode-step``.
    """

    name = "prefill"
    takes = ("nn", "poly")
    keeps = (MAGNITUDES, NOISE_GAINS)
    first: int = 0

    def run(self, module: Module, report: Report) -> Module:
        """Nn or poly module of a window to a module of the same level.

        Raises:
            AtlasError: as ``decode-step``; or the output is not one of each token.
        """
        prefill = _Prefill(module, self.first)
        result = without_dead_ops(prefill.run())
        kept, rows = len(prefill.kept), len(prefill.rows)
        report.say(f"{kept} tensors of keys and values; {rows} ops work on the last token alone")
        return result


def for_step(prefill: Module, step: Module) -> Module:
    """The prefill whose keys and values leave at the levels at which a step reads them.

    Args:
        prefill: poly module that the pass made.
        step: packed ckks module of the step, with levels, of the same window.

    Raises:
        AtlasError: the step keeps other keys and values.
    """
    states = {
        op.attributes["name"]: op.attributes["level"]
        for op in step.inputs
        if op.attributes.get("state")
    }
    given = [op.attributes["name"] for op in prefill.outputs]
    if missing := states.keys() - given:
        raise AtlasError(
            f"@{prefill.name} does not give {min(missing)}",
            why="the step keeps it",
            remedy="make both of the same window",
        )
    rewriter = Rewriter(prefill)
    for op in prefill.ops:
        name = op.attributes.get("name") if kind_of(op) == "output" else None
        level = {"level": states[name]} if name in states else {}
        rewriter.copy(op, None, {**op.attributes, **level})
    return rewriter.module


class _Prefill(TokenProgram):
    """Rewrites a module.

    Attributes:
        kept: keys or values of the window -> their name.
        window: its batch and tokens.
        rows: ops that are computed for the last token alone.
    """

    def __init__(self, module: Module, first: int) -> None:
        super().__init__(module, 0)  # the last token may be any
        self.kept = {value: name for name, value in kept_values(module, first).items()}
        self.window = next(iter(self.kept)).tensor.shape[::2][:2]
        self.users = module.users()
        self.rows = self._only_last()
        self._selected: dict[Value, Value] = {}

    def run(self) -> Module:
        module = self.rewriter.source
        mask = next(
            operand
            for op in module.ops
            if kind_of(op) in ("softmax", *MASKS)
            for operand in op.operands[1:]
        )
        for op in module.ops:
            if op in self.rows:
                self._row(op)
                continue
            self.rewriter.copy(op, None, without_bound(op.attributes))
            if op.result in self.kept:
                self._keep(op, mask)
        return self.finished()

    def _only_last(self) -> set[Op]:
        """The outputs, and the ops before them that nothing else reads, which work on each token
        alone.
        """
        rows = set[Op]()
        for op in reversed(self.rewriter.source.ops):
            if op.result is None:
                shape = op.operands[0].tensor.shape
                if len(shape) != 3:
                    raise AtlasError(
                        f"the output {op.attributes['name']} has shape {shape}",
                        where=op.location,
                        why="a decoder has an output [batch, tokens, features]",
                        remedy="generation is for causal decoders whose output is one of each "
                        "token",
                    )
                rows.add(op)
            elif self._is_row(op) and self.users[op.result] and rows >= set(self.users[op.result]):
                rows.add(op)
        return rows

    def _is_row(self, op: Op) -> bool:
        """Whether one token of an op's result [batch, tokens, features] needs this token alone."""
        value = op.value
        if value in self.kept or value.tensor.side != "server" or not op.operands:
            return False
        three = all(len(one.tensor.shape) == 3 for one in (value, *op.operands))
        if not three or axes_of(op, 1) != [1] * len(op.operands):
            return False
        symbols = self.rewriter.source.symbols
        constants = op.chosen(*CONSTANTS.get(kind_of(op), ())).values()
        return all(
            constant_row(symbols[one.name], 3, 1)[1] == 0
            for one in constants
            if isinstance(one, Symbol)
        )

    def _row(self, op: Op) -> None:
        names = ("factor", "shift") if op.result is None else CONSTANTS.get(kind_of(op), ())
        attributes = without_bound(op.attributes)
        for name in op.chosen(*names):
            attributes[name] = self.constant(op, attributes[name], 3, 1)
        if kind_of(op) == "reshape":
            attributes["shape"] = list(row_shape(op.value.tensor.shape, 1))
        self.rewriter.copy(op, [self._last(operand) for operand in op.operands], attributes)

    def _last(self, value: Value) -> Value:
        """The row of the last token of a value."""
        if value.op in self.rows:
            return self.rewriter.values[value]
        if value not in self._selected:
            operands = [self.rewriter.values[value], self.position(value.op, *self.window)]
            seen = without_bound(observed(value.op))
            self._selected[value] = self.add(value.op, "mean", operands, {"axis": 1, **seen})
        return self._selected[value]

    def _keep(self, op: Op, mask: Value) -> None:
        """Keys or values as an output, zero at the tokens that are not of the prompt."""
        name, seen = self.kept[op.value], without_bound(observed(op))
        operands = [self.rewriter.values[op.value], self.rewriter.values[mask]]
        kept = self.add(op, "at_tokens", operands, seen, name)
        self.add(op, "output", [kept], {"name": name})

    def refused(self, op: Op, constant: Symbol, shape: tuple[int, ...], alike: int) -> AtlasError:
        return AtlasError(
            f"{op.name} has a constant that differs from token to token",
            where=op.location,
            why=f"{constant} has shape {shape}; the last token is known only when it runs",
            remedy="use a model without it",
        )
