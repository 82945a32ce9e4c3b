"""Exported programs in a simpler form: fixed shapes, no changes in place, and fewer kinds of ops.

Ops without a rule are replaced by torch's own decompositions.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError, explained
from atlasc.passes.frontend.exported.graph import is_active_dropout

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

ROUNDS = 4
"""Greatest depth of nested decompositions."""


class Unsupported(AtlasError):
    """Some ops of a model have no rule.

    Attributes:
        targets: qualified names of these ops.
    """

    targets: frozenset[str] = frozenset()


def with_fixed_shapes(
    program: ExportedProgram, tensors: Mapping[str, torch.Tensor]
) -> ExportedProgram:
    """The program for these inputs, if it was exported with dynamic sizes.

    Raises:
        AtlasError: the export does not allow these sizes.
    """
    import torch

    names = program.graph_signature.user_inputs
    found = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    extents = [n for name in names for n in getattr(found.get(str(name)), "shape", ())]
    if all(isinstance(n, int) for n in extents) or not set(map(str, names)) <= set(tensors):
        return program
    leaves = [tensors[str(name)] for name in names]
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in tensors.items())
    remedy = "give inputs of a size that the export allows, or export the model with fixed sizes"
    with explained(f"the program was not exported for {shapes}", remedy=remedy):
        return torch.export.export(program.module(), args, kwargs, strict=False)


def without_changes_in_place(program: ExportedProgram) -> ExportedProgram:
    """The same program without ops that write into an operand.

    Such a change would be seen by later readers of the operand, and of views of it.
    """
    if any(map(is_active_dropout, program.graph.nodes)):
        return program  # it is refused later, under its own name
    graphs = [part.graph for part in program.graph_module.modules() if hasattr(part, "graph")]
    schemas = (getattr(node.target, "_schema", None) for one in graphs for node in one.nodes)
    changing = any(schema is not None and schema.is_mutable for schema in schemas)
    return _decomposed(program, ()) if changing else program


def in_simpler_ops(program: ExportedProgram, fault: Unsupported) -> Iterator[ExportedProgram]:
    """The program with the ops of ``fault.targets`` decomposed, as far as torch can.

    Yields again as long as the caller sets ``fault.targets`` to the remaining ops.
    """
    for _ in range(ROUNDS):
        before = fault.targets
        program = _decomposed(program, before)
        yield program
        if fault.targets == before:
            return


@cache
def _known() -> tuple[tuple[Any, Any], ...]:
    """Ops for which torch has a decomposition, and the decompositions."""
    import torch

    return tuple(torch.export.default_decompositions().items())


def _decomposed(program: ExportedProgram, targets: Collection[str]) -> ExportedProgram:
    table = {op: how for op, how in _known() if str(op) in targets} if targets else {}
    remedy = "replace ops that change a tensor in place (x += y) by others (x = x + y)"
    with (
        explained("torch.export cannot rewrite the model in simpler ops", remedy=remedy),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # of torch about its own code
        return program.run_decompositions(table)
