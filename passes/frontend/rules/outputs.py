"""Outputs of a model: their names, the choice among them, and the client's final function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atlasc.ir.bounds import as_name
from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import FINAL_FUNCTIONS
from atlasc.passes.frontend.exported.graph import (
    MOVES,
    RESHAPES,
    Node,
    is_node,
    packet,
    shape,
)
from atlasc.passes.frontend.rules.patterns import matches
from atlasc.passes.frontend.rules.pooling import CHOICES

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Note = Callable[[str, str], object]
"""``note(headline, details)``: something that the user should know."""
PREFERRED = (("logits",), ("start_logits", "end_logits"), ("sentence_embedding",),
             ("last_hidden_state",))  # fmt: skip
"""Outputs that are computed by default: the first of these that a model has, together."""
ALL = "all"
LAST = ("squeeze", "select", "flatten", *RESHAPES)
"""Ops that may remove a last axis of one element."""
POOLS = {"avg_pool1d", "adaptive_avg_pool1d", "mean", "sum"}
ELEMENTWISE = {"add", "sub", "rsub", "mul", "div", "neg", "tanh", "sigmoid", "relu", "softplus"}
SQUEEZED = "squeezed"
"""Member of the facts of a node whose last axis, of one element, the client removes."""


def named_outputs(program: ExportedProgram, results: Sequence[Any]) -> dict[str, Node]:
    """Name -> tensor that a model returns; see `named_leaves`."""
    import torch.utils._pytree as pytree

    spec, nested = program.call_spec.out_spec, tuple(results)
    if spec is not None and spec.num_leaves == len(results):
        nested = pytree.tree_unflatten(list(results), spec)
    return {
        name: node
        for name, node in named_leaves(nested).items()
        if is_node(node) and hasattr(node.meta.get("val"), "shape")
    }


def named_leaves(returned: Any) -> dict[str, Any]:
    """Name -> each value of what a model returns.

    The name is the key in a dictionary. Without names it is ``output`` for a single value,
    otherwise ``output0``, ``output1``, ...; in nested results it is a path such as
    ``hidden_states.1``.
    """
    import torch.utils._pytree as pytree

    found = pytree.tree_flatten_with_path(returned)[0]
    return {_name(path, alone=len(found) == 1): leaf for path, leaf in found}


def _name(path: Any, alone: bool) -> str:
    if not path:
        return "output"
    parts = [
        str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path
    ]
    if hasattr(path[0], "idx"):
        parts[0] = "output" if alone else f"output{parts[0]}"
    return as_name(".".join(parts))


def choose(outputs: Mapping[str, Node], wanted: str | None, note: Note) -> list[str]:
    """Names of the outputs that the program computes: those in ``wanted``, separated by commas, or
    ``all``. By default it is one output, or both ends of a span; a note names the others.

    Raises:
        AtlasError: the model has no such output, or none at all.
    """
    names = list(outputs)
    remedy = f"its outputs: {', '.join(names)}"
    if not names:
        raise AtlasError("the model returns no tensor", remedy="return the tensor that you need")
    if wanted == ALL:
        return names
    if wanted is not None:
        chosen = [name.strip() for name in wanted.split(",")]
        for name in chosen:
            if name not in outputs:
                raise AtlasError(f"the model has no output {name!r}", remedy=remedy)
        return list(dict.fromkeys(chosen))
    chosen = next((list(some) for some in PREFERRED if {*some} <= {*names}), names[:1])
    computed = {outputs[name] for name in chosen}
    others = [name for name in names if name not in chosen and outputs[name] not in computed]
    if others:
        shown = ",".join(chosen)
        note(
            f"the model has {len(others) + len(chosen)} outputs, but the program computes only "
            f"{' and '.join(chosen)}",
            f"  left out: {', '.join(others)}\n"
            f"  what to do: --outputs {shown},{others[0]} or --outputs all computes more",
        )
    return chosen


def final_function(node: Node) -> tuple[str | None, Node]:
    """The function that ends an output, for the client to apply, and the node before it.

    If a function of single elements is followed only by movements, these are moved before it.
    """
    _squeeze_last(node)
    if _squeezes(node):
        return "squeeze", node.args[0]
    if node.meta.get(SQUEEZED):
        return "squeeze", node
    moves, end = list[Node](), node
    while packet(end) in MOVES and len(end.users) == len(moves[-1:]):
        moves.append(end)
        end = end.args[0]
    if moves:
        name, before = _function(end)
        if name is None or not FINAL_FUNCTIONS[name].of_elements or len(end.users) != 1:
            return None, node
        moves[-1].replace_input_with(end, before)
        return name, node
    name, before = _function(node)
    while name == "argmax" and FINAL_FUNCTIONS[_function(before)[0] or name].keeps_order:
        before = _function(before)[1]
    return name, before


def _squeezes(node: Node) -> bool:
    """Whether a node removes a last axis of one element."""
    if packet(node) not in LAST or not shape(node) or (*shape(node), 1) != shape(node.args[0]):
        return False
    if packet(node) != "squeeze" and packet(node.args[0]) in POOLS:
        return False  # the axis is that of the tokens, and features lie before it
    return packet(node) != "select" or node.args[1] in (-1, len(shape(node)))


def _squeeze_last(node: Node) -> None:
    """Let functions of single elements that end an output read an axis of one element that is
    removed before them, so that the client can remove it after them.
    """
    chain, end = list[Node](), node
    while packet(end) in ELEMENTWISE and len(end.users) <= 1:
        wide = [one for one in end.all_input_nodes if getattr(one.meta.get("val"), "shape", ())]
        if len(wide) != 1 or shape(wide[0]) != shape(end):
            return
        chain.append(end)
        (end,) = wide
    if packet(end) in CHOICES and end.meta["val"].ndim == 1 and _squeezes(end.args[0]):
        chain.append(end)  # the score of one token
    elif chain and _squeezes(end):
        chain[-1].replace_input_with(end, end.args[0])
    else:
        return
    for one in chain:
        one.meta["val"] = one.meta["val"].unsqueeze(-1)
    node.meta[SQUEEZED] = True


def _function(node: Node) -> tuple[str | None, Node]:
    """The final function that a node computes, and its operand."""
    for name, function in FINAL_FUNCTIONS.items():
        for form in function.forms:
            for found in matches(form, node):
                before, axis = found["x"], found.get("axis", -1)
                axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
                last = len(shape(before)) - 1
                if axis in (-1, last) and not found.get("half"):
                    return name, before
    return None, node
