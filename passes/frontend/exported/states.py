"""What a model writes while it answers: buffers, parameters, its inputs.

torch.export lists what a model writes before what it returns, and says of each result what it is. A
program answers each input alone, with the state that the model was brought with. So a state may be
written if no answer reads what an earlier call wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from atlasc.ir.errors import AtlasError
from atlasc.passes.frontend.exported.constants import SHAPE_ALONE
from atlasc.passes.frontend.exported.graph import Node, is_node, packet, place, shape

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from atlasc.passes.frontend.importer import Importer

RETURNED = ("USER_OUTPUT", "LOSS_OUTPUT")
WRITTEN = {
    "BUFFER_MUTATION": "buffer",
    "PARAMETER_MUTATION": "parameter",
    "USER_INPUT_MUTATION": "input",
}
"""Kinds of results, as the signature of torch.export calls them -> what is written."""
OVERWRITES = {"copy", "fill", "zero"}
"""Ops that read the shape of their first operand alone, and write all its elements."""
REMEDY = (
    "write it in training alone (if self.training: self.{name}.copy_(...)), or take the state as "
    "an input of forward and return its new value as an output"
)


@contextmanager
def untouched(module: torch.nn.Module) -> Iterator[None]:
    """Give a module and its parts back what they held before the block: torch.export leaves tensors
    without numbers in buffers that forward registers, and in lists and tables.
    """
    parts = [(vars(part), dict(vars(part))) for part in module.modules()]
    held = {
        id(value): (value, copy(value))
        for _, before in parts
        for value in before.values()
        if isinstance(value, dict | set | list)
    }
    try:
        yield
    finally:
        for now, before in parts:
            now.clear()
            now.update(before)
        for value, content in held.values():
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(content)


class Write(NamedTuple):
    """One state that a model writes.

    Attributes:
        what: buffer, parameter or input.
        path: its path in the model, or the name of the input.
        old: the node that reads what it holds before the call.
        new: the node whose value it holds after the call.
    """

    what: str
    path: str
    old: Node
    new: Node

    @property
    def module(self) -> str:
        """Path of the module that it belongs to."""
        return self.path.rpartition(".")[0] or "(top level)"

    @property
    def name(self) -> str:
        """Its name in this module."""
        return self.path.rpartition(".")[2]


def without_grown_buffers(program: ExportedProgram, note: Callable[[str, str], object]) -> None:
    """Leave out, and say, what forward binds to a buffer of another shape, as a table that grows
    with the longest input: torch.export copies it into the old one, which fails.
    """
    graph, names = program.graph, program.graph_signature.inputs_to_buffers
    for node in list(graph.nodes):
        if packet(node) == "copy_" and shape(node.args[0]) != shape(node.args[1]):
            path = names.get(str(node.args[0].target))
            if path is not None:
                _say_left_out(note, "buffer", path, node.args[1])
                graph.erase_node(node)


def _say_left_out(note: Callable[[str, str], object], what: str, path: str, new: Node) -> None:
    note(
        f"the model writes the {what} {path}, which the program leaves out",
        f"  where: {place(new)}\n"
        "  why: no output that is computed reads what an earlier call wrote there",
    )


def returned(program: ExportedProgram, results: Sequence[Any]) -> list[Any]:
    """The results that the model's forward returns, in their order."""
    specs = program.graph_signature.output_specs
    pairs = zip(specs, results, strict=True)
    return [result for spec, result in pairs if spec.kind.name in RETURNED]


def writes(
    program: ExportedProgram, holders: Mapping[str, Node], results: Sequence[Any]
) -> list[Write]:
    """The states that the model writes.

    Args:
        program: the exported program.
        holders: the placeholders of its graph, by name.
        results: all results of its graph.
    """
    signature = program.graph_signature
    paths = {
        "buffer": signature.inputs_to_buffers,
        "parameter": signature.inputs_to_parameters,
        "input": {str(name): str(name) for name in signature.user_inputs},
    }
    readers = {(what, path): key for what, of in paths.items() for key, path in of.items()}
    found = []
    for spec, new in zip(signature.output_specs, results, strict=True):
        what = WRITTEN.get(spec.kind.name)
        if what is not None and is_node(new):
            path = str(spec.target)
            found.append(Write(what, path, holders.get(readers.get((what, path), "")), new))
    return found


def refuse_states(
    importer: Importer,
    written: Iterable[Write],
    chosen: dict[str, Node],
    note: Callable[[str, str], object],
) -> None:
    """Say which states the program leaves out, and refuse those that an answer depends on.

    An answer depends on a state if it reads what the state holds before the call, and the call
    leaves something else there.

    Raises:
        AtlasError: an output depends on such a state; it names the state, its module and the line.
    """
    for one in written:
        (new,) = importer.same_as([one.new])
        one = one._replace(new=new)
        if one.what == "input":
            note(
                f"the model changes its input {one.path} in place",
                "  why: the program answers as the model does, and leaves the client's input as "
                "it is",
            )
            continue
        readers = [name for name, node in chosen.items() if one.old in _read([node])]
        if not readers:
            _say_left_out(note, one.what, one.path, one.new)
        elif not _unchanged(importer, one):
            raise AtlasError(
                f"the output {readers[0]} depends on a state that the model writes: the "
                f"{one.what} {one.name} of {one.module}",
                where=place(_writer(one)),
                why="each call leaves another value there, so the same input has another answer "
                "at the next call; a program answers every input alone",
                remedy=REMEDY.format(name=one.name),
            )


def _unchanged(importer: Importer, write: Write) -> bool:
    """Whether a call leaves in a state what it held before."""
    import torch

    if write.new is write.old:
        return True
    if importer.kinds[write.new] != "constant":
        return False
    before, after = (importer.tensor(node) for node in (write.old, write.new))
    return not (before.is_meta or after.is_meta) and torch.equal(before, after)


def _writer(write: Write) -> Node:
    """The op that makes the new value; a copy of it has no line of its own."""
    node = write.new
    while packet(node) == "copy" and is_node(node.args[1]) and not node.meta.get("stack_trace"):
        node = node.args[1]
    return node


def _read(results: Iterable[Any]) -> set[Node]:
    """The nodes whose values some results are computed from, and these themselves."""
    found, pending = set[Node](), [node for node in results if is_node(node)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            first = node.args[0] if packet(node) in SHAPE_ALONE | OVERWRITES else None
            pending += [one for one in node.all_input_nodes if one is not first]
    return found
