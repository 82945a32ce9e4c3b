"""Positions: indices of embeddings that a model computes from token ids or from the mask.

A model's expression is not analysed but evaluated on probes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError, first_line
from atlasc.ir.ops.nn import position_ids
from atlasc.passes.frontend.exported.constants import evaluate
from atlasc.passes.frontend.exported.graph import Kind, Node, is_float, packet, place, shape, target

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph

COMPARISONS = ("aten.ne.Scalar", "aten.eq.Scalar")
PROBE_IDS = 32  # ids of ordinary tokens in probes of positions
RANDOM_PROBES = 3


class Positions(NamedTuple):
    """Positions of the tokens that are kept.

    Attributes:
        source: the input that they are counted from: token ids, or the public mask.
        padding: the id, or the 0 of the mask, that is not counted; see ``nn.position_ids``.
        offset: what the model adds to that op's result.
    """

    source: Node
    padding: int
    offset: int = 0


def indices_of(
    graph: Graph, inputs: Mapping[Node, str], kinds: Mapping[Node, Kind], known: dict[Node, Any]
) -> dict[Node, torch.Tensor | Positions]:
    """For each index of an embedding that is computed from ids or from the mask: a constant, or
    positions.

    Raises AtlasError for any other index.
    """
    ids = [node for node in inputs if kinds[node] == "data" and not is_float(node)]
    mask = next((node for node in inputs if kinds[node] == "mask"), None)
    found: dict[Node, torch.Tensor | Positions] = {}
    for node in graph.nodes:
        index = node.args[1] if packet(node) == "embedding" else None
        if index is None or kinds[index] not in ("index", "mask") or index in found:
            continue
        if kinds[index] == "mask":
            found[index] = _of_mask(index, mask, known)
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

    require_texts(ids, node)
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
    raise _unknown(node, "which tokens the client has")


def _of_mask(node: Node, mask: Node, known: Mapping[Node, Any]) -> torch.Tensor | Positions:
    """Integers that the model computes from the public mask: the same for all masks, or OPT's
    positions, which count the tokens that the mask keeps.
    """
    import torch

    require_texts(mask, node)
    probes = probe_masks(*shape(mask))
    values = [evaluate(node, {**known, mask: torch.from_numpy(probe)}).numpy() for probe in probes]
    if all(np.array_equal(value, values[0]) for value in values):
        return torch.from_numpy(values[0])
    offset = int(values[0].flat[0]) - 1
    for value, probe in zip(values, probes, strict=True):
        if not np.array_equal(value, position_ids(probe, 0) + offset):
            raise _unknown(node, "the mask")
    return Positions(mask, 0, offset)


def require_texts(tokens: Node, node: Node) -> None:
    """Raise AtlasError, about a node, unless an input has one number for each token of a text."""
    if len(shape(tokens)) != 2:
        raise AtlasError(
            f"the input {tokens.name} has the shape {shape(tokens)}",
            where=place(node),
            why="a program reads one text a row, [batch, tokens], and not several choices",
            remedy="let forward take one text, and compare the scores of the choices afterwards",
        )


def _unknown(node: Node, source: str) -> AtlasError:
    return AtlasError(
        f"{target(node)}: an index depends on {source}",
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


def probe_masks(batch: int, length: int) -> list[np.ndarray]:
    """Masks [batch, length] that distinguish all meanings.

    They are all ones, padding on the right of several lengths, and random masks that keep the first
    key, so that no causal row is empty.
    """
    random = np.random.default_rng(0)
    probes = [np.ones((batch, length), dtype=np.int64)]
    for shortest in {max(1, length // 3), max(1, length - 1)}:
        kept = (shortest + np.arange(batch)) % length
        probes.append((np.arange(length) < np.maximum(kept, 1)[:, None]).astype(np.int64))
    for _ in range(RANDOM_PROBES):
        probe = random.integers(0, 2, size=(batch, length))
        probe[:, 0] = 1
        probes.append(probe)
    return probes
