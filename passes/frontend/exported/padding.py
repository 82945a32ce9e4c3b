"""Masks that a model computes from token ids: the public mask takes their place.

``ids == c`` says the same as ``attention_mask == 0`` if a text has the id c as padding and nowhere
else. The client sees to that (``nn.input`` has the id), so a comparison of the ids with the id of
padding becomes one of the public mask. Only such comparisons do; what the server sees is the mask
of a text, whatever the model compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from atlasc.passes.frontend.exported.constants import evaluate, read_shapes
from atlasc.passes.frontend.exported.graph import (
    COPIES,
    PUBLIC_INPUT,
    Kind,
    Node,
    arguments,
    is_float,
    is_node,
    packet,
    shape,
)
from atlasc.passes.frontend.exported.positions import probe_masks

if TYPE_CHECKING:
    from torch.fx import Graph

EQUAL, UNEQUAL = ("eq",), ("ne", "not_equal")
ABOVE = {"gt": 0, "greater": 0, "ge": 1, "greater_equal": 1}
BELOW = {"le": 0, "less_equal": 0, "lt": 1, "less": 1}
"""Comparisons of ids with these numbers ask whether an id is 0, as no id is negative."""


UNNAMED = -1
"""Stands for the id of padding while a model is traced whose config names none."""


class Padding(NamedTuple):
    """The input of token ids, and the id of padding in it, or `UNNAMED`."""

    ids: Node
    token: int


class Compared(NamedTuple):
    """A node that compares token ids with the id of padding.

    Attributes:
        node: the node.
        ids: the input.
        token: the id of padding.
        kept: whether it is true for tokens, and not for padding.
    """

    node: Node
    ids: Node
    token: int
    kept: bool


def without_padding(config: Any) -> Any:
    """The config of HuggingFace that should name the id of padding in texts, if it names none;
    otherwise None.

    A classifier of a decoder then reads the last place, and so answers one text without padding. A
    program has padding behind shorter texts.
    """
    of_text = getattr(config, "get_text_config", None)
    found = of_text() if callable(of_text) else config
    return found if getattr(found, "pad_token_id", None) is None else None


def public_masks(
    graph: Graph, inputs: dict[Node, str], kinds: Mapping[Node, Kind], known: dict[Node, Any]
) -> Padding | None:
    """Read masks that are computed from ids off the public mask, which becomes an input.

    Which id is that of padding follows from the embedding of the ids (``padding_idx``), or from a
    search for the last token of another id, as in classifiers of decoders. Where neither names one,
    it is the only id that they are compared with, in a model without a public mask.

    Args:
        graph: the graph, which is changed.
        inputs: the inputs with their names; the mask is added.
        kinds: kinds of the nodes.
        known: values of nodes.

    Returns:
        The ids and that of padding; None if no mask is computed from ids.
    """
    import torch

    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.embedding.default):
        if (ids := _copied(node.args[1])) in inputs:  # ids.long() is the ids
            node.replace_input_with(node.args[1], ids)
    every = ((one, _read(one, kinds)) for one in _comparisons(graph, inputs, kinds, known))
    read = {one: nodes for one, nodes in every if nodes}
    found = list(read)
    mask = next((node for node, name in inputs.items() if name == PUBLIC_INPUT), None)
    named = {token for one in found for token in _padding_of(one.ids)}
    named |= {one.token for one in found if _finds_last(one, read[one], known)}
    tokens = {one.token for one in found}
    tokens = tokens & named if named or mask is not None else tokens
    tokens -= set() if UNNAMED in named else {UNNAMED}
    found = [one for one in found if one.token in tokens]
    if len(tokens) != 1 or len({one.ids for one in found}) != 1:
        return None
    ids = found[0].ids
    if mask is None:
        with graph.inserting_before(ids):
            mask = graph.placeholder(PUBLIC_INPUT)
        mask.meta = dict(ids.meta)
        inputs[mask] = PUBLIC_INPUT
    elif shape(mask) != shape(ids):
        return None
    for one in found:
        _replace(graph, one, mask)
    return Padding(ids, found[0].token)


def _replace(graph: Graph, one: Compared, mask: Node) -> None:
    import torch

    op = torch.ops.aten.ne.Scalar if one.kept else torch.ops.aten.eq.Scalar
    with graph.inserting_before(one.node):
        same = graph.call_function(op, (mask, 0))
    same.meta = dict(one.node.meta)
    one.node.replace_all_uses_with(same)


def _comparisons(
    graph: Graph, inputs: Mapping[Node, str], kinds: Mapping[Node, Kind], known: dict[Node, Any]
) -> Iterator[Compared]:
    """All nodes that compare ids [batch, tokens] with one id."""
    import torch

    shaped = read_shapes(graph, kinds)  # a full_like of ids
    kinds, known = {**kinds, **dict.fromkeys(shaped, "constant")}, {**known, **shaped}
    for node in graph.nodes:
        name, operands = packet(node), node.all_input_nodes
        if not hasattr(node.meta.get("val"), "shape"):
            continue
        ids = next((one for one in map(_copied, operands) if one in inputs), None)
        if ids is None or kinds[ids] != "data" or is_float(ids) or len(shape(ids)) != 2:
            continue
        if shape(node) != shape(ids):
            continue
        if name == "logical_not":
            yield Compared(node, ids, 0, False)
        elif name in COPIES and node.meta["val"].dtype == torch.bool:
            yield Compared(node, ids, 0, True)
        elif name in (*EQUAL, *UNEQUAL, *ABOVE, *BELOW):
            first, second = list(arguments(node).values())[:2]
            turned = not (is_node(first) and _copied(first) is ids)
            token = _number(first if turned else second, kinds, known)
            if token is None:
                continue
            if name in (*EQUAL, *UNEQUAL):
                yield Compared(node, ids, token, name in UNEQUAL)
            elif not turned and token == {**ABOVE, **BELOW}[name]:
                yield Compared(node, ids, 0, name in ABOVE)


def _copied(node: Node) -> Node:
    """The node whose integers a node copies."""
    while packet(node) in COPIES and not is_float(node) and not _is_bool(node):
        node = node.args[0]
    return node


def _is_bool(node: Node) -> bool:
    import torch

    return getattr(node.meta.get("val"), "dtype", None) == torch.bool


def _number(value: Any, kinds: Mapping[Node, Kind], known: dict[Node, Any]) -> int | None:
    """The integer that a number, or a constant with one value, is."""
    if is_node(value):
        if kinds[value] != "constant":
            return None
        tensor = evaluate(value, known)
        if tensor.is_meta or not tensor.numel() or (tensor != tensor.flatten()[0]).any():
            return None
        value = tensor.flatten()[0].item()
    return int(value) if value == int(value) and value >= UNNAMED else None


def _padding_of(ids: Node) -> set[int]:
    """The ids of padding that embeddings of ids name."""
    takers, pending = [], [ids]
    while pending:
        for user in pending.pop().users:
            if packet(user) in COPIES and not is_float(user):
                pending.append(user)
            elif packet(user) == "embedding" and _copied(user.args[1]) is ids:
                takers.append(user)
    named = [arguments(one).get("padding_idx", -1) for one in takers]
    return {int(token) for token in named if isinstance(token, int) and token >= 0}


def _read(one: Compared, kinds: Mapping[Node, Kind]) -> list[Node]:
    """The nodes of ids alone by which a comparison meets hidden states; none if it is no more than
    the index of an embedding, such as the positions that RoBERTa counts.
    """
    found, pending = dict[Node, None](), [one.node]
    seen = set(pending)
    while pending:
        node = pending.pop()
        for user in node.users:
            if packet(user) == "embedding" and user.args[1] is node:
                continue
            if not _of_ids(user, one.ids, kinds):
                found[node] = None
            elif user not in seen:
                seen.add(user)
                pending.append(user)
    return list(found)


def _finds_last(one: Compared, nodes: Sequence[Node], known: Mapping[Node, Any]) -> bool:
    """Whether nodes are the place of the last token of each text with another id than that of a
    comparison, and nothing else.
    """
    import torch

    places = torch.arange(shape(one.ids)[1])
    for probe in map(torch.from_numpy, probe_masks(*shape(one.ids))):
        given = {**known, one.ids: torch.where(probe > 0, one.token + 1, one.token)}
        last = (places * probe).amax(1)
        for node in nodes:
            value = evaluate(node, given)
            if is_float(node) or value.numel() != len(last) or (value.flatten() != last).any():
                return False
    return True


def _of_ids(node: Node, ids: Node, kinds: Mapping[Node, Kind]) -> bool:
    """Whether a node depends on ids and constants alone, and on no embedding of them."""
    seen, pending = set[Node](), [node]
    while pending:
        current = pending.pop()
        if current in seen or current is ids or kinds[current] == "constant":
            continue
        seen.add(current)
        if packet(current) == "embedding" or not current.all_input_nodes:
            return False
        pending += current.all_input_nodes
    return True
