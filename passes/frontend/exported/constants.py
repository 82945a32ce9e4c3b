"""Constant folding: everything that does not depend on a private input is evaluated by torch.

Values of a model without weights (meta tensors) stay meta tensors: only their shapes are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.frontend.exported.graph import (
    RESHAPES,
    Kind,
    Node,
    arguments,
    packet,
    place,
    target,
)
from atlasc.passes.frontend.exported.half import array_of_half, half_tensor

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph

SHAPE_ALONE = {
    *("full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like", "empty_like"),
    *("rand_like", "randn_like", "randint_like"),
}
MAX_ELEMENTS = 2**28
"""Greatest number of elements of a computed constant: a mask of 16,384 tokens."""


def evaluate(root: Node, known: MutableMapping[Node, Any]) -> torch.Tensor:
    """Value of a node, on the CPU, or a meta tensor without weights.

    All values that are computed on the way are added to ``known``.
    """
    pending = [root]
    while pending:
        node = pending[-1]
        missing = [operand for operand in node.all_input_nodes if operand not in known]
        if node not in known and missing:
            pending += missing
            continue
        if node not in known:
            known[node] = _call(node, known)
        pending.pop()
    return known[root]


def _call(node: Node, known: Mapping[Node, Any]) -> Any:
    """One op on concrete tensors, on the CPU; on meta if an operand is meta.

    A constant that would fill the machine's memory is refused, because an archive may ask for any
    size.
    """
    import torch
    import torch.fx

    if node.op != "call_function":
        raise AtlasError(
            f"cannot evaluate {node.op} {node.target}",
            where=place(node),
            remedy="report this model: its constants depend on something that is not a tensor op",
        )
    refuse_random(node)
    operands = [known[operand] for operand in node.all_input_nodes]
    meta = any(isinstance(t, torch.Tensor) and t.is_meta for t in operands)
    device = torch.device("meta" if meta else "cpu")

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return device
        return value.to(device) if isinstance(value, torch.Tensor) else value

    args = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
    args, kwargs = torch.utils._pytree.tree_map(moved, args)
    if "device" in kwargs and not meta:
        kwargs = {**kwargs, "device": device}
    lists = [arg for arg in args if isinstance(arg, (list, tuple))]
    sizes = [math.prod(one) for one in lists if all(isinstance(extent, int) for extent in one)]
    if str(node.target).startswith("aten.arange"):
        sizes += [arg for arg in args if isinstance(arg, int)]
    if (largest := max(map(abs, sizes), default=0)) > MAX_ELEMENTS:
        raise AtlasError(
            "a constant of the model is too large",
            where=place(node),
            why=f"{node.target} makes one of {largest} elements; the limit is {MAX_ELEMENTS}",
            remedy="export the model with inputs of an ordinary size",
        )
    # A view depends on strides, and these are those of the real tensors.
    called = torch.ops.aten.reshape.default if packet(node) in RESHAPES else node.target
    with torch.no_grad():
        return called(*args, **kwargs)


def refuse_random(node: Node) -> None:
    """Raise AtlasError if an op draws random numbers: a dropout does not in evaluation mode."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return
    given = arguments(node)
    off = any(given.get(name) is False for name in ("train", "training"))
    if not off and given.get("dropout_p", 1.0) != 0 and given.get("p", 1.0) != 0:
        raise AtlasError(
            f"{target(node)}: the model draws random numbers",
            where=place(node),
            why="a program must give the same answer to the same input",
            remedy="leave random numbers out in evaluation mode, or keep them in a buffer",
        )


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array: a view if the type allows it; zeros without memory for meta tensors.

    Float types of less than 32 bits become float32: a ``HalfTensor`` at each use.
    """
    import torch

    if tensor.is_meta:
        return np.broadcast_to(np.float32(0), tuple(tensor.shape))
    tensor = tensor.detach()
    if isinstance(tensor, half_tensor()):
        return array_of_half(tensor)
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def read_shapes(graph: Graph, kinds: Mapping[Node, Kind]) -> dict[Node, Any]:
    """Values of the nodes that use only the shape of their operand."""
    import torch

    found = {}
    for node in graph.nodes:
        if packet(node) in SHAPE_ALONE and kinds[node] != "constant":
            operand = node.args[0].meta["val"]
            known = {node.args[0]: torch.zeros(tuple(operand.shape), dtype=operand.dtype)}
            found[node] = _call(node, known)
    return found
