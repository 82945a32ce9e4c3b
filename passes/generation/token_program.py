"""What the programs of generation share: they are made of one window, and know their token only
when they run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value, op_name
from atlasc.ir.opdef import Symbol
from atlasc.ir.ops.tensors import POSITION
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.lowering.token_rows import constant_row, kind_of


class TokenProgram(ABC):
    """Rewrites a window of tokens.

    Attributes:
        rewriter: from the window to the program.
        first: the least token of which a row is computed. A constant may differ from token to token
            before it.
    """

    def __init__(self, module: Module, first: int) -> None:
        self.rewriter, self.first = Rewriter(module), first
        self._position: Value | None = None

    @abstractmethod
    def refused(self, op: Op, constant: Symbol, shape: tuple[int, ...], alike: int) -> AtlasError:
        """The refusal of a constant that differs from token to token before token ``alike``."""

    def add(
        self,
        like: Op,
        kind: str,
        operands: list[Value],
        attributes: dict[str, Any],
        name: str | None = None,
    ) -> Value:
        """A new op at the place of another. Its result has a name of its own, so that others keep
        theirs.
        """
        op = op_name(f"{self.rewriter.source.level}.{kind}")
        return self.rewriter.module.add(op, operands, attributes, like.location, name)

    def position(self, like: Op, batch: int, tokens: int) -> Value:
        """The public input that marks the token."""
        if self._position is None:
            taken = {op.attributes["name"] for op in self.rewriter.source.inputs}
            if POSITION in taken:
                raise AtlasError(f"the model has an input {POSITION} of its own")
            attributes = {
                "name": POSITION, "shape": [batch, tokens], "side": "public", "dtype": "i64"
            }  # fmt: skip
            self._position = self.add(like, "input", [], attributes, POSITION)
        return self._position

    def constant(self, op: Op, value: Any, rank: int, axis: int) -> Any:
        """The part of a constant, which broadcasts to ``rank`` axes, for one token.

        Raises:
            AtlasError: it differs from token to token; see `refused`.
        """
        if not isinstance(value, Symbol):
            return value
        array = self.rewriter.source.symbols[value.name]
        row, alike = constant_row(array, rank, axis)
        if alike > self.first:
            raise self.refused(op, value, array.shape, alike)
        if row.shape == array.shape:
            return value
        return self.rewriter.module.constant(f"{value.name}.row", row)

    def finished(self) -> Module:
        """The program, with its inputs first."""
        result = self.rewriter.module
        result.ops.sort(key=lambda op: kind_of(op) != "input")  # stable
        return result


def without_bound(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of an op of a window. Which values are bootstrapped is that of another program."""
    return {name: value for name, value in attributes.items() if name != "bound"}
