"""The exported torch.fx graph in a normal form: flat, without identities, every node classified.

The kind of a node says what its value depends on:

- ``constant``: only on parameters and buffers; folded when it is needed.
- ``mask``: only on the public attention mask (and constants); see ``masks``.
- ``index``: an integer computed from token ids (RoBERTa's positions); see ``constants``.
- ``data``: on private data of the client.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atlasc.ir.bounds import as_location
from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from torch.fx import Graph

Kind = Literal["constant", "mask", "index", "data"]
PUBLIC_INPUT = "attention_mask"
COPIES = {"alias", "clone", "contiguous", "detach", "detach_", "lift_fresh_copy", "positive", "to",
          "_to_copy", "type_as"}  # fmt: skip
DROPOUTS = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}
AS_NUMBERS = {"to", "_to_copy", "type_as", "add", "sub", "rsub", "mul", "div"}
"""Ops that read integers as numbers, where their result is of floats."""
RESHAPES = ("view", "reshape", "_unsafe_view")
VIEWS = (*RESHAPES, "expand", "slice", "flatten")
"""Ops that leave a tensor as it is if its shape does not change."""
ATTENTION = ("softmax", "_softmax", "scaled_dot_product_attention")
MOVES = {*RESHAPES, "flatten", "squeeze", "unsqueeze", "select", "slice", "transpose", "permute"}
"""Ops that move elements without changing them."""
CLIENT_ALONE = ("conv1d", "conv2d", "conv3d", "group_norm")
"""Ops without a rule on encrypted data."""
FRONTEND = Path(__file__).parents[1]
Node = Any
"""A torch.fx.Node, whose own argument types are too wide to check."""


def target(node: Any) -> str:
    """Qualified name of the op that a node calls, such as ``aten.add.Tensor``; otherwise ``""``."""
    return str(node.target) if getattr(node, "op", None) == "call_function" else ""


def packet(node: Any) -> str:
    """Name of the aten op that a node calls, without overload, such as ``add``; otherwise
    ``""``.
    """
    parts = target(node).split(".")
    return parts[1] if len(parts) == 3 and parts[0] == "aten" else ""


def shape(node: Node) -> tuple[int, ...]:
    """Static shape of a node's tensor.

    Raises:
        AtlasError: it depends on values, as that of a choice by a mask.
    """
    extents = tuple(node.meta["val"].shape)
    if any(not isinstance(one, int) and not one.node.has_hint() for one in extents):
        raise AtlasError(
            "the shape of a value depends on values",
            where=place(node),
            why="a choice by a mask has as many elements as the mask has ones, and a program has "
            "fixed shapes",
            remedy="compute all elements, and multiply those that do not count by 0",
        )
    return tuple(int(extent) for extent in extents)


def arguments(node: Node) -> dict[str, Any]:
    """All arguments of an aten call by name, in the order of its schema, defaults included."""
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict.fromkeys(names), **defaults(node), **dict(zip(names, node.args)), **node.kwargs}


def defaults(node: Node) -> dict[str, Any]:
    """The arguments of an aten op that have a default."""
    every = node.target._schema.arguments
    return {one.name: one.default_value for one in every if one.has_default_value()}


def is_node(value: Any) -> bool:
    """True for a node, False for a number or another literal argument."""
    return hasattr(value, "op")


def is_float(node: Node) -> bool:
    """True for a floating-point tensor."""
    dtype = _type(node)
    return dtype is not None and bool(dtype.is_floating_point)


def _type(node: Node) -> Any:
    """The dtype of a tensor; None for other values."""
    return getattr(node.meta.get("val"), "dtype", None)


def module_path(node: Node) -> str:
    """Path of the innermost module whose forward made the node (``encoder.layer.3.output``).

    Module names are free in a model; characters that a location may not hold become underscores.
    """
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return as_location(re.sub(r"^L\['self'\]\.?", "", str(stack[-1][0]))) if stack else ""


def source_line(node: Node) -> str:
    """``file:line`` of the model's code that made the node, or an empty string.

    It is the innermost frame outside torch, because a line in ``torch/nn`` says little about a
    model.
    """
    trace = str(node.meta.get("stack_trace"))  # of a file of torch.export it may be any JSON
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    return _innermost(frames)


def raised_at(error: BaseException) -> str:
    """``file:line`` of the model's code that raised an error; empty if torch alone raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        (one.filename, str(one.lineno))
        for one in frames
        if FRONTEND not in Path(one.filename).parents and not _is_torch(one.filename)
    ]
    return _innermost(own)


