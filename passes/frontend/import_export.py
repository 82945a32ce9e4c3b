"""From an exported torch.fx graph to an nn module.

Three walks over the graph: what each node depends on (``graph.classify``), backwards from the
output which nodes are needed and which of them form one nn op (``patterns``), and forwards to emit
the ops.
"""

from __future__ import annotations

from typing import Any

from atlasc.ir.module import Module, Value
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.aten_rules import ATEN_RULES
from atlasc.passes.frontend.forms import Match
from atlasc.passes.frontend.graph import Node, arguments, packet, target
from atlasc.passes.frontend.importer import Importer, Missing
from atlasc.passes.frontend.patterns import find
from atlasc.passes.frontend.report import Refusal, Unsupported, unsupported_error


def import_graph(importer: Importer, result: Node, output: str) -> Module:
    """Import everything that a node needs, and make it the output.

    Raises:
        AtlasError: ops without a rule, all of them in one message.
    """
    matches = _select(importer, result)
    faults: list[Unsupported] = []
    for node in importer.graph.nodes:
        if node not in matches:
            continue
        try:
            importer.values[node] = _emit(importer, node, matches[node])
        except Missing:
            continue
        except Refusal as refusal:
            faults.append(Unsupported.at(node, str(refusal)))
    if faults:
        raise unsupported_error(faults)
    module = importer.module
    module.ops.sort(key=lambda op: op.name != "nn.input")  # stable: inputs come first
    module.add("nn.output", [importer.on_server(importer.values[result])], {"name": output})
    return module


def _select(importer: Importer, result: Node) -> dict[Node, Match | None]:
    """Nodes to emit, each with the pattern that ends there or None."""
    needed, selected = {result}, dict[Any, Match | None]()
    for node in reversed(importer.graph.nodes):
        if node not in needed or importer.kinds[node] != "data":
            continue
        found = selected[node] = find(importer, node) if node not in importer.inputs else None
        needed.update(node.all_input_nodes if found is None else found.needs)
    return selected


def _emit(importer: Importer, node: Node, found: Match | None) -> Value:
    if node in importer.inputs:
        return importer.input(node)
    if found is not None:
        return found.emit()
    rule = ATEN_RULES.get(target(node))
    if rule is not None:
        return rule(importer, node, *arguments(node).values())
    if "getitem" in str(node.target):
        raise Missing  # part of the result of an op that has been reported
    known = packet(node) in ACTIVATIONS
    raise Refusal("only its default arguments are understood" if known else "")
