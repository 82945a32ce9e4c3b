"""What a pattern returns, and helpers to look at nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from atlasc.ir.module import Value
from atlasc.passes.frontend.graph import Node, is_node


@dataclass(frozen=True)
class Match:
    """A group of nodes: the data nodes that it takes, and the function that emits it."""

    needs: tuple[Node, ...]
    emit: Callable[[], Value]


def pairs(node: Node) -> Iterator[tuple[Node, Node]]:
    """Both orders of the operands of a commutative op on two tensors."""
    first, second = node.args[0], node.args[1]
    if is_node(first) and is_node(second):
        yield first, second
        yield second, first