def _is_torch(file: str) -> bool:
    """Whether a file is one of torch, here or where a program was exported; a user's folder may
    have that name too.
    """
    import torch

    here = Path(torch.__file__).parent in Path(file).parents
    return here or "-packages/torch/" in file.replace("\\", "/")


def _innermost(frames: Sequence[tuple[str, str]]) -> str:
    files = [frame for frame in frames if not frame[0].startswith("<")]  # code that torch made
    outside = [frame for frame in files if not _is_torch(frame[0])]
    return ":".join([*files, *outside][-1]) if files else ""


def place(node: Node) -> str:
    """Module path and source line, for messages."""
    path, line = module_path(node) or "(top level)", source_line(node)
    return f"{path} ({line})" if line else path


def inline_regions(graph_module: Any) -> tuple[Graph, Any]:
    """A copy of a graph with regions for grad mode or autocast inlined, and without its output
    node; and the value that its output node would return.
    """
    import torch.fx

    flat = torch.fx.Graph()
    table: dict[Any, Any] = {}

    def copy(owner: Any) -> Any:
        regions: dict[Any, Any] = {}
        for node in owner.graph.nodes:
            if node in table:
                continue
            if node.op == "output":
                return torch.fx.map_arg(node.args[0], table.__getitem__)
            part = getattr(owner, str(node.target)) if node.op == "get_attr" else None
            region = next((arg for arg in node.args if arg in regions), None)
            if hasattr(part, "graph"):
                regions[node] = part
            elif region is not None:
                operands = node.args[node.args.index(region) + 1 :]
                holes = regions[region].graph.find_nodes(op="placeholder")
                copied = torch.fx.map_arg(operands, table.__getitem__)
                table.update(zip(holes, copied, strict=True))
                table[node] = copy(regions[region])
            elif "getitem" in str(node.target) and isinstance(table[node.args[0]], list | tuple):
                table[node] = table[node.args[0]][node.args[1]]
            else:
                table[node] = flat.node_copy(node, table.__getitem__)
        raise AssertionError("a graph ends with its output node")

    return flat, copy(graph_module)


def is_active_dropout(node: Node) -> bool:
    """Whether a node drops random values, as in training."""
    return (
        packet(node).removesuffix("_") in DROPOUTS
        and bool(node.args[2])
        and float(node.args[1]) > 0
    )


def numbers_among(inputs: Mapping[Node, str]) -> set[Node]:
    """The inputs of integers that are read as numbers alone, such as images of bytes that a model
    turns into floats or divides by 255; the others are ids.
    """
    found = set()
    for node, name in inputs.items():
        dtype = _type(node)
        integers = dtype is not None and not is_float(node) and str(dtype) != "torch.bool"
        users = [user for user in node.users if hasattr(user.meta.get("val"), "shape")]
        as_numbers = all(packet(user) in AS_NUMBERS and is_float(user) for user in users)
        if integers and name != PUBLIC_INPUT and users and as_numbers:
            found.add(node)
    return found


def remove_identities(graph: Graph, numbers: Collection[Node] = ()) -> dict[Node, Node]:
    """Route the users of copies, casts between floats, dropout and similar nodes to their operand.
    A cast of ``numbers``, which are integers, to floats is one too.

    Returns each such node with its operand. Raises AtlasError for an active dropout, which means
    that the model was exported in training mode.
    """
    same: dict[Node, Node] = {}
    for node in list(graph.nodes):
        name, operands = packet(node), node.all_input_nodes
        if not operands or not hasattr(node.meta.get("val"), "shape"):
            continue
        if name == "cat":  # a concatenation of a single part is an identity
            operands = [one for one in operands if 0 not in shape(one)] or operands
        operand = operands[0]
        if name == "copy":  # its first operand gives the shape alone
            operand = node.args[1]
        if is_active_dropout(node):
            raise AtlasError(
                "a dropout is active, as in training mode",
                where=place(node),
                remedy="write F.dropout(x, p, self.training), and no train() in forward; call "
                "model.eval() before exporting it",
            )
        view = name in (*VIEWS, "cat", "copy") and shape(node) == shape(operand)
        view = view or (name in ("pad", "constant_pad_nd") and not any(node.args[1]))
        floats = is_float(node) and (is_float(operand) or operand in numbers)
        view = view and (floats or _type(node) == _type(operand))
        if name in DROPOUTS or view or (name in COPIES and floats):
            node.replace_all_uses_with(operand)
            same[node] = operand
    return same


