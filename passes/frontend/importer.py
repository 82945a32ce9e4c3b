"""The importer, with which rules and patterns emit nn ops: kinds of nodes, constants, values,
masks.

The client's computation ends where the first Transformer block begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.arrays.lazy import LazyArray, is_large
from atlasc.ir.bounds import as_symbol
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.ops.names import OpName
from atlasc.passes.frontend.exported import graph as fx
from atlasc.passes.frontend.exported.choices import without_choices
from atlasc.passes.frontend.exported.constants import evaluate, read_shapes, to_numpy
from atlasc.passes.frontend.exported.graph import Node
from atlasc.passes.frontend.exported.locations import locations
from atlasc.passes.frontend.exported.padding import UNNAMED, public_masks
from atlasc.passes.frontend.exported.positions import Positions, indices_of

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph

Emit = Callable[[], Value]
"""Emits the op of a node."""
_LAYER = re.compile(r"(?:^|\.)\d+(?:\.|$)")
CLIENT_OPS = ("nn.embedding", "nn.convolution", "nn.gather")
MOVES = ("nn.reshape", "nn.transpose")
"""They bring the positions of a convolution into the model's order, or back."""


class Refusal(Exception):
    """A rule does not support its arguments; the text says why."""


class Missing(Exception):
    """An operand was not emitted because its op is unsupported; the op that reads it is skipped."""


def _moved(value: Value) -> Op:
    """The op whose elements a value has, perhaps in another order."""
    while value.op.name in MOVES:
        value = value.op.operands[0]
    return value.op


