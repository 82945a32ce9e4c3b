"""Constant folding: everything that does not depend on a private input is evaluated by torch.

Values of a model without weights (meta tensors) stay meta tensors: only their shapes are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError, first_line
from atlasc.ir.ops.nn import position_ids
from atlasc.passes.frontend.exported.graph import Kind, Node, is_float, packet, place, shape, target

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph

SHAPE_ALONE = {"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"}
COMPARISONS = ("aten.ne.Scalar", "aten.eq.Scalar")
MAX_ELEMENTS = 2**28
"""Greatest number of elements of a computed constant: a mask of 16,384 tokens."""
PROBE_IDS = 32  # ids of ordinary tokens in probes of positions


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
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise AtlasError(
            f"{target(node)}: the model draws random numbers",
            where=place(node),
            why="a program must give the same answer to the same input",
            remedy="leave random numbers out in evaluation mode, or keep them in a buffer",
        )
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
    with torch.no_grad():
        return node.target(*args, **kwargs)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array: a view if the type allows it; zeros without memory for meta tensors.

    Float types of less than 32 bits become float32.
    """
    import torch

    if tensor.is_meta:
        return np.broadcast_to(np.float32(0), tuple(tensor.shape))
    tensor = tensor.detach()
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


class Positions(NamedTuple):
    """Positions that are counted from token ids, see ``nn.position_ids``."""

    ids: Node
    padding: int


def indices_of(
    graph: Graph, inputs: Mapping[Node, str], kinds: Mapping[Node, Kind], known: dict[Node, Any]
) -> dict[Node, torch.Tensor | Positions]:
    """For each index of an embedding that is computed from ids: a constant, or positions.

    Raises AtlasError for any other index.
    """
    ids = [node for node in inputs if kinds[node] == "data" and not is_float(node)]
    found: dict[Node, torch.Tensor | Positions] = {}
    for node in graph.nodes:
        index = node.args[1] if packet(node) == "embedding" else None
        if index is None or kinds[index] != "index" or index in found:
            continue
        seen, pending = set(), [index]
        while (source := pending.pop()) not in ids:
            if source not in seen:
                seen.add(source)
                pending += source.all_input_nodes
        takers = [one for one in source.users if packet(one) == "embedding"]
        table = next((one.args[0] for one in takers if one.args[1] is source), node.args[0])
        found[index] = _index(index, source, shape(table)[0], known)
    return found


def _index(
    node: Node, ids: Node, vocabulary: int, known: Mapping[Node, Any]
) -> torch.Tensor | Positions:
    """Integers that the model computes from token ids: the same for all ids, or RoBERTa's
    positions.

    RoBERTa counts the tokens that are not padding. The model's expression is not analysed but
    evaluated on probes, which have padding at their beginning, at their end and among their tokens.
    """
    import torch

    batch, length = shape(ids)
    compared = [one.args[1] for one in ids.users if target(one) in COMPARISONS]
    special = sorted({value for value in compared if isinstance(value, int)})
    ordinary = [i for i in range(vocabulary) if i not in special][-PROBE_IDS:]
    probes = list(_probes(batch, length, ordinary, special))
    try:
        values = [evaluate(node, {**known, ids: torch.from_numpy(probe)}) for probe in probes]
    except (IndexError, RuntimeError) as error:
        raise AtlasError(
            f"sequence length {length} is more than the model has positions for",
            where=place(node),
            why=first_line(error),
            remedy="use a smaller --sequence-length: RoBERTa and its kin begin to count at the "
            "id of the padding + 1",
        ) from None
    if values[0].is_meta or all(torch.equal(value, values[0]) for value in values):
        return values[0]
    for padding in special:
        if all(
            np.array_equal(value.numpy(), position_ids(probe, padding))
            for value, probe in zip(values, probes, strict=True)
        ):
            return Positions(ids, padding)
    raise AtlasError(
        f"{target(node)}: an index depends on which tokens the client has",
        where=place(node),
        why="the index is neither constant nor a count of the tokens that are not padding",
        remedy="pass the index (for example position_ids) as an input of the model",
    )


def _probes(
    batch: int, length: int, ordinary: Sequence[int], special: Sequence[int]
) -> Iterator[np.ndarray]:
    """Token ids [batch, length]: ordinary tokens, and ordinary tokens with special ones at the
    beginning, at the end, anywhere and everywhere.
    """
    random, places = np.random.default_rng(0), np.arange(length)
    for _ in range(2):
        yield random.choice(ordinary, size=(batch, length))
    for token in special:
        middle = random.integers(0, 2, size=(batch, length)) > 0
        halves = [places < length // 2, places >= (length + 1) // 2]
        for padded in (*halves, places == 0, places == length - 1, middle, places >= 0):
            tokens = random.choice(ordinary, size=(batch, length))
            yield np.where(padded, token, tokens)