def classify(
    graph: Graph,
    inputs: Mapping[Node, str],
    fixed: Collection[Node] = (),
    private: Collection[Node] = (),
) -> dict[Node, Kind]:
    """The kind of every node of a flat graph, by the user inputs (nodes with their names) that it
    depends on. Nodes in ``fixed`` are constant although they depend on an input. Those in
    ``private`` are data: the client computes them.
    """
    kinds: dict[Node, Kind] = {}
    for node in graph.nodes:
        if node in private:
            kinds[node] = "data"
            continue
        if node in inputs:
            kinds[node] = "mask" if inputs[node] == PUBLIC_INPUT else "data"
            continue
        below = set()
        for operand in [] if node in fixed else node.all_input_nodes:
            ids = operand in inputs and kinds[operand] == "data" and not is_float(operand)
            below.add("index" if ids else kinds[operand])
        if below <= {"constant"}:
            kinds[node] = "constant"
        elif below <= {"constant", "mask"}:
            kinds[node] = "mask"
        elif below <= {"constant", "index"} and not is_float(node):
            kinds[node] = "index"
        else:
            kinds[node] = "data"
    return kinds


def before_tokens(graph: Graph, inputs: Collection[Node], kinds: Mapping[Node, Kind]) -> set[Node]:
    """The nodes that the client must compute, because one of `CLIENT_ALONE` is or reads them.

    The client computes such an op before the first attention. Without attention after it, as in a
    network of convolutions alone, the op must read an input of the model, as a patch embedding.
    """
    private = [node for node in graph.nodes if kinds[node] == "data"]
    raw, behind, ahead, found = set(inputs), set[Node](), set[Node](), set[Node]()
    for node in private:
        if packet(node) in MOVES and raw.issuperset(node.all_input_nodes):
            raw.add(node)
        if packet(node) in ATTENTION or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    for node in reversed(private):
        if any(user in ahead or packet(user) in ATTENTION for user in node.users):
            ahead.add(node)
        ahead_of_tokens = node in ahead and not reads_one_place(node)
        early = node not in behind and (ahead_of_tokens or raw.issuperset(node.args[:1]))
        if (early and packet(node) in CLIENT_ALONE) or not found.isdisjoint(node.users):
            found.add(node)
    return found


def reads_one_place(node: Node) -> bool:
    """Whether a convolution reads, for each place of its result, the same place alone: it is a
    linear layer of the channels.
    """
    if not packet(node).startswith("conv"):
        return False
    given = arguments(node)
    still = isinstance(given["padding"], str) or not any(given["padding"])
    return still and set(given["stride"]) == {1} and set(shape(given["weight"])[2:]) == {1}


def part_sums(graph: Graph) -> dict[Node, Node]:
    """Write ``baddbmm`` as a sum and a product, because masks are recognised in sums.

    Returns each such node with its sum.
    """
    import torch

    parted: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if packet(node) != "baddbmm":
            continue
        added, a, b = node.args[:3]
        if node.kwargs.get("beta", 1) != 1:
            continue
        with graph.inserting_before(node):
            product = graph.call_function(torch.ops.aten.bmm.default, (a, b))
            product.meta = dict(node.meta)
            if (alpha := node.kwargs.get("alpha", 1)) != 1:
                product = graph.call_function(torch.ops.aten.mul.Tensor, (product, alpha))
                product.meta = dict(node.meta)
            total = graph.call_function(torch.ops.aten.add.Tensor, (product, added))
        total.meta = dict(node.meta)
        node.replace_all_uses_with(total)
        parted[node] = total
    return parted


@contextmanager
def holding(holder: Any, **values: Any) -> Iterator[None]:
    """Give an object other values of attributes during the block; attributes it lacks are
    skipped.
    """
    saved = {name: getattr(holder, name) for name in values if hasattr(holder, name)}
    try:
        for name in saved:
            setattr(holder, name, values[name])
        yield
    finally:
        for name, value in saved.items():
            setattr(holder, name, value)