class Importer:
    """State of one import.

    Args:
        graph: a flat fx graph without an output node.
        inputs: placeholder nodes of user inputs, with their names.
        stored: tensors of parameters, buffers and lifted constants, with their paths.
        name: name of the module.

    Attributes:
        node: the current node.
        known: values of the evaluated constant nodes.
        numbers: inputs of integers that are read as numbers.
        same: copies, casts between floats and similar nodes -> the node that they copy.
        batch: extent of the first axis of the inputs.
        padding: the ids and that of padding, if the public mask replaces comparisons of ids.
        mask_meanings: meanings of the masks seen so far; see ``masks``.
        zeroed: places where zeros are written into padding.
        positions: indices that count tokens, which the client computes; see ``positions``.
        before_tokens: nodes that only the client can compute; see ``graph``.
        order: the number of each node in the graph.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[Node, str],
        stored: Mapping[Node, tuple[str, torch.Tensor]],
        name: str,
    ) -> None:
        self.graph, self.inputs = graph, dict(inputs)
        self.names = {node: as_symbol(path) for node, (path, _) in stored.items()}
        self.known: dict[Node, Any] = {node: tensor for node, (_, tensor) in stored.items()}
        self.module = Module(as_symbol(name), "nn")
        self.mask_meanings: dict[Any, Any] = {}
        self.zeroed: list[str] = []
        self.batch = min((fx.shape(node)[0] for node in self.inputs if fx.shape(node)), default=1)
        chosen = without_choices(graph, fx.classify(graph, self.inputs), self.known)
        self.numbers = fx.numbers_among(self.inputs)
        identities = fx.remove_identities(graph, self.numbers)
        self.same = {**chosen, **fx.part_sums(graph), **identities}
        self.kinds = fx.classify(graph, self.inputs)
        self.padding = public_masks(graph, self.inputs, self.kinds, self.known)
        if self.padding is not None:
            self.kinds = fx.classify(graph, self.inputs)
        public = (node for node, name in self.inputs.items() if name == fx.PUBLIC_INPUT)
        self.mask_input = next(public, None)
        found = indices_of(graph, self.inputs, self.kinds, self.known)
        self.positions = {n: one for n, one in found.items() if isinstance(one, Positions)}
        constants = {n: one for n, one in found.items() if n not in self.positions}
        fixed = {**read_shapes(graph, self.kinds), **constants}
        if fixed or self.positions:
            self.known |= fixed
            self.kinds = fx.classify(graph, self.inputs, fixed, self.positions)
        self.before_tokens = fx.before_tokens(graph, self.inputs, self.kinds)
        self.locations = locations(graph)
        self.order = {node: number for number, node in enumerate(graph.nodes)}
        working = (n for n in graph.nodes if self.kinds[n] == "data" and n not in self.same)
        self.layered = any(_LAYER.search(fx.module_path(node)) for node in working)
        self.values: dict[Node, Value] = {}
        self.node: Any = None
        self._encrypted: dict[Value, Value] = {}
        self._constants: dict[tuple, Symbol] = {}

    def same_as(self, nodes: Sequence[Any]) -> list[Any]:
        """Nodes, and other results, with copies replaced by the copied node."""
        return [self.same.get(node, node) if fx.is_node(node) else node for node in nodes]

    def name_of(self, node: Node) -> str:
        """Name of the symbol for a constant: that of its parameter, or its module's path."""
        return self.names.get(node) or fx.module_path(node) or "constant"

    def tensor(self, node: Node) -> torch.Tensor:
        """Value of a constant node."""
        return evaluate(node, self.known)

    def array(self, node: Node) -> np.ndarray:
        """Value of a constant node as an array."""
        return to_numpy(self.tensor(node))

    def is_absent(self, node: Node) -> bool:
        """True if only the shape of a constant is known, in a model without weights."""
        return bool(self.tensor(node).is_meta)

    def with_ones(self) -> dict[Node, Any]:
        """The known values, with ones for weights that are absent; they take no memory."""
        import torch

        absent = {node for node, one in self.known.items() if getattr(one, "is_meta", False)}
        return {
            node: torch.ones((), dtype=one.dtype).expand(one.shape) if node in absent else one
            for node, one in self.known.items()
            if node.op == "placeholder" or node not in absent
        }

    def without_batch(self, node: Node, shape: Sequence[int]) -> np.ndarray:
        """A constant without leading axes along which it was broadcast.

        Raises Refusal if it varies along such an axis.
        """
        array = _reduced(self.array(node))
        try:
            return np.broadcast_to(array, tuple(shape))
        except ValueError:
            raise Refusal(f"a constant of shape {array.shape} is not {tuple(shape)}") from None

    def constant(self, name: str, array: np.ndarray) -> Symbol:
        """Symbol of an array; equal small arrays under one name share a symbol, and so do large
        ones at one place in memory.
        """
        key: tuple = (name, array.shape)
        if not is_large(array.shape, array.dtype):
            key = (*key, array.tobytes())
        elif isinstance(array, LazyArray):
            key = (*key, array.key)
        elif array.strides:
            key = (*key, array.__array_interface__["data"][0], array.strides)
        if key not in self._constants:
            self._constants[key] = self.module.constant(name, array)
        return self._constants[key]

    def symbol(self, node: Node | None) -> Symbol | None:
        """Symbol of a constant node, named after its parameter; None without a node."""
        if node is None:
            return None
        if self.kinds[node] != "constant":
            raise Refusal("a weight must be a constant, not computed from an input")
        return self.constant(self.name_of(node), self.array(node))

    def reduced(self, node: Node, array: np.ndarray) -> Symbol:
        """Symbol of an array that was computed from a constant node, without its batch."""
        return self.constant(self.name_of(node), _reduced(array))

    def vector(self, node: Node | None, fill: str, size: int) -> Symbol | None:
        """Symbol of a constant node; without a node, of a vector of ``ones`` or ``zeros``."""
        if node is not None:
            return self.symbol(node)
        return self.constant(fill, getattr(np, fill)(size, dtype=np.float32))

    def value(self, operand: Node | Value) -> Value:
        """The nn value of a node."""
        if isinstance(operand, Value):
            return operand
        if operand in self.values:
            return self.values[operand]
        if self.kinds.get(operand) == "data":
            raise Missing
        if self.kinds.get(operand) == "index":
            raise Refusal(
                "it computes with integers of an input; look them up in an nn.Embedding, or give "
                "floats"
            )
        raise Refusal(f"its operand {operand.name} is not private data")

    def add(
        self, op_name: OpName, *operands: Node | Value, at: Node | None = None, **attributes: object
    ) -> Value:
        """Emit an op for a node (``at``, by default ``node``).

        Client values that the server reads are encrypted. Attributes that are None are left out.
        """
        node = at or self.node
        location = self.locations[node]
        values = [self.value(operand) for operand in operands]
        moves = op_name in MOVES and _moved(values[0]).name == "nn.convolution"
        may_stay = moves or self._may_stay(node, op_name)
        if not may_stay or any(v.tensor.side == "server" for v in values):
            values = [self.on_server(value) for value in values]
        given = {name: value for name, value in attributes.items() if value is not None}
        try:
            return self.module.add(op_name, values, given, location)
        except AtlasError as error:
            raise Refusal(f"{error.what}: {error.why}" if error.why else error.what) from None

    def stays(self, *operands: Node | Value) -> bool:
        """Whether the client can choose elements of these nodes, in the clear."""
        sides = {self.value(one).tensor.side for one in operands}
        return sides == {"client"} and self._may_stay(self.node, "nn.gather")

    def _may_stay(self, node: Node, op_name: OpName) -> bool:
        """Whether an op may be the client's, if its operands are."""
        if node in self.before_tokens:
            return True
        return not _LAYER.search(fx.module_path(node)) if self.layered else op_name in CLIENT_OPS

    def on_server(self, value: Value) -> Value:
        """The value itself, or its encryption if the value is on the client."""
        if value.tensor.side != "client":
            return value
        if value not in self._encrypted:
            location = _moved(value).location
            self._encrypted[value] = self.module.add("nn.encrypt", [value], {}, location)
        return self._encrypted[value]

    def input(self, node: Node) -> Value:
        """The input of a placeholder, emitted once."""
        if node not in self.values:
            name = self.inputs[node]
            attributes = {
                "name": name,
                "shape": list(fx.shape(node)),
                "side": "public" if name == fx.PUBLIC_INPUT else "client",
                "dtype": "f64" if fx.is_float(node) or node in self.numbers else "i64",
            }
            self.values[node] = self.module.add("nn.input", [], attributes, name=name)
        return self.values[node]

    def name_padding(self) -> None:
        """Say at the ids which one is padding, if a public mask was read off them."""
        inputs = self.module.inputs
        if self.padding is not None and any(op.attributes["side"] == "public" for op in inputs):
            ids = self.values[self.padding.ids].op
            if self.padding.token != UNNAMED:
                ids.attributes["padding"] = self.padding.token


def _reduced(array: np.ndarray) -> np.ndarray:
    """A constant without leading axes along which it does not vary (the batch)."""
    while array.ndim > 1:
        same = array.shape[0] == 1 or array.strides[0] == 0
        if not same and not (array == array[:1]).all():
            break
        array = array[0]
    return array
