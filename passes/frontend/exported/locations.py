"""Locations of ops; every run of a block counts as a block of its own.

A model may run a block several times with the same weights, as ALBERT does. Each run sees other
values and gets its own ranges and approximations, so its ops need a location of their own.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from atlasc.ir.bounds import Location, as_location, line_of
from atlasc.ir.module import Module
from atlasc.passes.frontend.exported.graph import Node, module_path, source_line

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph

_INDEX = re.compile(r"(?:^|\.)\d+$")


class Call(NamedTuple):
    """One call of a module: torch.export's key of the call, and the module's path."""

    key: str
    path: str


def locations(graph: Graph) -> dict[Node, Location]:
    """The location of the op of each node: its `module_path`, with its line. If some block runs
    more than once, each path is followed by ``@`` and the number of the run, counted over the runs
    of all blocks.
    """
    stacks = {node: _calls(node) for node in graph.nodes}
    blocks = {node: block for node, block in _blocks(stacks).items() if block is not None}
    runs = {call: number for number, call in enumerate(dict.fromkeys(blocks.values()))}
    found = {node: Location(module_path(node), source_line(node)) for node in graph.nodes}
    if len({call.path for call in runs}) < len(runs):
        for node, block in blocks.items():
            inside = found[node].removeprefix(as_location(block.path))
            path = f"{block.path}@{runs[block]}{inside}"
            found[node] = as_location(path, found[node].line)
    return found


def fill_lines(module: Module) -> None:
    """Give a line to each op that no line of the model makes: an input, an encryption and an output
    take that of the first op beside them. What passes make of these ops has it too.
    """
    users = module.users()
    for op in reversed(module.ops):  # an encryption before the input that it reads
        if not line_of(op.location):
            readers = [] if op.result is None else users[op.result]
            beside = [*readers, *(operand.op for operand in op.operands)]
            lines = (line_of(one.location) for one in beside)
            op.location = Location(op.location, next(filter(None, lines), ""))


def forward_of(module: torch.nn.Module) -> str:
    """Name of a module's class, and the place of its forward."""
    module = getattr(module, "module", module) if hasattr(module, "mask_argument") else module
    with suppress(OSError, TypeError):
        code = type(module).forward
        place = f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
        return f"{type(module).__name__}.forward ({place})"
    return f"{type(module).__name__}.forward"


def _blocks(stacks: dict[Node, list[Call]]) -> dict[Node, Call | None]:
    """The block of each node: the outermost module whose path ends with an index. In a model
    without such modules, it is the outermost module with submodules that runs more than once.
    """

    def outermost(paths: Iterable[str]) -> dict[Node, Call | None]:
        chosen = set(paths)
        return {
            n: next((c for c in stack if c.path in chosen), None) for n, stack in stacks.items()
        }

    calls = {call for stack in stacks.values() for call in stack}
    indexed = {call.path for call in calls if _INDEX.search(call.path)}
    if indexed:
        return outermost(indexed)
    keys = defaultdict(set)
    for call in calls:
        keys[call.path].add(call.key)
    outer = {call.path for stack in stacks.values() for call in stack[:-1]}
    return outermost(path for path, of in keys.items() if len(of) > 1 and path in outer)


def _calls(node: Node) -> list[Call]:
    """The calls of modules in which a node was made, from outside to inside."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = ((key, re.sub(r"^L\['self'\]\.?", "", str(path))) for key, (path, _) in stack.items())
    return [Call(key, path) for key, path in paths if path]
