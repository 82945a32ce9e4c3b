"""Constant folding: everything that does not depend on a private input is evaluated by torch.

Values of a model without weights (meta tensors) stay meta tensors: only their shapes are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.frontend.graph import Node, place, shape, target

if TYPE_CHECKING:
    import torch

COMPARISONS = ("aten.ne.Scalar", "aten.eq.Scalar")
MAX_ELEMENTS = 2**28
"""Of a constant that is computed: a mask of 16,384 tokens."""
PROBE_IDS = 32  # ids that stand for ordinary tokens when positions are probed


class Folder:
    """Evaluates nodes on concrete tensors.

    Args:
        stored: tensors of parameters, buffers and lifted constants, by placeholder node.
    """

    def __init__(self, stored: Mapping[Node, torch.Tensor]) -> None:
        self.known: dict[Node, Any] = dict(stored)

    def constant(self, node: Node) -> torch.Tensor:
        """Value of a constant node, on the CPU, or a meta tensor when weights are absent."""
        return self._evaluate(node, self.known)

    def evaluate_with(self, node: Node, inputs: Mapping[Node, torch.Tensor]) -> torch.Tensor:
        """Value of a node for concrete user inputs; constants below it are kept."""
        return self._evaluate(node, {**self.known, **inputs})

    def _evaluate(self, root: Node, known: dict[Node, Any]) -> Any:
        pending = [root]
        while pending:
            node = pending[-1]
            if node in known:
                pending.pop()
                continue
            missing = [operand for operand in node.all_input_nodes if operand not in known]
            if missing:
                pending += missing
                continue
            known[node] = _call(node, known)
            pending.pop()
        return known[root]


def _call(node: Node, known: Mapping[Node, Any]) -> Any:
    """One op on concrete tensors: on the CPU, or on meta as soon as one operand is meta."""
    import torch
    import torch.fx

    if node.op != "call_function":
        raise AtlasError(
            f"cannot evaluate {node.op} {node.target}",
            where=place(node),
            remedy="report this model: its constants hang on something that is not a tensor op",
        )
    operands = {operand: known[operand] for operand in node.all_input_nodes}
    meta = any(isinstance(t, torch.Tensor) and t.is_meta for t in operands.values())
    device = torch.device("meta" if meta else "cpu")

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return device
        return value.to(device) if isinstance(value, torch.Tensor) else value

    args = torch.fx.map_arg((node.args, node.kwargs), lambda operand: operands[operand])
    args, kwargs = torch.utils._pytree.tree_map(moved, args)
    if "device" in kwargs and not meta:
        kwargs = {**kwargs, "device": device}
    _check_size(node, args)
    with torch.no_grad():
        return node.target(*args, **kwargs)


def _check_size(node: Node, args: Sequence[Any]) -> None:
    """Refuse a constant that would take the machine's memory: an archive may ask for any size."""
    lists = [arg for arg in args if isinstance(arg, (list, tuple))]
    sizes = [math.prod(one) for one in lists if all(isinstance(extent, int) for extent in one)]
    if str(node.target).startswith("aten.arange"):
        sizes += [arg for arg in args if isinstance(arg, int)]
    if (largest := max(map(abs, sizes), default=0)) > MAX_ELEMENTS:
        raise AtlasError(
            "a constant of the model is too large",
            where=place(node),
            why=f"{node.target} makes one of {largest} elements; at most {MAX_ELEMENTS} are made",
            remedy="export the model with inputs of an ordinary size",
        )


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array: a view where the type allows it; zeros that cost nothing for meta.

    Float types of less than 32 bits become float32.
    """
    import torch

    if tensor.is_meta:
        return np.broadcast_to(np.float32(0), tuple(tensor.shape))
    tensor = tensor.detach()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def fixed_index(node: Node, ids: Node, vocabulary: int, folder: Folder) -> torch.Tensor:
    """Integers computed from token ids that do not depend on which tokens they are.

    RoBERTa counts the tokens that are not padding to get positions. With padding on the right
    (the tokenizer's default) the count is 0, 1, 2, ... wherever a token is, and padding is masked,
    so the positions are constants. This is checked on probes.

    Args:
        node: the index tensor.
        ids: the input that it is computed from.
        vocabulary: number of ids.
        folder: evaluates the nodes.

    Raises:
        AtlasError: the integers do depend on the tokens.
    """
    import torch

    batch, length = shape(ids)
    special = {
        int(user.args[1])
        for user in ids.users
        if target(user) in COMPARISONS and isinstance(user.args[1], int)
    }
    ordinary = [i for i in range(vocabulary) if i not in special][-PROBE_IDS:]
    random = np.random.default_rng(0)

    def probe(tokens: np.ndarray) -> torch.Tensor:
        return folder.evaluate_with(node, {ids: torch.from_numpy(tokens)})

    first, second = (random.choice(ordinary, size=(batch, length)) for _ in range(2))
    fixed = probe(first)
    if fixed.is_meta:
        return fixed
    same = bool(torch.equal(fixed, probe(second)))
    if same and fixed.shape == (batch, length):
        for padding in special:
            for kept in {1, length // 2, length - 1} - {0}:
                padded = second.copy()
                padded[:, kept:] = padding
                same = same and bool(torch.equal(probe(padded)[:, :kept], fixed[:, :kept]))
    if not same:
        raise AtlasError(
            f"{target(node)}: an index depends on which tokens the client has",
            where=place(node),
            remedy="pass the index (for example position_ids) as an input of the model",
        )
    return fixed
