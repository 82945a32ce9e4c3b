"""The report of everything that the frontend cannot take, at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.graph import Node, module_path, source_line, target

REMEDY = (
    "replace these ops in the model by supported ones (linear, matmul, add, mul, reshape, "
    f"transpose, softmax, layer norm, RMS norm, {', '.join(ACTIVATIONS)}), or add a rule to "
    "passes/frontend/aten_rules.py"
)


class Refusal(Exception):
    """A rule does not take the arguments that it sees; the text says why."""


@dataclass(frozen=True)
class Unsupported:
    """One op that has no rule, or whose rule refuses its arguments for a reason."""

    op: str
    path: str
    line: str
    reason: str

    @classmethod
    def at(cls, node: Node, reason: str) -> Unsupported:
        """The fault of a node."""
        name = target(node) or f"{node.op} {node.target}"
        return cls(name, module_path(node), source_line(node), reason)

    def describe(self, others: Sequence[Unsupported]) -> str:
        """Op, reason, module path and source line; further places are counted."""
        text = f"{self.op}: {self.reason}" if self.reason else self.op
        where = f"{text}  in {self.path or '(top level)'}"
        more = f" and {len(others)} more" if others else ""
        return f"{where}{more}  ({self.line})" if self.line else where + more


def unsupported_error(faults: Sequence[Unsupported]) -> AtlasError:
    """One error for all faults; equal ops of one source line share a line of the message."""
    groups: dict[tuple[str, str, str], list[Unsupported]] = {}
    for fault in faults:
        groups.setdefault((fault.op, fault.line, fault.reason), []).append(fault)
    lines = [group[0].describe(group[1:]) for group in groups.values()]
    names = sorted({fault.op for fault in faults})
    count = "1 op" if len(faults) == 1 else f"{len(faults)} ops"
    return AtlasError(
        f"{count} of the model cannot be compiled: {', '.join(names)}",
        where="\n    ".join(["", *lines]) if len(lines) > 1 else lines[0],
        why="encrypted data only knows sums, products and the functions that have a rule",
        remedy=REMEDY,
    )
